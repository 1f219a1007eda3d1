"""What is refused before a cell starts, and what never is: memory, frameworks that die when imported, disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from edgeq.artifact import FileEntry, InputInfo, manifest_path, write_manifest
from edgeq.events import Child
from edgeq.host import memory
from edgeq.host.device import describe
from edgeq.host.reading import ROOT
from edgeq.run import disk, preflight, runner
from edgeq.run.imports import Imported
from edgeq.run.preflight import Preflight
from edgeq.run.record import Record
from edgeq.run.runner import Runner, RunRequest, Watcher
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import Cell
from edgeq.spec.note import Note
from edgeq.spec.profile import load_profile
from tests.host import trees
from tests.manifests import manifest
from tests.run.conftest import no_child
from tests.run.small_models import small_images, small_models

#: Bytes of artifacts as exported: the largest and the smallest model of the study.
FILES = {
    ("vgg19", "fp32"): 574_700_000, ("vgg19", "fp16"): 287_400_000, ("vgg19", "int8-static"): 143_900_000,
    ("mobilenet_v2", "fp32"): 14_073_652, ("mobilenet_v2", "int8-static"): 4_103_216,
}  # fmt: skip
#: What a worker takes with the framework alone, as measured on x86-64.
FRAMEWORKS = {"tflite": 82_000_000, "onnxruntime": 100_000_000, "openvino": 130_000_000, "pytorch": 590_000_000}


class Told(Watcher):
    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.records: list[Record] = []
        self.phases: list[tuple[str, str]] = []

    def told(self, note: Note) -> None:
        self.notes.append(note)

    def phase(self, what: str, name: str) -> None:
        self.phases.append((what, name))

    def ended(self, record: Record, turns: int = 1) -> None:
        self.records.append(record)


@pytest.fixture
def models(tmp_path: Path, repo: Path) -> Path:
    """Manifests of VGG-19 and MobileNetV2 on TFLite; their files are not there, and need not be to be refused."""
    for (model, scheme), size in FILES.items():
        folder = tmp_path / "models" / model
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(repo / "models" / model / "model.toml", folder)
        made = manifest(
            model=model, scheme=scheme, key=f"{model} {scheme}", classes=1000,
            input=InputInfo(shape=(224, 224, 3), layout="NHWC"),
            files=[FileEntry(name=f"{scheme}.tflite", sha256="0", bytes=size)],
        )  # fmt: skip
        write_manifest(manifest_path(tmp_path / "models", model, "tflite", scheme, "any"), made)
    return tmp_path / "models"


Ask = Callable[..., RunRequest]


@pytest.fixture
def ask(models: Path, repo: Path, tmp_path: Path) -> Ask:
    def make(**changes: Any) -> RunRequest:
        fields: dict[str, Any] = {
            "models_dir": models, "results": tmp_path / "results", "models": ("vgg19",), "backends": ("tflite",),
            "schemes": ("fp32", "fp16", "int8-static"), "scenarios": ("single-stream",),
            "profile": load_profile(repo / "scenarios", "quick"), "threads": 4, "target": "aarch64",
            "device": {**describe(trees.pi4(tmp_path / "pi"), "aarch64", {}, {0, 1, 2, 3}), "slug": "here"},
        }  # fmt: skip
        return RunRequest(**{**fields, **changes})

    return make


_REAL = {name: getattr(memory, name) for name in ("available", "total", "limit")}


def _of(real: Callable[[Path], int | None], root: Path, asked: Path = ROOT) -> int | None:
    """The board's memory where this machine's is asked for."""
    return real(root if asked == ROOT else asked)


@dataclass
class Board:
    """A board's memory, in the numbers of its ``/proc/meminfo``."""

    root: Path
    monkeypatch: pytest.MonkeyPatch

    def has(self, total_mb: int, available_mb: int, group_mb: int | None = None) -> None:
        kilobytes = [round(mb * 1e6 / 1024) for mb in (total_mb, available_mb)]
        trees.write(self.root, {"proc/meminfo": "MemTotal: {} kB\nMemAvailable: {} kB\n".format(*kilobytes)})
        if group_mb is not None:
            trees.write(self.root, {"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/memory.max": f"{group_mb}000000\n",
                                    "sys/fs/cgroup/job/memory.current": "0\n"})  # fmt: skip
        for name in _REAL:
            self.monkeypatch.setattr(memory, name, partial(_of, _REAL[name], self.root))


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    monkeypatch.setattr(
        preflight, "check_import", lambda backend, *_: Imported(backend=backend, peak_rss=FRAMEWORKS[backend])
    )
    monkeypatch.setattr(preflight, "installed", lambda backend: {"tflite-runtime": "0"} if backend == "tflite" else {})
    monkeypatch.setattr(runner, "require", lambda _: None)
    return Board(tmp_path / "board", monkeypatch)


def test_a_board_of_1_gib_refuses_vgg19_in_fp32_and_says_what_fits(
    ask: Ask, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.has(948, 760)
    monkeypatch.setattr(Child, "start", no_child)
    (record,) = Runner(ask(schemes=("fp32",)), told := Told()).run()
    assert record.status == "skipped"
    assert record.reason is not None
    assert record.reason.code == "too-little-memory"
    assert "760 MB of 948 MB" in record.reason.text
    assert "574" not in record.reason.text, "the file's size is not what it takes"
    assert record.artifact is not None
    assert record.artifact.bytes == 574_700_000
    assert told.records == [record]


def test_the_hint_names_a_scheme_that_fits(ask: Ask, board: Board) -> None:
    board.has(948, 760)
    check = Preflight(Runner(ask(), Watcher()).plan, Watcher())
    refusal = check.refusal(Cell("vgg19", "tflite", "fp32", "single-stream"))
    assert refusal is not None
    assert refusal[1].code == "too-little-memory"
    assert "--backend tflite --scheme int8-static" in refusal[1].hint
    assert check.refusal(Cell("vgg19", "tflite", "int8-static", "single-stream")) is None


@pytest.mark.parametrize("scheme", ["fp32", "int8-static"])
@pytest.mark.parametrize("scenario", ["single-stream", "multi-stream", "offline"])
def test_a_board_of_1_gib_takes_mobilenet(ask: Ask, board: Board, scheme: str, scenario: str) -> None:
    board.has(948, 500)
    asked = ask(models=("mobilenet_v2",), schemes=("fp32", "int8-static"), scenarios=(scenario,))
    check, cell = Preflight(Runner(asked, Watcher()).plan, Watcher()), Cell("mobilenet_v2", "tflite", scheme, scenario)
    assert check.refusal(cell) is None
    assert check.refusal(cell, "accuracy") is None
    assert check.warnings(cell) == []


def test_a_control_group_counts_as_a_board_does(ask: Ask, board: Board) -> None:
    board.has(24_000, 20_000, group_mb=700)
    check = Preflight(Runner(ask(), Watcher()).plan, Watcher())
    refusal = check.refusal(Cell("vgg19", "tflite", "fp32", "single-stream"))
    assert refusal is not None
    assert "700 MB" in refusal[1].text


def test_where_it_may_just_fit_it_is_tried_with_a_warning(ask: Ask, board: Board) -> None:
    board.has(4000, 20_000)
    plan, cell = Runner(ask(), Watcher()).plan, Cell("vgg19", "tflite", "fp32", "single-stream")
    room = Preflight(plan, Watcher())._room(cell, "performance")
    assert room is not None
    board.has(4000, (room.takes.least + room.takes.most) // 2 // 10**6)
    check = Preflight(plan, Watcher())
    assert check.refusal(cell) is None
    (note,) = check.warnings(cell)
    assert note.code == "tight-memory"


def test_where_the_board_has_the_memory_but_others_use_it_the_hint_says_so(ask: Ask, board: Board) -> None:
    board.has(4000, 100)
    refusal = Preflight(Runner(ask(), Watcher()).plan, Watcher()).refusal(
        Cell("vgg19", "tflite", "fp32", "single-stream")
    )
    assert refusal is not None
    assert "end other programs" in refusal[1].hint
    assert "--resume" in refusal[1].hint


def test_the_user_may_know_better(ask: Ask, board: Board) -> None:
    board.has(948, 760)
    check = Preflight(Runner(ask(ignore_memory=True), Watcher()).plan, Watcher())
    cell = Cell("vgg19", "tflite", "fp32", "single-stream")
    assert check.refusal(cell) is None
    assert [note.code for note in check.warnings(cell)] == ["tight-memory"], "its record says that it may have swapped"


def test_a_cell_refused_for_memory_is_tried_again_by_resume(ask: Ask, board: Board) -> None:
    asked = ask(schemes=("fp32",))
    board.has(4000, 100)
    (record,) = Runner(asked, Watcher()).run()
    assert record.status == "skipped"
    board.has(4000, 3000)
    (again,) = Runner(replace(asked, resume=True), Watcher()).run()
    assert again.reason is not None
    assert again.reason.code != "too-little-memory", "it is tried, and fails, as there is no file in this test"
    assert list(Path(asked.results).rglob("record.try-1.json")), "the refusal stays on record"


def test_a_machine_that_does_not_tell_refuses_nothing(ask: Ask, board: Board) -> None:
    board.monkeypatch.setattr(memory, "available", lambda *_: None)
    check = Preflight(Runner(ask(), Watcher()).plan, Watcher())
    assert check.refusal(Cell("vgg19", "tflite", "fp32", "single-stream")) is None


def _dying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo: Path, code: str) -> None:
    package = tmp_path / "fake" / "tflite_runtime"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "interpreter.py").write_text(code)
    # The other runtime is not to be found first.
    other = tmp_path / "fake" / "ai_edge_litert"
    other.mkdir()
    (other / "__init__.py").write_text("")
    (other / "interpreter.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}:{repo}")
    monkeypatch.syspath_prepend(str(package.parent))


@pytest.mark.usefixtures("fresh_cache")
@pytest.mark.parametrize(("signal", "code"), [(4, "illegal-instruction"), (11, "crashed")])
def test_a_framework_that_dies_costs_its_cells_and_the_run_goes_on(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo: Path, signal: int, code: str
) -> None:
    _dying(tmp_path, monkeypatch, repo, f"import os\nos.kill(os.getpid(), {signal})\n")
    quick = load_profile(repo / "scenarios", "quick")
    short = quick.single_stream.model_copy(update={"min_duration_s": 0.1})
    profile = quick.model_copy(update={"resident_samples": 4, "single_stream": short})
    asked = ask(
        models=("mobilenet_v2",), backends=("null", "tflite"), schemes=("fp32", "int8-static"), profile=profile, rounds=2,
    )  # fmt: skip
    records = Runner(asked, told := Told()).run()
    assert [record.status for record in records] == ["ok", "failed", "failed"]
    for record in records[1:]:
        assert record.reason is not None
        assert record.reason.code == code
        assert record.reason.hint
        assert "import" in record.reason.text
    imports = [phase for phase in told.phases if "fit for this CPU" in phase[0]]
    assert len(imports) == 1, "asked once a run, not once a cell"


def test_what_the_cpu_lacks_is_told_once_and_is_no_warning(
    ask: Ask, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.has(948, 100)
    records = Runner(ask(), told := Told()).run()
    assert [note.code for note in told.notes] == ["no-dotprod", "no-fp16"]
    assert not {note.code for record in records for note in record.warnings} & {"no-dotprod", "no-fp16"}


def test_without_a_model_there_is_nothing_to_expect(ask: Ask) -> None:
    check = Preflight(Runner(ask(models=(), backends=("null",), schemes=()), Watcher()).plan, Watcher())
    assert check.notes() == []


@pytest.fixture
def small(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, repo: Path) -> Ask:
    """Asks for one real cell of a small network."""
    quick = load_profile(repo / "scenarios", "quick")
    short = quick.single_stream.model_copy(update={"min_duration_s": 0.1})

    def make(backend: str, **changes: Any) -> RunRequest:
        return RunRequest(
            models_dir=small_models(tmp_path_factory, framework=backend), results=tmp_path / "results",
            models=("small",), backends=(backend,), schemes=("int8-static",), scenarios=("single-stream",), threads=1,
            target="x86_64-vnni", profile=quick.model_copy(update={"single_stream": short}),
            device={**describe(), "slug": "here"}, **changes,
        )  # fmt: skip

    return make


@pytest.mark.usefixtures("fresh_cache")
@pytest.mark.parametrize("backend", ["tflite", "onnxruntime"])
def test_a_real_worker_takes_what_was_estimated(small: Ask, backend: str) -> None:
    """The estimate's largest part is what the import took on this very device."""
    started = Runner(small(backend), Watcher())
    (record,) = started.run()
    assert record.status == "ok", record.reason
    assert record.peak_rss_mb is not None
    room = started.preflight._room(record.cell, "performance")
    assert room is not None
    assert room.takes.least <= record.peak_rss_mb * 1e6 <= room.takes.most


@pytest.mark.usefixtures("fresh_cache")
def test_where_only_the_accuracy_run_does_not_fit_the_cell_is_timed_without(
    small: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = Note(code="too-little-memory", text="it would take too much", hint="take less")
    monkeypatch.setattr(
        Preflight, "refusal", lambda _self, _cell, mode="performance": ("skipped", why) if mode == "accuracy" else None
    )
    (record,) = Runner(small("onnxruntime", dataset=small_images(tmp_path / "images")), Watcher()).run()
    assert record.status == "ok", record.reason
    assert record.accuracy is None
    (note,) = [note for note in record.warnings if note.code == "accuracy-skipped"]
    assert "it would take too much" in note.text


def test_disk_is_asked_for_what_will_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=20_000_000))
    disk.enough_disk(tmp_path, disk.needed())
    with pytest.raises(EdgeqError) as caught:
        disk.enough_disk(tmp_path, disk.needed(answers=50_000))
    assert caught.value.code == "disk-full"
    assert "20 MB are free" in caught.value.why
    assert "29 MB" in caught.value.why
    assert "--resume" in caught.value.hint
