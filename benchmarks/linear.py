"""An artifact and samples so small that 50,000 of them are a matter of seconds: a linear layer over means of pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgeq.artifact import CalibrationInfo, FileEntry, InputInfo, Manifest, Reference, WeightsInfo, write_manifest
from edgeq.data.samples import FileSource, SampleSet
from edgeq.files import sha256_file
from edgeq.spec.model import Preprocess
from edgeq.spec.names import OFFLINE, Cell

SIDE, CLASSES = 32, 1000
CELL = Cell("linear", "onnxruntime", "fp32", OFFLINE)
#: Pixels a side that become one mean: the layer has 48 inputs.
_POOL = 8
_CELLS = SIDE // _POOL


def write_artifact(models: Path) -> tuple[Path, Manifest]:
    """Writes the ONNX file, its reference and its manifest; returns the manifest's path, and the manifest."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((CLASSES, 3 * _CELLS * _CELLS), np.float32)
    samples = rng.standard_normal((2, 3, SIDE, SIDE), np.float32)
    folder = models / CELL.model / "artifacts" / CELL.backend
    folder.mkdir(parents=True)
    file, reference = folder / f"{CELL.scheme}.onnx", folder.parent / "reference.npz"
    _write_onnx(file, weights)
    means = samples.reshape(2, 3, _CELLS, _POOL, _CELLS, _POOL).mean(axis=(3, 5))
    np.savez(reference, samples=samples, logits=means.reshape(2, -1) @ weights.T)
    manifest = Manifest(
        model=CELL.model,
        backend=CELL.backend,
        scheme=CELL.scheme,
        target="any",
        status="ok",
        files=[FileEntry(name=file.name, sha256=sha256_file(file), bytes=file.stat().st_size)],
        key="linear",
        weights=WeightsInfo(kind="random", name="random, seed 0", sha256="", seed=0),
        calibration=CalibrationInfo(kind="synthetic", count=0, seed=0, sha256=""),
        input=InputInfo(shape=(3, SIDE, SIDE), layout="NCHW", batch=None),
        classes=CLASSES,
        reference=Reference(file=f"../{reference.name}", sha256=sha256_file(reference)),
    )
    path = folder / f"{CELL.scheme}.json"
    write_manifest(path, manifest)
    return path, manifest


def _write_onnx(path: Path, weights: npt.NDArray[np.float32]) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    pool = [_POOL, _POOL]
    nodes = [
        helper.make_node("AveragePool", ["x"], ["means"], kernel_shape=pool, strides=pool),
        helper.make_node("Flatten", ["means"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w"], ["y"], transB=1),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", CLASSES])]
    graph = helper.make_graph(nodes, CELL.model, inputs, outputs, [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def write_samples(path: Path, count: int) -> SampleSet:
    """``count`` samples of noise, each another, in a file such as ``edgeq run --dataset`` keeps, with labels by chance."""
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (count, SIDE, SIDE, 3), np.uint8)
    np.save(path, pixels)
    half = (0.5, 0.5, 0.5)
    return SampleSet(
        kind="folder",
        path=str(path),
        preprocess=Preprocess(resize=SIDE, crop=SIDE, mean=half, std=half),
        size=(SIDE, SIDE),
        preprocessing="as is",
        source=FileSource(path, path.stat().st_size - pixels.nbytes, count, (SIDE, SIDE)),
        rows=range(count),
        labels=rng.integers(0, CLASSES, count),
        labelling="by chance",
    )
