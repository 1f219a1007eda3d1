"""The export job with a small network of the tests' own, through real child processes."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from edgeq.artifact import Reference, WeightsInfo, read_manifest
from edgeq.events import Child
from edgeq.export.job import Exported, ExportRequest, export
from edgeq.export.prepare import Prepared, PrepareJob, _stamp, calibration_of, is_current
from edgeq.files import sha256_file
from edgeq.spec.errors import EdgeqError
from edgeq.spec.model import load_model
from tests.model_folders import model_toml

NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, stride=2)
        self.fc = torch.nn.Linear(8, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean(dim=(2, 3)))
"""
SPEC = model_toml("net", "tiny_source", "Net", macs=48680, parameters=314)
Make = Callable[..., ExportRequest]


@pytest.fixture
def make(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "tiny_source.py").write_text(NET)
    (tmp_path / "models" / "net").mkdir(parents=True)
    (tmp_path / "models" / "net" / "model.toml").write_text(SPEC)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'src'}:{repo}")

    def request(**changes: Any) -> ExportRequest:
        fields: dict[str, Any] = {
            "models_dir": tmp_path / "models", "models": ["net"], "backends": ["onnxruntime"],
            "schemes": ["fp32", "fp16"], "weights": "random", "target": "x86_64", "threads": 1, "calibration_count": 4,
        }  # fmt: skip
        return ExportRequest(**{**fields, **changes})

    return request


def _run(request: ExportRequest, on_progress: Any = lambda what, done, total: None) -> dict[str, Exported]:
    return {outcome.scheme: outcome for outcome in export(request, on_progress)}


def _outcomes(found: dict[str, Exported]) -> dict[str, str]:
    return {scheme: outcome.outcome for scheme, outcome in found.items()}


def test_only_what_changed_is_exported_anew(make: Make, tmp_path: Path) -> None:
    first = _run(make())
    assert _outcomes(first) == {"fp32": "exported", "fp16": "exported"}
    assert first["fp16"].manifest.check is not None
    assert first["fp16"].manifest.check.size_ratio is not None
    assert _outcomes(_run(make())) == {"fp32": "unchanged", "fp16": "unchanged"}
    file = tmp_path / "models/net/artifacts/onnxruntime/fp16.onnx"
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    assert _outcomes(_run(make())) == {"fp32": "unchanged", "fp16": "exported"}, "the same size, another content"
    assert _outcomes(_run(make(seed=1))) == {"fp32": "exported", "fp16": "exported"}, "other weights"
    assert not list((tmp_path / "models/net/artifacts/onnxruntime").glob(".partial-*"))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules of all children that were started; a network of ``tiny_source`` is taken to stay the same."""
    found: list[str] = []

    class Counted(Child):
        @classmethod
        def start(cls, module: str, *rest: Any, **options: Any) -> Child:
            found.append(module.rpartition(".")[2])
            return super().start(module, *rest, **options)

    monkeypatch.setattr("edgeq.export.children.Child", Counted)
    monkeypatch.setattr("edgeq.export.prepare._VERSIONED", ("tiny_source",))
    return found


def test_where_nothing_changed_no_child_is_started(make: Make, started: list[str], tmp_path: Path) -> None:
    first = _run(make())
    assert started == ["prepare", "child"]
    assert _outcomes(_run(make())) == {"fp32": "unchanged", "fp16": "unchanged"}
    assert started == ["prepare", "child"]
    (tmp_path / "models/net/artifacts/onnxruntime/fp16.onnx").unlink()
    again = _run(make())
    assert started == ["prepare", "child", "child"], "torch's answers are still those"
    assert _outcomes(again) == {"fp32": "unchanged", "fp16": "exported"}
    assert again["fp16"].manifest.key == first["fp16"].manifest.key


@pytest.mark.parametrize(
    "change", ["seed", "count", "spec", "reference", "stamp", "auto", "prepared", "samples", "version"]
)
def test_a_preparation_is_current_only_where_nothing_it_follows_from_has_changed(
    make: Make, started: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    models = tmp_path / "models"
    work = models / "net" / "artifacts" / ".work"
    job = PrepareJob(
        models_dir=models, model="net", weights="random", seed=0, calibration=None, calibration_count=4, threads=1
    )
    _lay_out(job, work)
    assert is_current(job)
    if change in ("seed", "count", "auto"):
        fields = {"seed": {"seed": 1}, "count": {"calibration_count": 5}, "auto": {"weights": "auto"}}
        job = job.model_copy(update=fields[change])
    elif change == "spec":
        (models / "net" / "model.toml").write_text(SPEC.replace("crop = 32", "crop = 32\n# a remark"))
        assert is_current(job), "a remark says nothing"
        (models / "net" / "model.toml").write_text(SPEC.replace("mean = [0.5", "mean = [0.4"))
    elif change == "version":
        monkeypatch.setattr("edgeq.export.prepare._version", lambda name: "0")
    else:
        files = {
            "reference": work.parent / "reference-1.npz", "stamp": work / "stamp.json", "prepared": work / "prepared.json",
            "samples": work / "check.npz",
        }  # fmt: skip
        files[change].unlink()
    assert not is_current(job)


def _lay_out(job: PrepareJob, work: Path) -> None:
    """A whole preparation as ``prepare`` leaves it, of a network that nobody builds."""
    spec = load_model(job.models_dir, job.model)
    calibration = calibration_of(job, spec)
    work.mkdir(parents=True)
    for name in ("float.safetensors", "check.npz"):
        (work / name).touch()
    reference = work.parent / "reference-1.npz"
    reference.touch()
    prepared = Prepared(
        weights=WeightsInfo(kind="random", name="random, seed 0", sha256="w", seed=0), calibration=calibration.info(),
        spec_sha256="s", reference=Reference(file=f"../{reference.name}", sha256=sha256_file(reference)), layers=[],
        warnings=[],
    )  # fmt: skip
    (work / "prepared.json").write_text(prepared.model_dump_json())
    (work / "stamp.json").write_text(json.dumps(_stamp(job, spec, calibration)))


def test_a_child_that_is_killed_costs_the_artifact_in_hand(make: Make, tmp_path: Path) -> None:
    killed = []

    def kill(what: str, done: int, total: int) -> None:
        children = [c for c in psutil.Process().children() if "edgeq.export.child" in c.cmdline()]
        if "fp32" in what and not killed:
            killed.append(what)
            children[0].send_signal(signal.SIGKILL)

    found = _run(make(), kill)
    assert killed
    assert _outcomes(found) == {"fp32": "failed", "fp16": "exported"}
    reason = found["fp32"].manifest.reason
    assert reason is not None
    assert reason.code == "killed"
    manifest = read_manifest(tmp_path / "models/net/artifacts/onnxruntime/fp32.json")
    assert manifest.status == "failed"
    assert not (tmp_path / "models/net/artifacts/onnxruntime/fp32.onnx").exists()
    assert _outcomes(_run(make())) == {"fp32": "exported", "fp16": "unchanged"}, "a failure is tried again"


def test_weights_that_do_not_fit_stop_the_export(make: Make, tmp_path: Path) -> None:
    (tmp_path / "w.pth").write_bytes(b"not a state dict")
    with pytest.raises(EdgeqError) as caught:
        _run(make(weights=str(tmp_path / "w.pth")))
    assert caught.value.exit_code == 2


def test_two_exports_of_one_model_do_not_mix(make: Make) -> None:
    running = export(make(), lambda what, done, total: None)
    next(running)
    with pytest.raises(EdgeqError) as caught:
        _run(make())
    assert caught.value.code == "busy"
    running.close()


def test_a_damaged_preparation_is_made_anew(make: Make, tmp_path: Path) -> None:
    _run(make(schemes=["fp32"]))
    prepared = tmp_path / "models/net/artifacts/.work/prepared.json"
    document = json.loads(prepared.read_text())
    prepared.write_text(json.dumps({**document, "weights": "of another time"}))
    assert _outcomes(_run(make(schemes=["fp32"]))) == {"fp32": "unchanged"}


def test_families_side_by_side_and_a_stop_in_the_middle(make: Make) -> None:
    request = make(backends=["onnxruntime", "openvino"], threads=2, calibration_count=4)
    running = export(request, lambda what, done, total: None)
    first = next(running)
    running.close()
    assert not [c for c in psutil.Process().children() if "edgeq.export.child" in c.cmdline()]
    outcomes = {(o.backend, o.scheme): o.outcome for o in export(request, lambda what, done, total: None)}
    assert set(outcomes) == {(b, s) for b in ("onnxruntime", "openvino") for s in ("fp32", "fp16")}
    assert outcomes[first.backend, first.scheme] == "unchanged", "what was finished is kept"
    assert set(outcomes.values()) <= {"exported", "unchanged"}


def test_a_model_whose_package_is_missing_does_not_stop_the_others(make: Make, tmp_path: Path) -> None:
    (tmp_path / "models" / "absent").mkdir()
    text = SPEC.replace('name = "net"', 'name = "absent"').replace("tiny_source", "no_such_package")
    (tmp_path / "models" / "absent" / "model.toml").write_text(text)
    found, request = [], make(models=["absent", "net"], schemes=["fp32"])
    outcomes = export(request, lambda what, done, total: None)
    with pytest.raises(EdgeqError, match="not exported: absent") as caught:
        found.extend((outcome.model, outcome.outcome) for outcome in outcomes)
    assert found == [("net", "exported")]
    assert caught.value.code == "not-installed"
