"""A folder of models with one, ``small``, exported for one framework."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edgeq.artifact import Check, Reference, artifacts_dir, write_manifest
from edgeq.files import sha256_file
from edgeq.spec.note import Note
from tests.export import exported
from tests.model_folders import model_toml

CHECK = Check(n=4, sqnr_db=30, max_rel_error=0, top1_agreement=1, macs={}, quantized_macs=1, size_ratio=None)
EXPORTS_WARNING = Note(code="low-agreement", text="said by the exporter")


#: What the export takes.
_TOOLS = {
    "onnxruntime": ("torch", "onnx", "onnxruntime", "onnxconverter_common"),
    "tflite": ("torch", "litert_torch", "litert_quantizer"),
}


def small_models(
    factory: pytest.TempPathFactory, schemes: Sequence[str] = ("int8-static",), framework: str = "onnxruntime"
) -> Path:
    """The folder, ``small/artifacts/<framework>/<scheme>`` in it; skips where the tools are not installed."""
    for module in _TOOLS[framework]:
        pytest.importorskip(module)
    folder = factory.mktemp("models")
    backend = artifacts_dir(folder, "small") / framework
    backend.mkdir(parents=True)
    (folder / "small" / "model.toml").write_text(model_toml("small", "nowhere", "small", std=0.25))
    for scheme in schemes:
        made = exported.export(framework, scheme, factory.mktemp("small"))
        made.path.rename(backend / made.path.name)
        reference = backend / "reference.npz"
        samples = made.samples if made.manifest.input.layout == "NCHW" else made.samples.transpose(0, 3, 1, 2)
        np.savez(reference, samples=np.ascontiguousarray(samples[:4]), logits=made.logits[:4])
        stands = Reference(file=reference.name, sha256=sha256_file(reference))
        changes = {"reference": stands, "key": f"key of {scheme}", "check": CHECK, "warnings": [EXPORTS_WARNING]}
        write_manifest(backend / f"{scheme}.json", made.manifest.model_copy(update=changes))
    return folder


def small_images(folder: Path, count: int = 12) -> Path:
    """A labelled dataset of noise for ``small``, in ``folder``; skips without Pillow."""
    image = pytest.importorskip("PIL.Image")
    folder.mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), np.uint8)
    for number, pixels in enumerate(noise):
        image.fromarray(pixels).save(folder / f"{number}.png")
    labels = "".join(f"{number}.png {number % 10}\n" for number in range(count))
    (folder / "val_map.txt").write_text(labels)
    return folder
