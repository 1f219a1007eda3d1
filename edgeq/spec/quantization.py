"""How int8 is made: what each framework offers, written once, and what was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from edgeq.spec.errors import RequestError, nearest, unknown_name

INT8_SCHEMES = ("int8-static", "int8-dynamic")

#: How ranges are taken, by backend and scheme; the first is the default. Nothing where a scheme calibrates nothing.
#: ``docs/recipes.md`` has what each did on real weights. TFLite's ``mse`` and ``octav`` choose the ranges of weights.
METHODS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("openvino", "int8-static"): ("mean-min-max", "min-max", "median-min-max", "percentile", "mse"),
    ("openvino", "int8-dynamic"): (),
    ("tflite", "int8-static"): ("min-max", "moving-average", "mse", "octav"),
    ("tflite", "int8-dynamic"): (),  # mse and octav of weights fail on channels that are all zero, as real ones are
    ("onnxruntime", "int8-static"): ("min-max", "moving-average", "percentile", "entropy"),
    ("onnxruntime", "int8-dynamic"): (),
    ("pytorch", "int8-static"): ("mse", "min-max", "moving-average"),
    ("pytorch", "int8-dynamic"): (),
}
_BOTH = ("per-channel", "per-tensor")
#: Scales of weights: one an output channel, or one a tensor.
GRANULARITIES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("openvino", "int8-static"): _BOTH,
    ("openvino", "int8-dynamic"): ("per-channel",),  # nncf.compress_weights knows no other int8 mode
    ("tflite", "int8-static"): _BOTH,
    ("tflite", "int8-dynamic"): _BOTH,
    ("onnxruntime", "int8-static"): _BOTH,
    ("onnxruntime", "int8-dynamic"): _BOTH,
    ("pytorch", "int8-static"): _BOTH,
    ("pytorch", "int8-dynamic"): _BOTH,
}


class QuantizationOptions(BaseModel):
    """What was asked for beyond the scheme. None stands for the framework's default, the first of its table."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    method: str | None = None
    granularity: str | None = None
    float_layers: tuple[str, ...] = ()
    """Torch module names of layers that stay in float, in int8 schemes."""

    def keeping(self, layers: Sequence[str]) -> QuantizationOptions:
        """The same with ``layers`` in float as well."""
        kept = tuple(dict.fromkeys((*self.float_layers, *layers)))
        return self.model_copy(update={"float_layers": kept})


DEFAULTS = QuantizationOptions()


@dataclass(frozen=True)
class Resolved:
    """What is used for one backend and int8 scheme. ``method`` is None where nothing is calibrated."""

    method: str | None
    granularity: str
    float_layers: tuple[str, ...]

    def settings(self) -> dict[str, object]:
        """For a recipe, and so for the artifact's key and its manifest."""
        found: dict[str, object] = {"granularity": self.granularity}
        if self.method is not None:
            found["calibration_method"] = self.method
        if self.float_layers:
            found["kept_float"] = list(self.float_layers)
        return found


def resolve(options: QuantizationOptions, backend: str, scheme: str) -> Resolved:
    """What ``options`` come to. A scheme that calibrates nothing has no method, whatever was asked for.

    Raises:
        RequestError: the framework lacks it (code ``not-offered``).
        KeyError: ``scheme`` is not one of ``INT8_SCHEMES``.
    """
    methods, granularities = METHODS[backend, scheme], GRANULARITIES[backend, scheme]
    if methods and options.method not in (None, *methods):
        raise _lacks("--calibration-method", options.method, backend, scheme, METHODS)
    if options.granularity not in (None, *granularities):
        raise _lacks("--granularity", options.granularity, backend, scheme, GRANULARITIES)
    method = (options.method or methods[0]) if methods else None
    return Resolved(method, options.granularity or granularities[0], options.float_layers)


def check_options(options: QuantizationOptions, backends: Iterable[str], schemes: Iterable[str]) -> None:
    """Raises ``RequestError`` where a framework lacks what was asked for, or where nothing would come of it."""
    for kind, asked, table in (
        ("calibration method", options.method, METHODS), ("granularity", options.granularity, GRANULARITIES),
    ):  # fmt: skip
        known = {name for names in table.values() for name in names}
        if asked is not None and asked not in known:
            raise unknown_name(kind, asked, known)
    pairs = [(backend, scheme) for backend in backends for scheme in schemes if scheme in INT8_SCHEMES]
    for backend, scheme in pairs:
        resolve(options, backend, scheme)
    if options.method is not None and not any(METHODS[pair] for pair in pairs):
        raise _pointless("--calibration-method", "none of the schemes asked for takes ranges from calibration")
    if (options.granularity is not None or options.float_layers) and not pairs:
        flag = "--granularity" if options.granularity is not None else "--keep-float"
        raise _pointless(flag, "it says how int8 is made, and no int8 scheme was asked for")


def check_layers(options: QuantizationOptions, model: str, layers: Sequence[str]) -> None:
    """Raises ``RequestError`` (``unknown-name``) for a layer in ``options`` that ``model`` does not have."""
    for name in options.float_layers:
        if name not in layers:
            close = nearest(name, layers)
            some = ", ".join(layers[:8]) + (f", … ({len(layers)} in all)" if len(layers) > 8 else "")
            raise RequestError(
                f"--keep-float {name}: {model} has no such layer",
                f"its convolution and linear layers are {some}",
                f"did you mean {close!r}?" if close else "names stand in the manifests, under layers",
                code="unknown-name",
            )


def _lacks(
    flag: str, asked: str | None, backend: str, scheme: str, table: Mapping[tuple[str, str], tuple[str, ...]]
) -> RequestError:
    elsewhere = [name for (name, other), offered in table.items() if other == scheme and asked in offered]
    hint = f"leave the option out for {backend}'s default, {table[backend, scheme][0]}"
    if elsewhere:
        hint += f"; with it: {' '.join(f'--backend {name}' for name in elsewhere)} --scheme {scheme}"
    return RequestError(
        f"{flag} {asked} is not offered by {backend} for {scheme}",
        f"it offers {', '.join(table[backend, scheme])}",
        hint,
        code="not-offered",
    )


def _pointless(flag: str, why: str) -> RequestError:
    return RequestError(f"{flag} has no effect here", why, "add --scheme int8-static", code="not-offered")
