"""Measuring the machine's peaks: what counts as the fastest, what is kept, what a dying framework costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.events import Child
from edgeq.files import cache_dir
from edgeq.host.device import describe
from edgeq.peaks import Peaks
from edgeq.run import peaks as measuring
from edgeq.run import runner
from edgeq.run.peaks import LEAST_S, LIBRARIES, MOST_S, Clock, fastest, kept_peaks, measure_peaks
from edgeq.run.runner import Runner, RunRequest, Watcher
from edgeq.spec.profile import load_profile
from tests.run.conftest import PEAKS, no_child
from tests.run.small_models import small_models

DEVICE = describe()


pytestmark = pytest.mark.usefixtures("fresh_cache")


class _Machine(Clock):
    """Time passes only while samples are computed: each takes ``ms`` of wall time, ``cpu`` of it for each of its threads."""

    def __init__(self, ms: Callable[[int], float], cpu: float, threads: int) -> None:
        self._ms, self._cpu, self._threads = ms, cpu, threads
        self._wall, self._used, self.calls = 0.0, 0.0, 0

    def wall(self) -> float:
        return self._wall

    def cpu(self) -> float:
        return self._used

    def run(self, count: int) -> None:
        self.calls += 1
        took = count * self._ms(self.calls) / 1e3
        self._wall += took
        self._used += took * self._cpu * self._threads


def test_the_fastest_window_counts() -> None:
    machine = _Machine(lambda call: 0.5 if call == 70 else 1.0, cpu=1.0, threads=2)
    found = fastest(machine.run, threads=2, cores=2, clock=machine)
    assert found.by_window == pytest.approx(2000)
    assert found.by_cpu == pytest.approx(1000, rel=0.05)
    assert found.busy == pytest.approx(1.0)
    assert LEAST_S <= machine.wall() < 2 * LEAST_S


def test_where_something_else_runs_cpu_time_counts_and_it_is_tried_for_longer() -> None:
    machine = _Machine(lambda _: 10.0, cpu=0.1, threads=2)  # alone, a sample would take 1 ms on both threads
    found = fastest(machine.run, threads=2, cores=2, clock=machine)
    assert found.by_window == pytest.approx(100)
    assert found.by_cpu == pytest.approx(1000)
    assert found.busy == pytest.approx(0.1)
    assert MOST_S <= machine.wall() < MOST_S + 0.3


def test_threads_beyond_the_cores_are_given_no_cpu_time_that_they_cannot_have() -> None:
    machine = _Machine(lambda _: 1.0, cpu=0.25, threads=8)  # 8 threads on 2 cores
    found = fastest(machine.run, threads=8, cores=2, clock=machine)
    assert found.by_cpu == pytest.approx(found.by_window)


@given(st.floats(0.01, 3000), st.integers(1, 64))
def test_a_slow_machine_is_timed_too(ms: float, threads: int) -> None:
    machine = _Machine(lambda _: ms, cpu=1.0, threads=threads)
    found = fastest(machine.run, threads=threads, cores=threads, clock=machine)
    assert found.by_window == pytest.approx(1e3 / ms)
    assert found.by_cpu == pytest.approx(1e3 / ms)


@pytest.mark.usefixtures("needs_tflite")
def test_every_network_is_timed_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[str, str]] = []
    first = measure_peaks(["tflite", "numpy"], DEVICE, 1, lambda library, step: steps.append((library, step)))
    assert steps == [
        ("tflite", "import"), ("tflite", "fp32"), ("tflite", "int8-static"), ("numpy", "import"), ("numpy", "fp32"),
    ]  # fmt: skip
    assert {"fp32", "int8"} <= set(first.by)
    assert first.threads == 1
    assert first.by["int8"].macs_per_s >= first.by["fp32"].macs_per_s > 1e8
    assert first.by["int8"].library == "tflite"
    assert {note.code for note in first.notes} <= {"peak-disturbed"}
    monkeypatch.setattr(measuring, "_doubtful", lambda *_: False)
    monkeypatch.setattr(Child, "start", no_child)
    assert measure_peaks(["tflite", "numpy"], DEVICE, 1) == first


def test_kept_peaks_hang_on_what_can_change_them(monkeypatch: pytest.MonkeyPatch) -> None:
    first = measure_peaks(["numpy"], DEVICE, 1)
    monkeypatch.setattr(measuring, "_doubtful", lambda *_: False)
    monkeypatch.setattr(Child, "start", no_child)
    for device, threads in (({**DEVICE, "isa": ["avx2"]}, 1), ({**DEVICE, "cores": 77}, 1), (DEVICE, 2)):
        with pytest.raises(AssertionError, match="started"):
            measure_peaks(["numpy"], device, threads)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    with pytest.raises(AssertionError, match="started"):
        measure_peaks(["numpy"], DEVICE, 1)
    monkeypatch.delenv("OPENBLAS_CORETYPE")
    assert measure_peaks(["numpy"], DEVICE, 1) == first
    (file,) = (cache_dir() / "peaks").glob("numpy-*.json")
    file.write_text(file.read_text()[:50])
    with pytest.raises(AssertionError, match="started"):
        measure_peaks(["numpy"], DEVICE, 1)


def test_only_what_all_libraries_gave_is_told_without_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "installed", lambda _: {})
    assert kept_peaks(DEVICE, 1) is None
    found = measure_peaks(LIBRARIES, DEVICE, 1)
    monkeypatch.setattr(Child, "start", no_child)
    assert kept_peaks(DEVICE, 1) == found
    assert kept_peaks(DEVICE, 2) is None
    monkeypatch.setattr(measuring, "installed", lambda backend: {"x": "1"} if backend == "tflite" else {})
    assert kept_peaks(DEVICE, 1) is None, "tflite is installed, and was not measured"


def test_a_cache_that_cannot_be_written_costs_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDGEQ_CACHE", str(tmp_path / "file"))
    found = measure_peaks(["numpy"], DEVICE, 1)
    assert found.by["fp32"].library.startswith("numpy")
    assert "cannot-write" in {note.code for note in found.notes}


def test_a_framework_that_dies_costs_its_own_peaks_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo: Path
) -> None:
    (tmp_path / "onnxruntime").mkdir()
    (tmp_path / "onnxruntime" / "__init__.py").write_text("import os\nos.kill(os.getpid(), 4)\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{repo}")
    monkeypatch.setattr(measuring, "installed", lambda _: {"onnxruntime": "0"})
    found = measure_peaks(["onnxruntime", "numpy"], DEVICE, 1)
    assert found.by["fp32"].library.startswith("numpy")
    codes = [note.code for note in found.notes if note.code != "peak-disturbed"]
    assert codes == ["illegal-instruction"]
    assert [file.name[:5] for file in (cache_dir() / "peaks").iterdir()] == ["numpy"], "a failure is not kept"


def _result(library: str = "tflite", **changes: Any) -> measuring.LibraryPeaks:
    timed = {"name": "fp32", "computes": "fp32", "macs_per_s": 1e11, "by_window": 1e11, "library": library} | changes
    return measuring.LibraryPeaks(library=library, timed=[measuring.Timed(**timed)])


class _Measured:
    """Stands in for the children: each library's figure (GMAC/s) of the next measurement, and whether it was disturbed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.next: dict[str, tuple[float, bool]] = {}
        self.asked: list[str] = []
        monkeypatch.setattr(measuring, "installed", lambda backend: {"x": "1"} if backend in self.next else {})
        monkeypatch.setattr(measuring, "_measure", self._measure)

    def _measure(self, library: str, *_: Any) -> tuple[measuring.LibraryPeaks, bool]:
        self.asked.append(library)
        giga, disturbed = self.next[library]
        return _result(library, macs_per_s=giga * 1e9, disturbed=disturbed), True

    def __call__(self, **following: tuple[float, bool]) -> tuple[float, str, list[str], list[str]]:
        self.next, self.asked = following, []
        found = measure_peaks(following, DEVICE, 2)
        peak = found.by["fp32"]
        return peak.macs_per_s / 1e9, peak.library, self.asked, [note.code for note in found.notes]


def test_a_disturbed_peak_is_measured_again_and_the_higher_figure_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = _Measured(monkeypatch)
    both, disturbed = ["tflite", "pytorch"], ["peak-disturbed"]
    assert measure(tflite=(100, True), pytorch=(70, True)) == (100, "tflite", both, disturbed)
    # PyTorch is too far off to be the peak.
    assert measure(tflite=(90, True), pytorch=(70, True)) == (100, "tflite", ["tflite"], disturbed)
    assert measure(tflite=(110, True), pytorch=(70, True)) == (110, "tflite", ["tflite"], disturbed)
    assert measure(tflite=(120, False), pytorch=(70, True)) == (110, "tflite", [], disturbed), "three tries are enough"


def test_what_was_undisturbed_once_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = _Measured(monkeypatch)
    assert measure(tflite=(110, True)) == (110, "tflite", ["tflite"], ["peak-disturbed"])
    assert measure(tflite=(109, False)) == (110, "tflite", ["tflite"], [])
    assert measure(tflite=(120, False)) == (110, "tflite", [], [])


def test_a_disturbed_peak_says_so_where_it_is_the_peak() -> None:
    (note,) = measuring._combined([_result(disturbed=True)], DEVICE, 2).notes
    assert note.code == "peak-disturbed"
    assert "fp32 (tflite)" in note.text
    assert str(cache_dir()) in note.hint
    better = _result(macs_per_s=2e11, library="openvino")
    assert measuring._combined([_result(disturbed=True), better], DEVICE, 2).notes == []


def test_a_network_of_several_precisions_is_no_peak() -> None:
    found = measuring._timed(
        measuring.peaks.Runnable(lambda _: None, 1, {"fp16": 0.6, "fp32": 0.4}, "onnxruntime", lambda: None),
        "fp16", 1, 1, set(),
    )  # fmt: skip
    assert (found.computes, found.macs_per_s) == (None, None)
    assert found.note is not None
    assert found.note.code == "mixed-precision"


def test_what_computes_in_another_precision_is_not_timed_where_that_has_been() -> None:
    net = measuring.peaks.Runnable(no_child, 1, {"fp32": 1.0}, "onnxruntime", lambda: None)
    found = measuring._timed(net, "fp16", 1, 1, {"fp32"})
    assert (found.computes, found.macs_per_s) == ("fp32", None)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_models(tmp_path_factory, ("fp32",))


@pytest.fixture
def asked(repo: Path, models: Path, tmp_path: Path) -> RunRequest:
    profile = load_profile(repo / "scenarios", "quick")
    short = profile.single_stream.model_copy(update={"min_duration_s": 0.05, "min_queries": 64})
    return RunRequest(
        models_dir=models, results=tmp_path / "results", models=("small",), backends=("null", "onnxruntime"),
        schemes=("fp32",), scenarios=("single-stream",), threads=1, target="x86_64-vnni", device={**DEVICE}, rounds=2,
        profile=profile.model_copy(update={"resident_samples": 4, "single_stream": short}),
    )  # fmt: skip


def test_each_record_with_a_model_has_the_peaks_and_they_are_measured_once(
    asked: RunRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def measure(libraries: Any, device: Any, threads: int, watcher: Any) -> Peaks:
        calls.append((tuple(libraries), threads))
        watcher("tflite", "fp32")
        return PEAKS

    class Listening(Watcher):
        def phase(self, what: str, name: str) -> None:
            calls.extend([name] if what == "the machine's peak" else [])

    monkeypatch.setattr(runner, "measure_peaks", measure)
    null, cell = Runner(asked, Listening()).run()
    assert (null.peaks, cell.peaks) == (None, PEAKS)
    assert calls == [(LIBRARIES, 1), "tflite: fp32"], "once, though two rounds of the cell were timed"
    assert cell.artifact is not None
    assert cell.artifact.macs is not None
    assert cell.artifact.macs > 0


@pytest.mark.parametrize("changes", [{"backends": ("null",)}, {"device": {**DEVICE, "emulated": True}}])
def test_without_a_model_or_on_an_emulated_device_none_are_measured(
    asked: RunRequest, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    monkeypatch.setattr(runner, "measure_peaks", no_child)
    for record in Runner(replace(asked, rounds=1, **changes), Watcher()).run():
        assert (record.status, record.peaks) == ("ok", None)
