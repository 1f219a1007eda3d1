"""Saturation probes: packaged networks whose answer is known, one a backend and int8 recipe (trap 1).

A CPU without VNNI adds two products of u8 and s8 in 16 bits, which saturate: logits are then wrong and nothing says so
(microsoft/onnxruntime#12072). Whether a framework's kernels do that here is found by running them. Each probe is a few
kB in the form that the backend loads, quantized by the exporter itself (``edgeq/export/probes.py``) and run through the
same ``Session`` as an artifact, because a check under other options hides the fault.

The network: an input of ones; 64 channels of 1.0 made of it; then one layer of every kind, each with the weights 1.0 and
0.98 in turn (scaled where a layer has not 64 of them), so that every output is 32 x 1.0 + 32 x 0.98 = 63.36. The ranges
are those of inputs 0 and 1, so both factors of every product stand at the end of their grid: the worst case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeq.artifact import ANY_TARGET, CalibrationInfo, FileEntry, InputInfo, Layer, Manifest, Reference, WeightsInfo
from edgeq.backends import open_session
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

if TYPE_CHECKING:  # numpy too is imported where a probe runs: `edgeq doctor` reads no more than the lists here
    from edgeq.backends.session import Array, Effective, Session

FILES = Path(__file__).parent / "probe_files"

CHANNELS, HEIGHT, WIDTH = 3, 16, 16
#: Inner channels, and how many of them each dense layer gives; channels of a second, wider depthwise layer.
INNER, OUTPUTS, WIDE = 64, 16, 128
#: Weights in turn, and what they make of ``INNER`` ones.
WEIGHTS = (1.0, 0.98)
EXPECTED = INNER * sum(WEIGHTS) / 2
#: Kinds of layer, in the order of the network's outputs, and the number of outputs of each. Signed inputs (as after a
#: layer without ReLU) have a zero point of their own, and take other kernels in some frameworks. A depthwise layer of more
#: than 100 channels is another one to PyTorch's x86 engine: it goes to FBGEMM, which saturates, VNNI or not (torch 2.14,
#: where its input is padded as it is in most networks).
PATHS = {
    "1x1 convolution": OUTPUTS,
    "1x1 convolution of signed inputs": OUTPUTS,
    "3x3 convolution": OUTPUTS,
    "depthwise convolution": INNER,
    "wide depthwise convolution": WIDE,
    "linear layer": OUTPUTS,
}
#: Three steps of the coarsest grid in use (7 bits from 0 to 63.36): one each for the rounding of weights, inputs and
#: outputs. Saturation takes nearly half away: 255 x (127 + 124) clipped to 32767.
TOLERANCE = 3 * EXPECTED / 127


@dataclass(frozen=True)
class Known:
    """One packaged probe."""

    scheme: str
    words: str
    """The recipe in a reader's words, such as ``u8 x s8``."""
    suffix: str
    """Of the file that a session loads."""
    details: dict[str, Any] = field(default_factory=dict)
    """What a manifest's ``details`` say where this recipe was used; a key that a manifest has not counts as False."""


_ORT = ".onnx"
PROBES: Mapping[str, Mapping[str, Known]] = {
    "openvino": {
        "fp16": Known("fp16", "float16", ".xml"),
        "int8-static-nofix": Known("int8-static", "no overflow fix", ".xml", {"overflow_fix": "disable"}),
        "int8-static-first": Known(
            "int8-static", "first layer's weights of 7 bits", ".xml", {"overflow_fix": "first_layer_only"}
        ),
        "int8-static-fix": Known("int8-static", "all weights of 7 bits", ".xml", {"overflow_fix": "enable"}),
        "int8-dynamic": Known("int8-dynamic", "compressed weights", ".xml"),
    },
    "tflite": {
        "fp16": Known("fp16", "float16", ".tflite"),
        "int8-static": Known("int8-static", "s8 x s8", ".tflite"),
        "int8-dynamic": Known("int8-dynamic", "s8 x s8", ".tflite"),
    },
    "onnxruntime": {
        # Aarch64's recipe: the only one that asks ONNX Runtime for float16 operators.
        "fp16": Known("fp16", "float16", _ORT, {"method": "convert_float_to_float16"}),
        "int8-static-u8s8": Known("int8-static", "u8 x s8", _ORT, {"activations": "uint8", "weights": "int8"}),
        "int8-static-u8u8": Known("int8-static", "u8 x u8", _ORT, {"activations": "uint8", "weights": "uint8"}),
        "int8-static-s8s8": Known("int8-static", "s8 x s8", _ORT, {"activations": "int8", "weights": "int8"}),
        "int8-static-u8s7": Known(
            "int8-static", "u8 x s8 of 7 bits", _ORT, {"activations": "uint8", "weights": "int8", "reduce_range": True}
        ),
        "int8-dynamic": Known("int8-dynamic", "u8 x u8", _ORT),
    },
    "pytorch": {
        "fp16": Known("fp16", "float16", ".pt"),
        "int8-static-onednn": Known(
            "int8-static", "oneDNN engine, u8 x s8", ".pt", {"engine": "onednn", "activation_bits": 8}
        ),
        "int8-static-x86-8bit": Known(
            "int8-static", "x86 engine, u8 x s8", ".pt", {"engine": "x86", "activation_bits": 8}
        ),
        "int8-static-x86-7bit": Known(
            "int8-static", "x86 engine, u8 of 7 bits x s8", ".pt", {"engine": "x86", "activation_bits": 7}
        ),
        "int8-static-qnnpack": Known(
            "int8-static", "QNNPACK engine, u8 x s8", ".pt", {"engine": "qnnpack", "activation_bits": 8}
        ),
        "int8-dynamic": Known("int8-dynamic", "u8 x s8", ".pt"),
    },
}  # fmt: skip

_ANYWHERE = ("x86_64", "x86_64-vnni", "aarch64")
#: Backend → target → the int8-static recipe that ``edgeq export --target`` picks.
MADE_FOR: Mapping[str, Mapping[str, str]] = {
    "openvino": {
        "x86_64": "int8-static-first",
        "x86_64-vnni": "int8-static-nofix",
        "aarch64": "int8-static-nofix",
    },
    "tflite": dict.fromkeys(_ANYWHERE, "int8-static"),
    "onnxruntime": {"x86_64": "int8-static-u8u8", "x86_64-vnni": "int8-static-u8s8", "aarch64": "int8-static-s8s8"},
    "pytorch": {
        "x86_64": "int8-static-x86-7bit",
        "x86_64-vnni": "int8-static-onednn",
        "aarch64": "int8-static-qnnpack",
    },
}

_PIXELS, _INSIDE = HEIGHT * WIDTH, (HEIGHT - 2) * (WIDTH - 2)
#: The network's layers in execution order, for ``Session.effective``.
LAYERS = [
    Layer(name="stem", op="conv", macs=CHANNELS * INNER * _PIXELS),
    Layer(name="point", op="conv", macs=INNER * OUTPUTS * _PIXELS),
    Layer(name="signed_stem", op="conv", macs=CHANNELS * INNER * _PIXELS),
    Layer(name="signed_point", op="conv", macs=INNER * OUTPUTS * _PIXELS),
    Layer(name="spatial", op="conv", macs=9 * INNER * OUTPUTS * _INSIDE),
    Layer(name="depthwise", op="depthwise", macs=9 * INNER * _PIXELS),
    Layer(name="wide_stem", op="conv", macs=CHANNELS * WIDE * _PIXELS),
    Layer(name="wide_depthwise", op="depthwise", macs=9 * WIDE * _PIXELS),
    Layer(name="linear", op="linear", macs=INNER * OUTPUTS),
]


@dataclass(frozen=True)
class Probed:
    """What a probe gave on this device."""

    recipe: str
    expected: float
    found: float
    """The output farthest from ``expected``; may be NaN."""
    ok: bool
    """Whether every output is within ``TOLERANCE``."""
    layer: str = ""
    """The kind of layer, of ``PATHS``, that gave ``found``."""
    wrong: tuple[str, ...] = ()
    """The kinds of layer with an output beyond ``TOLERANCE``."""


def recipes(backend: str) -> tuple[str, ...]:
    """The int8 recipes that have a probe, by name; empty for a backend without."""
    return tuple(name for name, known in PROBES.get(backend, {}).items() if known.scheme.startswith("int8"))


def words(backend: str, recipe: str) -> str:
    """The recipe for a reader: ``int8-static (u8 x s8)``. Raises ``KeyError`` for an unknown one."""
    known = PROBES[backend][recipe]
    return f"{known.scheme} ({known.words})"


def recipe_of(manifest: Manifest) -> str | None:
    """The probe that belongs to an artifact: the same backend, scheme and number formats, by its manifest's details.

    None for a float scheme, and where the artifact was made by a recipe that has no probe.
    """
    alike = {
        name: PROBES[manifest.backend][name]
        for name in recipes(manifest.backend)
        if PROBES[manifest.backend][name].scheme == manifest.scheme
    }
    # Every detail by which any of them is told from another must be the same: a new number format is not an old one.
    telling = {key for known in alike.values() for key in known.details}
    for name, known in alike.items():
        if all(manifest.details.get(key, False) == known.details.get(key, False) for key in telling):
            return name
    return None


def probe(backend: str, recipe: str, threads: int) -> Probed:
    """Runs the packaged probe with the session options of a real cell on ``threads`` threads.

    Raises:
        EdgeqError: there is no such probe (code ``no-probe``), its file is not installed (``no-artifact``), or whatever
            ``open_session`` raises.
    """
    session = _open(backend, recipe, threads)
    try:
        logits = session.infer(_ones(session.input))
    finally:
        session.close()
    return judge(recipe, logits)


def computes(backend: str, name: str, threads: int) -> Effective:
    """What the backend executes of a packaged probe: here, ``fp16`` is a name too. Raises as ``probe`` does."""
    session = _open(backend, name, threads)
    try:
        return session.effective()
    finally:
        session.close()


def judge(recipe: str, logits: Array) -> Probed:
    """The verdict on the network's output, ``[1, sum of PATHS]``; a value that is not a number is wrong."""
    import numpy as np

    worst, bounds = {}, np.cumsum(list(PATHS.values()))[:-1]
    for path, values in zip(PATHS, np.split(logits[0].astype(float), bounds), strict=True):
        error = np.nan_to_num(np.abs(values - EXPECTED), nan=np.inf)
        worst[path] = (float(error.max()), float(values[error.argmax()]))
    wrong = tuple(path for path, (error, _) in worst.items() if error > TOLERANCE)
    layer = max(worst, key=lambda path: worst[path][0])
    return Probed(recipe, EXPECTED, worst[layer][1], not wrong, layer, wrong)


def cure_target(target: str | None) -> str:
    """The target whose recipes do not count on VNNI, for a device of ``target``."""
    return "aarch64" if target == "aarch64" else "x86_64"


def probe_note(backend: str, probed: Probed, target: str | None) -> Note:
    """The warning of a wrong answer, whose hint is the cure where there is one.

    Args:
        backend: Whose probe it was.
        probed: A result that is not ``ok``.
        target: The **device's** target (``edgeq.host.cpu.target``); None where it has none.
    """
    text = (
        f"{words(backend, probed.recipe)}: a {probed.layer} whose answer is {probed.expected:.2f} gives "
        f"{probed.found:.2f} on this device; so do artifacts quantized like it"
    )
    if 0 < probed.found < probed.expected:
        text = text.replace("; so do", ": products saturate in 16 bits; so do")
    return Note(code="saturation", text=text, hint=_cure(backend, probed.recipe, target))


def _cure(backend: str, recipe: str, target: str | None) -> str:
    scheme, cure = PROBES[backend][recipe].scheme, cure_target(target)
    if scheme != "int8-static":
        return f"{scheme} has no other recipe in {backend}: use int8-static, or trust what the accuracy says"
    if target is not None and recipe not in MADE_FOR[backend].values():
        cure = target  # a recipe that export picked once
    better = MADE_FOR[backend][cure]
    if recipe == better:
        return (
            f"this is already the recipe for {cure} ({PROBES[backend][recipe].words}), chosen by measured accuracy: "
            "judge the cell by its accuracy and its agreement with fp32, or use another backend"
        )
    command = f"run: edgeq export --backend {backend} --scheme {scheme} --target {cure}"
    if target not in (None, cure):
        command += f", then remove the artifact for {target}, which this device would be given first"
    return command


def _ones(info: InputInfo) -> Array:
    import numpy as np

    return np.ones((1, *info.shape), np.float32)


def _open(backend: str, name: str, threads: int) -> Session:
    from edgeq.backends.session import SessionOptions

    manifest, path = packaged(backend, name)
    return open_session(manifest, path, SessionOptions(threads=threads))


def packaged(backend: str, name: str) -> tuple[Manifest, Path]:
    """A packaged probe as an artifact: a manifest made up for the session, and the file to load.

    Raises:
        EdgeqError: there is no such probe (code ``no-probe``), or its file is not installed (``no-artifact``).
    """
    known = PROBES.get(backend, {}).get(name)
    if known is None:
        raise EdgeqError(f"no probe {name!r} for {backend}", "edgeq has none", "run: edgeq doctor", code="no-probe")
    path = FILES / f"{backend}-{name}{known.suffix}"
    if not path.is_file():
        raise EdgeqError(f"{path} is missing", "it comes with edgeq", "install edgeq anew", code="no-artifact")
    entry = FileEntry(name=path.name, sha256="", bytes=path.stat().st_size)
    return manifest_of(backend, known.scheme, known.details).model_copy(update={"files": [entry]}), path


def manifest_of(backend: str, scheme: str, details: Mapping[str, Any]) -> Manifest:
    """The manifest of the network, quantized by a recipe with ``details``."""
    return made_up("probe", backend, scheme, details, (CHANNELS, HEIGHT, WIDTH), sum(PATHS.values()), LAYERS)


def made_up(
    model: str,
    backend: str,
    scheme: str,
    details: Mapping[str, Any],
    shape: tuple[int, int, int],
    classes: int,
    layers: list[Layer],
) -> Manifest:
    """The manifest of a packaged network, as far as a session needs one: no files, no reference, no source.

    ``shape`` is a sample's: channels, height, width.
    """
    channels, height, width = shape
    if backend == "tflite":
        info = InputInfo(shape=(height, width, channels), layout="NHWC")
    else:
        info = InputInfo(shape=shape, layout="NCHW")
    return Manifest(
        model=model,
        backend=backend,
        scheme=scheme,
        target=ANY_TARGET,
        status="ok",
        key="",
        weights=WeightsInfo(kind="file", name=model, sha256=""),
        calibration=CalibrationInfo(kind="synthetic", count=2, seed=0, sha256=""),
        details=dict(details),
        input=info,
        classes=classes,
        reference=Reference(file="", sha256=""),
        layers=layers,
    )
