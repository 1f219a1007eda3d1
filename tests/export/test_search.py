"""``--max-top1-drop`` and the sweep, with a network that one layer in int8 ruins, through real child processes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from edgeq.artifact import Manifest, read_manifest
from edgeq.cli.main import cli
from edgeq.export.job import ExportRequest, export
from edgeq.export.sweep import Row, SweepRequest, sweep, total_rows
from edgeq.spec.errors import EdgeqError, RequestError
from edgeq.spec.quantization import QuantizationOptions
from tests.model_folders import model_toml

torch = pytest.importorskip("torch")

NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 4, stride=4)
        self.bad = torch.nn.Conv2d(8, 8, 1)
        self.fc = torch.nn.Linear(8, 10)

    def forward(self, x):
        x = torch.relu(self.bad(torch.relu(self.stem(x))))
        return self.fc(x.mean(dim=(2, 3)))
"""
SPEC = model_toml("net", "tiny_source", "Net", macs=28752, parameters=554)
IMAGES, CALIBRATED = 90, 8
Make = Callable[..., ExportRequest]


def network() -> Any:
    """Its layer ``bad`` has large weights on a channel that is always zero, so that int8 rounds the others to three steps."""
    scope: dict[str, Any] = {}
    exec(NET, scope)
    torch.manual_seed(3)
    module = scope["Net"]().eval()
    with torch.no_grad():
        module.stem.weight.mul_(3)
        module.stem.bias[7] = -100.0
        module.bad.weight.mul_(0.02)
        module.bad.bias.mul_(0.02)
        module.bad.weight[:, 7] = 1.4
        module.fc.weight.mul_(200)
    return module


def _write_images(folder: Path, module: Any) -> None:
    """Pictures whose labels are what the float network says, clearly; its biases are set so that the classes vary."""
    from PIL import Image

    generator = np.random.default_rng(0)
    folder.mkdir()
    colours = generator.integers(20, 236, (20 * IMAGES, 1, 1, 3)) + generator.integers(
        -20, 20, (20 * IMAGES, 32, 32, 3)
    )
    pixels = colours.astype(np.uint8)
    batch = torch.from_numpy(pixels.transpose(0, 3, 1, 2).astype(np.float32)) / 127.5 - 1
    with torch.no_grad():
        module.fc.bias -= module(batch).mean(dim=0)
        logits = module(batch)
    best = logits.topk(2).values
    margins, classes = best[:, 0] - best[:, 1], logits.argmax(1)
    common = classes.bincount(minlength=10).argsort(descending=True)[:3].tolist()
    clear = [
        row for kind in common for row in (margins * (classes == kind)).argsort(descending=True)[: IMAGES // 3].tolist()
    ]
    labels = classes[clear].tolist()
    assert len(set(labels)) == 3
    for index, row in enumerate(clear):
        Image.fromarray(pixels[row]).save(folder / f"{index:03}.png")
    (folder / "val_map.txt").write_text("".join(f"{i:03}.png {label}\n" for i, label in enumerate(labels)))


@pytest.fixture
def make(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    from safetensors.torch import save_file

    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "tiny_source.py").write_text(NET)
    (tmp_path / "models" / "net").mkdir(parents=True)
    (tmp_path / "models" / "net" / "model.toml").write_text(SPEC)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'src'}:{repo}")
    monkeypatch.setenv("EDGEQ_CACHE", str(tmp_path / "cache"))
    module = network()
    _write_images(tmp_path / "images", module)
    save_file(module.state_dict(), tmp_path / "w.safetensors")

    def request(**changes: Any) -> ExportRequest:
        fields: dict[str, Any] = {
            "models_dir": tmp_path / "models", "models": ["net"], "backends": ["onnxruntime"],
            "schemes": ["int8-static"], "weights": str(tmp_path / "w.safetensors"), "target": "x86_64-vnni",
            "threads": 1, "calibration": tmp_path / "images", "calibration_count": CALIBRATED, "max_top1_drop": 1.0,
            "selection_count": 50,
        }  # fmt: skip
        return ExportRequest(**{**fields, **changes})

    return request


def run(request: ExportRequest) -> dict[str, Manifest]:
    return {outcome.scheme: outcome.manifest for outcome in export(request, lambda what, done, total: None)}


def codes(manifest: Manifest) -> set[str]:
    return {note.code for note in manifest.warnings}


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino", "pytorch", "tflite"])
def test_the_one_layer_that_ruins_int8_stays_in_float(make: Make, backend: str) -> None:
    pytest.importorskip({"openvino": "nncf", "tflite": "litert_torch", "pytorch": "torch"}.get(backend, backend))
    manifest = run(make(backends=[backend]))["int8-static"]
    assert manifest.status == "ok", manifest.reason
    found = manifest.search
    assert found is not None
    assert found.reached
    assert found.float_layers[0] == "bad"
    assert found.float_layers == manifest.details["kept_float"]
    assert found.fp32_top1 == 1.0
    assert found.top1_before < 0.9
    assert found.top1 >= 0.99
    kept = sum(layer.macs for layer in manifest.layers if layer.name in found.float_layers)
    assert found.float_macs == pytest.approx(kept / 28752)
    assert found.drop_interval[0] <= found.drop <= found.drop_interval[1]
    assert found.latency_ratio is not None
    assert manifest.check is not None
    assert manifest.check.quantized_macs == pytest.approx(1 - kept / 28752)
    assert "layers-kept-in-float" in codes(manifest)


def test_images_that_chose_the_layers_are_not_those_calibrated_on_and_are_told(make: Make, tmp_path: Path) -> None:
    manifest = run(make())["int8-static"]
    assert manifest.selection is not None
    assert manifest.selection.count == len(set(manifest.selection.images)) == 50
    assert not set(manifest.selection.images) & set(manifest.calibration.images)
    assert manifest.seen_images == set(manifest.selection.images) | set(manifest.calibration.images)
    assert "few-selection-images" in codes(manifest), "50 images can't tell one point"


def test_the_same_request_has_nothing_to_do_and_another_limit_has(make: Make) -> None:
    def outcomes(**changes: Any) -> list[str]:
        return [outcome.outcome for outcome in export(make(**changes), lambda what, done, total: None)]

    assert outcomes() == ["exported"]
    assert outcomes() == ["unchanged"]
    assert outcomes(max_top1_drop=2.0) == ["exported"]
    assert outcomes(max_top1_drop=None) == ["exported"]


def test_what_needs_no_layer_in_float_keeps_none(make: Make) -> None:
    manifest = run(make(options=QuantizationOptions(float_layers=("bad",))))["int8-static"]
    assert manifest.search is not None
    assert manifest.search.float_layers == []
    assert manifest.search.trials == 1
    assert manifest.details["kept_float"] == ["bad"]


def test_int8_dynamic_is_searched_too_and_fp32_is_not(make: Make) -> None:
    found = run(make(schemes=["fp32", "int8-dynamic"]))
    assert found["fp32"].search is None
    assert found["fp32"].selection is None
    search = found["int8-dynamic"].search
    assert search is not None
    assert search.float_layers == ["bad"]


def test_a_limit_out_of_reach_keeps_the_best_and_says_so(make: Make, tmp_path: Path) -> None:
    """Labels that the float network gets wrong where any rounding shows would be noise; a negative limit can't hold."""
    manifest = run(make(max_top1_drop=-50.0))["int8-static"]
    assert manifest.status == "ok"
    assert manifest.search is not None
    assert not manifest.search.reached
    assert manifest.search.top1 >= 0.99
    assert "top1-drop-not-reached" in codes(manifest)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"calibration": None}, "no-labels"),
        ({"calibration_count": IMAGES}, "no-selection-images"),
        ({"options": QuantizationOptions(method="octav")}, "not-offered"),
        ({"options": QuantizationOptions(float_layers=("worse",))}, "unknown-name"),
    ],
)
def test_wrong_requests_are_refused(make: Make, changes: dict[str, Any], code: str) -> None:
    with pytest.raises(EdgeqError) as caught:
        run(make(**changes))
    assert caught.value.code == code
    assert caught.value.exit_code == 2


def test_images_without_labels_are_refused(make: Make, tmp_path: Path) -> None:
    (tmp_path / "images" / "val_map.txt").unlink()
    with pytest.raises(EdgeqError) as caught:
        run(make())
    assert caught.value.code == "no-labels"


def sweep_request(make: Make, tmp_path: Path, **changes: Any) -> SweepRequest:
    asked = make()
    assert asked.calibration is not None
    fields: dict[str, Any] = {
        "models_dir": asked.models_dir, "models": asked.models, "backends": asked.backends, "schemes": asked.schemes,
        "methods": ["min-max", "mse"], "granularities": ["per-channel"], "counts": [4, 8], "weights": asked.weights,
        "calibration": asked.calibration, "dataset": asked.calibration, "target": asked.target, "threads": 1,
        "work": tmp_path / "work",
    }  # fmt: skip
    return SweepRequest(**{**fields, **changes})


def test_a_sweep_judges_all_on_the_same_images_and_goes_on(make: Make, tmp_path: Path) -> None:
    request = sweep_request(make, tmp_path)
    told: list[str] = []
    rows = list(sweep(request, lambda what, done, total: told.append(what)))
    assert len(rows) == total_rows(request) == 5
    assert [(row.method, row.count, row.status) for row in rows[1:]] == [
        ("min-max", 4, "ok"), ("min-max", 8, "ok"), ("mse", 4, "not-offered"), ("mse", 8, "not-offered"),
    ]  # fmt: skip
    assert {row.n for row in rows if row.status == "ok"} == {IMAGES - 8}
    fp32, best = rows[0], rows[2]
    assert (fp32.scheme, fp32.top1) == ("fp32", 1.0)
    assert best.top1 == best.agreement, "labels are what fp32 says"
    assert best.drop is not None
    assert best.default
    assert not (tmp_path / "models/net/artifacts").exists(), "the artifacts that are measured are left alone"
    told.clear()
    again = list(sweep(request, lambda what, done, total: told.append(what)))
    assert again == rows
    assert not [what for what in told if "judging" in what or "int8" in what], "nothing was made anew"


def test_a_choice_that_fails_is_a_row(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import edgeq.export.sweep as module

    kept = module.export_family

    def failing(job: Any, *rest: Any) -> Any:
        for manifest in kept(job, *rest):
            reason = module.RequestError("it broke", "a tool said no", "")
            note = module_note(reason)
            yield (
                manifest
                if manifest.scheme == "fp32"
                else manifest.model_copy(update={"status": "failed", "reason": note})
            )

    monkeypatch.setattr(module, "export_family", failing)
    rows = list(sweep(sweep_request(make, tmp_path, methods=["min-max"], counts=[4]), lambda *_: None))
    assert [(row.status, "a tool said no" in row.text) for row in rows] == [("ok", False), ("failed", True)]


def module_note(error: RequestError) -> Any:
    from edgeq.spec.note import Note

    return Note.of(error)


def test_the_command_prints_json_and_writes_csv(make: Make, tmp_path: Path) -> None:
    request = sweep_request(make, tmp_path)
    arguments = [
        "sweep", "calibration", "--models", str(request.models_dir), "--backend", "onnxruntime", "--method", "default",
        "--granularity", "default", "--count", "4", "--weights", request.weights, "--target", "x86_64-vnni",
        "--calibration", str(request.calibration), "--threads", "1", "--work", str(request.work),
        "--csv", str(tmp_path / "rows.csv"), "--json",
    ]  # fmt: skip
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    assert done.return_value == 0
    rows = [Row.model_validate(row) for row in json.loads(done.stdout)]
    assert [(row.scheme, row.method) for row in rows] == [("fp32", None), ("int8-static", "min-max")]
    with (tmp_path / "rows.csv").open() as stream:
        assert [line["scheme"] for line in csv.DictReader(stream)] == ["fp32", "int8-static"]
    table = CliRunner().invoke(cli, arguments[:-1], catch_exceptions=False, standalone_mode=False)
    assert "min-max *" in table.stdout
    with pytest.raises(RequestError):
        CliRunner().invoke(cli, [*arguments, "--count", "0"], catch_exceptions=False, standalone_mode=False)


def test_export_says_what_the_search_found(make: Make, tmp_path: Path) -> None:
    request = make()
    arguments = [
        "export", "--out", str(request.models_dir), "--backend", "onnxruntime", "--scheme", "int8-static",
        "--weights", request.weights, "--calibration", str(request.calibration), "--calibration-count", "8",
        "--target", "x86_64-vnni", "--threads", "1", "--max-top1-drop", "1", "--selection-count", "50",
    ]  # fmt: skip
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    assert done.return_value == 0
    assert "1 of 3 layers" in done.stderr
    written = read_manifest(request.models_dir / "net/artifacts/onnxruntime/int8-static.x86_64-vnni.json")
    assert written.search is not None
