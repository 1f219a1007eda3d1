"""What is told after a measurement; nothing of it may fail the cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeq.backends import probes
from edgeq.backends.session import Effective
from edgeq.data.samples import synthetic
from edgeq.operators import OperatorProfile
from edgeq.run import aftermath
from edgeq.run.job import WorkerJob
from edgeq.run.record import Canary, RunInfo
from edgeq.run.trial import Trial
from edgeq.setting import Setting
from edgeq.spec.errors import EdgeqError
from edgeq.spec.model import NO_MODEL_SPEC
from edgeq.spec.names import Cell
from edgeq.spec.profile import load_profile
from tests.manifests import manifest

SAMPLES = np.zeros((1, 3, 8, 8), np.float32)
PROFILE = OperatorProfile(tool="t", threads=1, inferences=9, profiled_ms=1.0, groups={"other": 1.0}, operators=[])


@pytest.fixture(autouse=True)
def _fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No probe of another test is kept."""
    monkeypatch.setenv("EDGEQ_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def trial(repo: Path, tmp_path: Path) -> Trial:
    """Of an int8 cell of TFLite that takes 10 ms a sample."""
    found = Trial(
        WorkerJob(
            mode="performance", cell=Cell("m", "tflite", "int8-static", "single-stream"), manifest=None, artifact_key="k",
            target="x86_64", threads=1, setting=Setting(threads=1), profile=load_profile(repo / "scenarios", "quick"),
            samples=synthetic(NO_MODEL_SPEC, 1, 0).to_spec(), dataset=None, folder=tmp_path,
            run=RunInfo(id="r", profile="quick", title="t", started="now", order=0), device={},
        )
    )  # fmt: skip
    found.manifest, found.file = manifest(scheme="int8-static"), tmp_path / "a.tflite"
    found.known["canary"] = Canary(ms_per_sample=10.0, n=5, estimate_s=1.0)
    return found


def _codes(trial: Trial) -> list[str]:
    return [note.code for note in trial.notes]


class _Telling:
    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def effective(self) -> Effective:
        if self.error is not None:
            raise self.error
        return Effective(threads=1, streams=1, batch=1, engine="e", macs={"int8": 1.0})


def test_what_ran_is_read_back(trial: Trial) -> None:
    session: Any = _Telling(None)
    aftermath.what_ran(trial, session)
    assert trial.known["effective"].macs == {"int8": 1.0}
    assert _codes(trial) == []


@pytest.mark.parametrize("error", [RuntimeError("no graph"), EdgeqError("no graph", "it is lost", "h", code="x")])
def test_a_framework_that_does_not_tell_costs_a_warning(trial: Trial, error: Exception) -> None:
    session: Any = _Telling(error)
    aftermath.what_ran(trial, session)
    assert "effective" not in trial.known
    assert _codes(trial) == ["effective-unknown"]
    assert "no graph" in trial.notes[0].text


def test_an_int8_cell_is_probed_by_the_framework_itself(trial: Trial) -> None:
    pytest.importorskip("ai_edge_litert")
    aftermath.saturation(trial)
    assert trial.known["probe"].ok, "litert adds in 32 bits, here as everywhere"
    assert trial.known["probe"].found == pytest.approx(63.36, abs=1)
    assert _codes(trial) == []


@pytest.mark.parametrize(("found", "kept"), [(32.3, 32.3), (float("nan"), None)])
def test_a_wrong_answer_is_a_warning_that_names_the_cure(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, found: float, kept: float | None
) -> None:
    wrong = probes.Probed("int8-static", 63.36, found, False, "1x1 convolution", ("1x1 convolution",))
    monkeypatch.setattr(aftermath, "probe", lambda backend, recipe, threads: wrong)
    aftermath.saturation(trial)
    assert (trial.known["probe"].found, trial.known["probe"].ok) == (kept, False)
    assert _codes(trial) == ["saturation"]
    assert trial.notes[0].hint


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The recipes whose probe was really run; each gives half of the answer."""
    found: list[str] = []

    def run(backend: str, recipe: str, threads: int) -> probes.Probed:
        found.append(recipe)
        return probes.Probed(recipe, 63.36, 32.3, False, "linear layer", ("linear layer",))

    monkeypatch.setattr(aftermath, "probe", run)
    return found


def test_the_next_cell_is_told_what_was_found_without_running_the_probe_again(trial: Trial, asked: list[str]) -> None:
    aftermath.saturation(trial)
    first = trial.known.pop("probe"), list(trial.notes)
    trial.notes.clear()
    aftermath.saturation(trial)
    assert asked == ["int8-static"]
    assert (trial.known["probe"].kept, first[0].kept) == (True, False)
    assert trial.known["probe"].model_copy(update={"kept": False}) == first[0]
    assert trial.notes == first[1]


@pytest.mark.parametrize("change", ["isa", "threads", "environment", "damage"])
def test_a_kept_probe_hangs_on_what_can_change_its_answer(
    trial: Trial, asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: str
) -> None:
    aftermath.saturation(trial)
    if change == "isa":
        trial.job = trial.job.model_copy(update={"device": {"isa": ["avx2"]}})
    elif change == "threads":
        trial.job = trial.job.model_copy(update={"threads": 2})
    elif change == "environment":
        monkeypatch.setenv("DNNL_MAX_CPU_ISA", "AVX2")
    else:
        (file,) = (tmp_path / "cache" / "probes").iterdir()
        file.write_text(file.read_text()[:40])
    aftermath.saturation(trial)
    assert asked == ["int8-static"] * 2
    assert not trial.known["probe"].kept


def test_a_cache_that_can_not_be_written_costs_no_probe(
    trial: Trial, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDGEQ_CACHE", str(tmp_path / "file"))
    aftermath.saturation(trial)
    assert trial.known["probe"].found == 32.3
    assert _codes(trial) == ["not-kept", "saturation"]


def test_a_probe_that_can_not_run_is_told(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(backend: str, recipe: str, threads: int) -> probes.Probed:
        raise EdgeqError("the probe is missing", "it is gone", "install edgeq anew", code="no-artifact")

    monkeypatch.setattr(aftermath, "probe", missing)
    aftermath.saturation(trial)
    assert "probe" not in trial.known
    assert [(note.code, note.hint) for note in trial.notes] == [("no-probe", "install edgeq anew")]


def test_a_recipe_without_a_probe_is_told_and_a_float_cell_has_none(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aftermath, "recipe_of", lambda manifest: None)
    aftermath.saturation(trial)
    assert _codes(trial) == ["no-probe"]
    trial.notes.clear()
    trial.manifest = manifest(scheme="fp16")
    aftermath.saturation(trial)
    assert _codes(trial) == []


def test_operators_are_profiled_with_all_threads_in_one_stream(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def profile(*arguments: Any) -> OperatorProfile:
        asked.append(arguments)
        return PROFILE

    monkeypatch.setattr(aftermath, "profile_operators", profile)
    aftermath.operators(trial, SAMPLES, "NHWC")
    assert trial.known["profile"] == PROFILE
    assert _codes(trial) == []
    ((of, file, options, samples, seconds),) = asked
    assert (of, file, options.threads, options.streams, seconds) == (
        trial.manifest,
        trial.file,
        1,
        1,
        aftermath.PROFILE_S,
    )
    assert samples.shape == (1, 8, 8, 3)


def test_a_profile_of_one_inference_says_so(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    one = PROFILE.model_copy(update={"inferences": 1, "profiled_ms": 2500.0})
    monkeypatch.setattr(aftermath, "profile_operators", lambda *arguments: one)
    aftermath.operators(trial, SAMPLES, "NHWC")
    assert trial.known["profile"] == one
    assert _codes(trial) == ["single-inference"]
    assert "single inference, without warm-up" in trial.notes[0].text
    assert "2.5 s" in trial.notes[0].text


@pytest.mark.parametrize("error", [RuntimeError("broken"), EdgeqError("broken", "why", "h", code="no-profiler")])
def test_an_artifact_that_can_not_be_profiled_has_a_warning(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def profile(*arguments: Any) -> OperatorProfile:
        raise error

    monkeypatch.setattr(aftermath, "profile_operators", profile)
    aftermath.operators(trial, SAMPLES, "NCHW")
    assert "profile" not in trial.known
    assert _codes(trial) == ["no-profile"]


def test_a_slow_inference_is_not_profiled(trial: Trial) -> None:
    trial.known["canary"] = Canary(ms_per_sample=3500.0, n=1, estimate_s=1.0)
    aftermath.operators(trial, SAMPLES, "NCHW")
    assert _codes(trial) == ["no-profile"]
    assert "3.5 s" in trial.notes[0].text
