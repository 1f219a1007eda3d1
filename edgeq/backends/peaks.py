"""Networks that are all arithmetic, to measure the most that this machine computes (see ``edgeq/run/peaks.py``).

Two, packaged in the form that each backend loads, exported by its own exporter (``edgeq/export/peaks.py``) and run
through the same ``Session`` as an artifact. Floats: 1x1 convolutions, which no library computes by Winograd's algorithm,
whose fewer multiplications would pass for a higher peak. int8: 3x3 convolutions, which nothing computes so in int8, and
whose longer sums (2304 products) come nearer to the limit; without padding, since a kernel may leave out the products of the
border. Channels and pixels are as many as kernels like, and few enough that activations stay in a cache of 1 MB.

Measured on a core of a Zen 4 at 3.69 GHz, whose limits are 16 fp32 and 64 int8 multiply-adds a cycle (59 and 236 GMAC/s,
which a loop of nothing but VFMADD231PS and VPDPBUSD reaches): fp32 97 % of that by TFLite, ONNX Runtime 95 %, OpenVINO
93 %, PyTorch 82 %; int8 96 % by ONNX Runtime, TFLite 94 %, OpenVINO 91 %, PyTorch 89 %. 1x1 convolutions of 256 to 1024
channels gave 86 to 93 % in int8; numpy's matrix product 90 % in fp32.

Packed by gzip: the weights repeat, so that 2 MB of them take a few kB.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeq.artifact import FileEntry, Layer, Manifest
from edgeq.backends import open_session, probes
from edgeq.peaks import lacks_half
from edgeq.spec.errors import EdgeqError

if TYPE_CHECKING:
    from edgeq.backends.session import Session

FILES = Path(__file__).parent / "peak_files"
PACKED = ".gz"

#: Numbers of input channels and outputs, which hardly count, and of channels within.
INPUTS, OUTPUTS, CHANNELS = 3, 8, 256


@dataclass(frozen=True)
class Shape:
    """A stack of ``layers`` convolutions of ``kernel`` x ``kernel``, without padding, on ``size`` x ``size`` pixels."""

    size: int
    layers: int
    kernel: int

    def macs(self) -> list[Layer]:
        """Its layers in execution order, for ``Session.effective``."""
        found = [Layer(name="stem", op="conv", macs=INPUTS * CHANNELS * self.size**2)]
        for index in range(self.layers):
            side = self.size - (index + 1) * (self.kernel - 1)
            found.append(Layer(name=f"body.{index}", op="conv", macs=(CHANNELS * self.kernel * side) ** 2))
        return [*found, Layer(name="head", op="linear", macs=CHANNELS * OUTPUTS)]


POINT, SPATIAL = Shape(size=14, layers=8, kernel=1), Shape(size=18, layers=3, kernel=3)

_X86, _ARM = frozenset({"x86"}), frozenset({"arm"})
_ANY = _X86 | _ARM


@dataclass(frozen=True)
class Net:
    """One packaged network."""

    scheme: str
    suffix: str
    """Of the file that a session loads."""
    cpus: Set[str] = _ANY
    """Families (``edgeq.host.cpu.family``) on which this recipe may be the fastest."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Of the manifest."""

    @property
    def shape(self) -> Shape:
        return SPATIAL if self.scheme.startswith("int8") else POINT


def _like(backend: str, name: str, cpus: Set[str] = _ANY) -> Net:
    """Made by the recipe of the saturation probe ``name``. That a kernel saturates makes it no slower."""
    known = probes.PROBES[backend][name]
    return Net(known.scheme, known.suffix, cpus, known.details)


#: TFLite's fp16 is fp32 everywhere: the session's interpreter widens the weights as it loads them.
NETS: Mapping[str, Mapping[str, Net]] = {
    "openvino": {
        "fp32": Net("fp32", ".xml"),
        "fp16": _like("openvino", "fp16"),
        "int8-static-nofix": _like("openvino", "int8-static-nofix"),
    },
    "tflite": {
        "fp32": Net("fp32", ".tflite"),
        "int8-static": _like("tflite", "int8-static"),
    },
    "onnxruntime": {
        "fp32": Net("fp32", ".onnx"),
        "fp16": _like("onnxruntime", "fp16"),
        "int8-static-u8s8": _like("onnxruntime", "int8-static-u8s8", _X86),
        "int8-static-s8s8": _like("onnxruntime", "int8-static-s8s8", _ARM),
    },
    "pytorch": {
        "fp32": Net("fp32", ".pt"),
        "fp16": _like("pytorch", "fp16"),
        "int8-static-x86-8bit": _like("pytorch", "int8-static-x86-8bit", _X86),
        "int8-static-onednn": _like("pytorch", "int8-static-onednn", _X86),
        "int8-static-qnnpack": _like("pytorch", "int8-static-qnnpack", _ARM),
    },
}

#: A library that is no backend, and whose matrix product is measured beside them.
NUMPY = "numpy"
#: Rows and columns of its matrices, three of which take 3 MB.
SIDE = 512


def fitting(backend: str, family: str, isa: Set[str]) -> list[str]:
    """The networks of ``backend`` to measure on a CPU of ``family``; of ``numpy`` its one product, ``fp32``.

    Without arithmetic in half precision fp16 is left out: PyTorch's reference kernels would take seconds for an inference.
    """
    if backend == NUMPY:
        return ["fp32"]
    found = {name: net for name, net in NETS.get(backend, {}).items() if family in net.cpus}
    return [name for name, net in found.items() if net.scheme != "fp16" or not lacks_half(isa)]


def files_of(backend: str) -> list[Path]:
    """The packaged files of ``backend``."""
    return sorted(FILES.glob(f"{backend}-*{PACKED}"))


def unpacked(backend: str, name: str, folder: Path) -> tuple[Manifest, Path]:
    """A packaged network as an artifact in ``folder``: a manifest made up for the session, and the file to load.

    Raises:
        EdgeqError: its files are not installed (code ``no-artifact``).
    """
    net = NETS[backend][name]
    stem = f"{backend}-{name}"
    found = [file for file in files_of(backend) if file.name.split(".")[0] == stem]
    path = folder / f"{stem}{net.suffix}"
    for packed in found:
        with gzip.open(packed) as source, (folder / packed.name.removesuffix(PACKED)).open("wb") as target:
            shutil.copyfileobj(source, target)
    if not path.is_file():
        raise EdgeqError(
            f"{FILES / path.name} is missing", "it comes with edgeq", "install edgeq anew", code="no-artifact"
        )
    entry = FileEntry(name=path.name, sha256="", bytes=path.stat().st_size)
    return manifest_of(backend, name).model_copy(update={"files": [entry]}), path


def manifest_of(backend: str, name: str) -> Manifest:
    """The manifest of a packaged network, without its files."""
    net = NETS[backend][name]
    shape = net.shape
    side = (INPUTS, shape.size, shape.size)
    return probes.made_up("peak", backend, net.scheme, net.details, side, OUTPUTS, shape.macs())


@dataclass(frozen=True)
class Runnable:
    """Something to time."""

    run: Callable[[int], None]
    """Computes so many samples, on all threads."""
    macs: int
    """Multiply-adds of one sample."""
    executed: dict[str, float]
    """Precision → share of the multiply-adds, as the framework itself says."""
    library: str
    close: Callable[[], None]


def open_net(backend: str, name: str, threads: int, folder: Path) -> Runnable:
    """The packaged network in a session of ``threads`` streams of one thread, the form in which no thread waits for another.

    Raises:
        EdgeqError: as ``unpacked`` and ``edgeq.backends.open_session`` do.
    """
    import numpy as np

    from edgeq.backends.session import SessionOptions

    manifest, path = unpacked(backend, name, folder)
    session: Session = open_session(manifest, path, SessionOptions(threads=threads, streams=threads))
    sample = np.random.default_rng(0).standard_normal(session.input.shape).astype(np.float32)
    return Runnable(
        run=lambda count: session.infer_many([sample] * count, lambda _position, _logits: None),
        macs=sum(layer.macs for layer in manifest.layers),
        executed=session.effective().macs,
        library=backend,
        close=session.close,
    )


def open_numpy(threads: int) -> Runnable:
    """numpy's matrix product of fp32, by ``threads`` threads at once. Its BLAS must have been told to use one for each."""
    import numpy as np

    from edgeq.backends.pool import StreamPool

    left, right = np.random.default_rng(0).standard_normal((2, SIDE, SIDE), np.float32)
    results = np.empty((threads, SIDE, SIDE), np.float32)
    pool = StreamPool(threads)
    config: Any = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {}).get("name", "BLAS unknown")

    def multiply(stream: int, _: int) -> Any:
        return np.matmul(left, right, out=results[stream])

    return Runnable(
        run=lambda count: pool.run(count, multiply, lambda _position, _result: None),
        macs=SIDE**3,
        executed={"fp32": 1.0},
        library=f"{NUMPY} ({blas})",
        close=pool.close,
    )
