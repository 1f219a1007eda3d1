"""microsoft/onnxruntime-inference-examples#84: DenseNet-121 quantizes, and then does not load (QLinearConcat)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export.exported import CLASSES, export, sqnr_db

torch = pytest.importorskip("torch")


class Dense(torch.nn.Module):  # type: ignore[misc]
    """Two layers whose outputs are joined with their input, as in DenseNet."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, 2, 1)
        self.first = torch.nn.Conv2d(8, 8, 3, 1, 1)
        self.second = torch.nn.Conv2d(16, 8, 3, 1, 1)
        self.linear = torch.nn.Linear(24, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = torch.cat([x, torch.relu(self.first(x))], 1)
        x = torch.cat([x, torch.relu(self.second(x))], 1)
        return self.linear(x.mean(dim=(2, 3)))


def test_concatenations_of_quantized_tensors_load_and_run(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from edgeq.backends import open_session
    from edgeq.backends.session import SessionOptions

    torch.manual_seed(0)
    made = export("onnxruntime", "int8-static", tmp_path, Dense().eval())
    session = open_session(made.manifest, made.path, SessionOptions(threads=1))
    found = np.concatenate([session.infer(sample[None]) for sample in made.samples])
    session.close()
    assert sqnr_db(found, made.logits) > 15


def test_a_file_that_does_not_load_never_counts_as_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo: Path
) -> None:
    pytest.importorskip("onnx")
    from edgeq.artifact import InputInfo
    from edgeq.export import onnxruntime
    from edgeq.export.child import Family, FamilyJob
    from edgeq.export.family import Built
    from edgeq.export.prepare import PrepareJob, prepare
    from tests.export import tiny

    folder = tmp_path / "models" / "tiny"
    folder.mkdir(parents=True)
    (folder / "model.toml").write_text(
        f'name = "tiny"\ntitle = "Tiny"\ninput_shape = [3, 32, 32]\nclasses = 10\nmacs = {tiny.MACS}\n'
        f'parameters = {tiny.PARAMETERS}\n[source]\npackage = "tests.export.tiny"\nconstructor = "tiny"\n'
        "[preprocess]\nresize = 32\ncrop = 32\nmean = [0.5, 0.5, 0.5]\nstd = [0.5, 0.5, 0.5]\n"
    )

    def broken(source: Any, scheme: str, recipe: Any, out: Path, name: str) -> Built:
        (out / f"{name}.onnx").write_bytes(b"not a graph")
        return Built([out / f"{name}.onnx"], InputInfo(shape=(3, 32, 32), layout="NCHW"))

    monkeypatch.setattr(onnxruntime, "build", broken)
    job = PrepareJob(
        models_dir=tmp_path / "models", model="tiny", weights="random", seed=0, calibration=None, calibration_count=4,
        threads=1,
    )  # fmt: skip
    prepare(job)
    manifest = Family(
        FamilyJob(prepare=job, backend="onnxruntime", schemes=["int8-static"], target="x86_64-vnni")
    ).export("int8-static")
    assert manifest.status == "failed"
    assert manifest.reason is not None
    assert manifest.reason.code == "load-failed"
    left = [path.name for path in (folder / "artifacts" / "onnxruntime").iterdir()]
    assert left == ["int8-static.x86_64-vnni.json"]
    assert json.loads((folder / "artifacts/onnxruntime" / left[0]).read_text())["status"] == "failed"
