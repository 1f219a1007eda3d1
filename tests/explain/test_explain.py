"""``edgeq explain`` on the small network: real artifacts, real child processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from edgeq.artifact import Reference, write_manifest
from edgeq.explain import children
from edgeq.explain.job import (
    LAYER_SAMPLES,
    Explained,
    ExplainRequest,
    Side,
    _certain,
    explain,
    first_samples,
    parse_cell,
)
from edgeq.explain.page import print_page
from edgeq.explain.quiet import disturbed
from edgeq.files import sha256_file
from edgeq.operators import OperatorProfile
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import Cell
from tests.export.exported import export
from tests.model_folders import model_toml

pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

#: Notes that a busy test machine may give.
LOAD = {"busy-neighbour", "unsteady"}

SPEC = model_toml("small", "nowhere", "small", mean=0, std=1)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models with fp32 and fp16 artifacts of the small network for ONNX Runtime."""
    models = tmp_path_factory.mktemp("models")
    out = models / "small/artifacts/onnxruntime"
    out.mkdir(parents=True)
    (models / "small/model.toml").write_text(SPEC)
    for scheme in ("fp32", "fp16"):
        made = export("onnxruntime", scheme, tmp_path_factory.mktemp(scheme))
        reference = out.parent / "reference-0.npz"
        if scheme == "fp32":
            np.savez(reference, samples=made.samples, logits=made.logits)
        for entry in made.manifest.files:
            shutil.copy(made.path.parent / entry.name, out)
        kept = Reference(file="../reference-0.npz", sha256=sha256_file(reference))
        write_manifest(out / f"{scheme}.json", made.manifest.model_copy(update={"reference": kept}))
    return models


def request(models: Path, scheme: str = "fp16", scenario: str = "single-stream", **more: bool) -> ExplainRequest:
    cell = Cell("small", "onnxruntime", scheme, scenario)
    return ExplainRequest(cell, models, threads=1, rounds=2, seconds=0.1, **more)


def page(found: Explained) -> str:
    console = Console(width=80, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    print_page(found, console)
    return console.export_text()


def test_a_cell_and_its_twin_take_turns(models: Path) -> None:
    said: list[str] = []
    found = explain(request(models), said.append)
    assert said == ["fp16: round 1 of 2", "fp32: round 1 of 2", "fp16: round 2 of 2", "fp32: round 2 of 2"]
    assert found.fp32 is not None
    assert len(found.this.plain_ms) == len(found.fp32.plain_ms) == 2
    assert found.macs
    assert found.verdict[:3] in {"abo", "not"} or "times as" in found.verdict
    assert found.ratio is not None
    assert found.ratio.n == 2
    assert not {note.code for note in found.notes} - LOAD


def test_the_page_begins_with_the_verdict_and_holds_what_it_is_drawn_from(models: Path) -> None:
    found = explain(request(models), lambda _: None)
    text = page(found)
    assert text.splitlines()[2].lower().startswith(found.verdict[:20].lower())
    for words in ("convolution (dense, 1x1)", "without the profiler", "Asked for: fp16", "Not seen by it"):
        assert words in text
    again = json.loads(json.dumps(found.as_json()))
    profile = again["profile"]
    del profile["plain_ms_by_round"]
    assert OperatorProfile.model_validate(profile) == found.this.profile


def test_the_float_cell_is_described_by_itself(models: Path) -> None:
    found = explain(request(models, "fp32"), lambda _: None)
    assert found.fp32 is None
    assert "of its time" not in found.verdict
    assert "goes into" in found.verdict
    assert "change" not in page(found)


def test_layers_are_compared_worst_first(models: Path) -> None:
    found = explain(request(models, layers=True), lambda _: None)
    assert found.layers is not None
    assert [layer["op"] for layer in found.layers["layers"]] == ["conv", "depthwise", "conv", "conv", "linear"]
    assert "Layers whose output is furthest from fp32's" in page(found)


def test_another_scenario_is_said_to_be_profiled_one_at_a_time(models: Path) -> None:
    found = explain(request(models, "fp32", "offline"), lambda _: None)
    assert [note.code for note in found.notes if note.code not in LOAD] == ["one-at-a-time"]


def test_a_missing_twin_is_told_and_its_layers_refused(models: Path, tmp_path: Path) -> None:
    alone = tmp_path / "models"
    shutil.copytree(models, alone)
    (alone / "small/artifacts/onnxruntime/fp32.json").unlink()
    found = explain(request(alone), lambda _: None)
    assert [note.code for note in found.notes if note.code not in LOAD] == ["no-fp32"]
    assert found.fp32 is None
    with pytest.raises(EdgeqError, match="no fp32 artifact") as caught:
        explain(request(alone, layers=True), lambda _: None)
    assert caught.value.code == "no-artifact"


def test_a_broken_artifact_is_told_before_anything_is_profiled(models: Path, tmp_path: Path) -> None:
    broken = tmp_path / "models"
    shutil.copytree(models, broken)
    file = broken / "small/artifacts/onnxruntime/fp16.onnx"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(EdgeqError) as caught:
        explain(request(broken), lambda _: None)
    assert caught.value.code == "truncated"


def test_a_child_that_hangs_is_stopped_and_told(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hanging.py").write_text(
        "import signal\nfrom edgeq.events import emit\nemit('phase', name='operator profile')\nsignal.pause()\n"
    )
    repo = Path(__file__).resolve().parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{repo}")
    monkeypatch.setattr(children, "MODULE", "hanging")
    monkeypatch.setattr(children, "LIMIT_S", 3.0)
    with pytest.raises(EdgeqError, match="was stopped") as caught:
        explain(request(models), lambda _: None)
    assert caught.value.code == "hung"
    assert caught.value.hint.startswith("run: ")


def test_a_model_too_slow_for_rounds_is_told_and_only_a_great_difference_counts(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = explain(replace(request(models), seconds=1e-6), lambda _: None)
    assert [note.code for note in found.notes if note.code not in LOAD] == ["single-inference"]
    assert found.ratio is None
    profile = found.this.profile

    def side(ms: float) -> Side:
        return Side("fp16", profile.model_copy(update={"plain_ms": ms}), (ms,))

    assert not _certain(side(1.4), side(1.0), None)
    assert _certain(side(1.6), side(1.0), None)
    assert _certain(side(1.0), side(1.6), None)


def test_only_the_images_that_the_layers_are_compared_on_are_decoded(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    from edgeq.data import cache

    folder = tmp_path / "images"
    for number in range(30):
        (folder / f"{number % 10}").mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(number).integers(0, 255, (32, 32, 3), np.uint8)
        Image.fromarray(noise).save(folder / f"{number % 10}" / f"{number}.png")
    first = sorted(folder.rglob("*.png"))[0]
    first.write_bytes(first.read_bytes()[:-500])
    decoded: list[int] = []
    plainly = cache.decode
    monkeypatch.setattr(cache, "decode", lambda data: (decoded.append(len(data)), plainly(data))[1])
    monkeypatch.setenv("EDGEQ_CACHE", str(tmp_path / "cache"))
    samples = first_samples(request(models), folder)
    assert samples.count == LAYER_SAMPLES
    assert len(decoded) <= 2 * LAYER_SAMPLES + 1  # the set is made anew with one image more
    assert [note.code for note in samples.warnings] == ["bad-images"]


def test_neighbours_are_told_of() -> None:
    before = {"cpu_ticks": {"total": 0, "idle": 0, "steal": 0, "cpus": 2}}
    after = {"cpu_ticks": {"total": 1000, "idle": 0, "steal": 100, "cpus": 2}}
    assert [note.code for note in disturbed(before, after, 0.8)] == ["unsteady", "busy-neighbour"]
    calm = {"cpu_ticks": {"total": 1000, "idle": 500, "steal": 0, "cpus": 2}}
    assert disturbed(before, calm, 0.95) == []
    assert disturbed({"cpu_ticks": None}, {"cpu_ticks": None}, 0.5) == []


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("small", "bad-cell", "such as"),
        ("small/onnxruntime/fp16/offline/more", "bad-cell", "such as"),
        ("smal/onnxruntime/fp16", "unknown-name", "'small'"),
        ("small/onnxruntim/fp16", "unknown-name", "'onnxruntime'"),
        ("small/onnxruntime/int8-statik", "unknown-name", "'int8-static'"),
        ("small/onnxruntime/fp16/offlin", "unknown-name", "'offline'"),
        ("none/null/none/offline", "bad-cell", "framework"),
    ],
)
def test_a_wrong_name_is_told_with_the_nearest(models: Path, text: str, code: str, hint: str) -> None:
    with pytest.raises(EdgeqError) as caught:
        parse_cell(text, models)
    assert (caught.value.code, caught.value.exit_code) == (code, 2)
    assert hint in caught.value.hint


def test_a_cell_needs_no_scenario(models: Path) -> None:
    assert parse_cell("small/tflite/fp32", models) == Cell("small", "tflite", "fp32", "single-stream")


def edgeq(models: Path, *args: str) -> subprocess.CompletedProcess[str]:
    repo = Path(__file__).resolve().parents[2]
    return subprocess.run(
        [sys.executable, "-m", "edgeq", "explain", *args, "--models", str(models)],
        env={**os.environ, "PYTHONPATH": str(repo)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("args", "exit_code", "says"),
    [
        (["small/onnxruntime/fp61"], 2, "did you mean 'fp16'?"),
        (["small/onnxruntime/fp16", "--dataset", "."], 2, "add --layers"),
        (["small/onnxruntime/int8-static"], 1, "edgeq export --model small --backend onnxruntime --scheme int8-static"),
    ],
)
def test_the_command_line_refuses_in_three_lines(models: Path, args: list[str], exit_code: int, says: str) -> None:
    done = edgeq(models, *args)
    assert done.returncode == exit_code
    assert done.stdout == ""
    assert [line.strip()[:4] for line in done.stderr.splitlines()] == ["erro", "why:", "try:"]
    assert says in done.stderr


def test_json_is_all_that_standard_output_holds(models: Path) -> None:
    done = edgeq(models, "small/onnxruntime/fp16", "--threads", "1", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["cell"]["scheme"] == "fp16"
    assert found["fp32"]["groups"]
