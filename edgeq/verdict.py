"""Why a cell is slower or faster than fp32, in one sentence drawn from both operator profiles. Pure: figures in, text out.

A cause is named only where the figures, the executed precisions and the CPU's instruction sets prove it; otherwise the
sentence states the figures alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from edgeq.operators import GROUPS, Group, OperatorProfile
from edgeq.spec.names import Cell
from edgeq.spec.note import Note

#: Times within this ratio of fp32's count as the same: 5 %.
SAME = 1.05
#: A group is named where it makes up this share of the difference; a second one where the first leaves this much.
_TELLS, _LEFT = 0.2, 0.4
#: A group is put down to one operator where this one makes up so much of the group's difference.
_ONE_OPERATOR = 0.75

_PLURAL: dict[Group, str] = {
    "convolution": "convolutions",
    "depthwise": "depthwise convolutions",
    "fully connected": "fully connected layers",
    "convert": "conversions",
    "other": "other operators",
}
_FRAMEWORKS = {"openvino": "OpenVINO", "tflite": "TFLite", "onnxruntime": "ONNX Runtime", "pytorch": "PyTorch"}
_WEIGHTED: tuple[Group, ...] = ("convolution", "depthwise", "fully connected")
_HALF = {"avx512_fp16", "amx_fp16", "fp16"}
_INT8 = {"vnni", "avx512_vnni", "avx_vnni", "amx_int8", "dotprod", "i8mm"}
_CASTS = ("cast", "convert", "_to_copy", "aten::to", "aten::copy_")
_LAYOUT = ("reorder", "transpose")
_QUANTIZERS = ("DynamicQuantizeLinear", "QD8", "quantize_per_tensor_dynamic")


@dataclass(frozen=True)
class _Share:
    """A group whose time differs from fp32's in the direction of the whole, and the operator that makes most of it."""

    group: Group
    ms: float
    fp32_ms: float
    operator: str | None = None

    @property
    def gap(self) -> float:
        return self.ms - self.fp32_ms


def verdict(
    cell: OperatorProfile,
    fp32: OperatorProfile | None,
    *,
    backend: str,
    scheme: str,
    macs: Mapping[str, float] | None,
    isa: Collection[str],
    certain: bool = True,
) -> str:
    """One sentence on where ``cell``'s time goes, against the same artifact in fp32.

    Args:
        fp32: The same model's and backend's fp32 profile; None where there is none.
        macs: Share of multiply-adds executed in each precision (``Effective.macs``), where known.
        isa: Instruction sets of the CPU (``edgeq.host.cpu.isa_flags``); empty where unknown, and then none is blamed.
        certain: False where the two times were taken more than once and their ranges overlap.
    """
    if fp32 is None or scheme == "fp32":
        return _alone(cell, scheme)
    ms, reference = _wall(cell, fp32)
    head = f"{_ratio(ms, reference)} ({_ms(ms)} against {_ms(reference)})"
    if _speed(ms, reference) == "same":
        return f"{head}{_after(_why_the_same(scheme, macs))}"
    shares = _shares(cell, fp32, slower=ms > reference)
    said = " and ".join(_said(share, cell, fp32) for share in shares)
    if not certain:
        text = f"not to be told apart from fp32 ({_ms(ms)} against {_ms(reference)}): the rounds of both overlap"
        return f"{text}{_after(said, '; by the profile ')}"
    if not shares:
        return f"{head}; the operators' times do not show why"
    if ms > reference:
        causes = (_because(share, cell, fp32, backend, scheme, macs or {}, isa) for share in shares)
        because = next((cause for cause in causes if cause), "")
    else:
        because = _faster(shares, macs or {})
    return f"{head}: {said}{_after(because, ', because ')}"


def slower(cell: OperatorProfile, fp32: OperatorProfile) -> bool:
    """Whether the cell takes longer than fp32 by more than ``SAME``."""
    return _speed(*_wall(cell, fp32)) == "slower"


def slower_note(cell: Cell, sentence: str) -> Note:
    """The warning of a cell slower than its fp32 twin; ``sentence`` is ``verdict``'s."""
    return Note(code="slower-than-fp32", text=sentence, hint=f"to see where the time goes: edgeq explain {cell}")


def _alone(cell: OperatorProfile, scheme: str) -> str:
    group = max(_PLURAL, key=lambda name: cell.groups.get(name, 0.0))
    what = f"{_percent(cell.share(group))} of {_ms(cell.profiled_ms)} goes into {_PLURAL[group]}"
    return what if scheme == "fp32" else f"{what}; there is no fp32 profile to compare with"


def _wall(cell: OperatorProfile, fp32: OperatorProfile) -> tuple[float, float]:
    """Milliseconds an inference of both: without the profiler where both were timed so."""
    if cell.plain_ms is not None and fp32.plain_ms is not None:
        return cell.plain_ms, fp32.plain_ms
    return cell.profiled_ms, fp32.profiled_ms


def _speed(ms: float, reference: float) -> str:
    if ms > SAME * reference:
        return "slower"
    return "faster" if reference > SAME * ms else "same"


def _ratio(ms: float, reference: float) -> str:
    speed = _speed(ms, reference)
    if speed == "same":
        return "about as fast as fp32"
    factor = ms / reference if speed == "slower" else reference / ms
    text = f"{factor:,.0f}" if factor >= 20 else f"{factor:.2f}" if factor < 1.2 else f"{factor:.1f}"
    return f"{text} times as {'slow' if speed == 'slower' else 'fast'} as fp32"


def _shares(cell: OperatorProfile, fp32: OperatorProfile, *, slower: bool) -> list[_Share]:
    """At most two groups that explain the difference, the larger first; none that moves the other way."""
    sign = 1.0 if slower else -1.0
    whole = sign * (cell.profiled_ms - fp32.profiled_ms)
    if whole <= 0:  # the profiler itself outweighs the difference
        return []
    found = [_Share(group, cell.groups.get(group, 0.0), fp32.groups.get(group, 0.0)) for group in GROUPS]
    found = [share for share in found if share.group != "untimed" and sign * share.gap >= _TELLS * whole]
    found.sort(key=lambda share: -sign * share.gap)
    if len(found) > 1 and sign * found[0].gap >= (1 - _LEFT) * whole:
        found = found[:1]
    return [_with_operator(share, cell, fp32, sign) for share in found[:2]]


def _with_operator(share: _Share, cell: OperatorProfile, fp32: OperatorProfile, sign: float) -> _Share:
    """``share`` narrowed to one operator where that makes most of it. Not for layers with weights: their operators have
    other names in fp32, so that their times can't be set side by side."""
    if share.group in _WEIGHTED:
        return share
    times, before = _by_operator(cell, share.group), _by_operator(fp32, share.group)
    gaps = {name: sign * (times.get(name, 0.0) - before.get(name, 0.0)) for name in {*times, *before}}
    name = max(sorted(gaps), key=lambda operator: gaps[operator], default=None)
    if name is None or gaps[name] < _ONE_OPERATOR * sign * share.gap:
        return share
    return _Share(share.group, times.get(name, 0.0), before.get(name, 0.0), name)


def _by_operator(profile: OperatorProfile, group: Group) -> dict[str, float]:
    found: dict[str, float] = {}
    for total in profile.operators:
        if total.group == group:
            found[total.operator] = found.get(total.operator, 0.0) + total.ms
    return found


def _said(share: _Share, cell: OperatorProfile, fp32: OperatorProfile) -> str:
    what = share.operator or _PLURAL[share.group]
    if share.group in _WEIGHTED or share.gap < 0:
        verb = "takes" if share.operator else "take"
        return f"{what} {verb} {_ms(share.ms)} instead of {_ms(share.fp32_ms)}"
    now, before = share.ms / cell.profiled_ms, share.fp32_ms / fp32.profiled_ms
    names = "" if share.operator else _names(cell, fp32, share.group)
    return f"{_percent(now)} of its time goes into {what}{names} (fp32: {_percent(before)})"


def _names(cell: OperatorProfile, fp32: OperatorProfile, group: Group) -> str:
    """The two operators of a group that take more time than in fp32 by most."""
    times, before = _by_operator(cell, group), _by_operator(fp32, group)
    gaps = {name: ms - before.get(name, 0.0) for name, ms in times.items()}
    longest = sorted((name for name in gaps if gaps[name] > 0), key=lambda name: -gaps[name])[:2]
    return f", above all {' and '.join(longest)}" if longest else ""


def _why_the_same(scheme: str, macs: Mapping[str, float] | None) -> str:
    if macs and _computes_fp32(macs):
        return "it computes in fp32, only storage is smaller" if scheme != "fp16" else (
            "it computes in fp32, only storage is halved"
        )  # fmt: skip
    int8 = (macs or {}).get("int8", 1.0)
    if scheme.startswith("int8") and int8 < 0.5:
        return f"{'only ' if int8 >= 0.01 else ''}{_percent(int8)} of its multiply-adds are int8"
    return ""


def _computes_fp32(macs: Mapping[str, float]) -> bool:
    return macs.get("fp32", 0.0) > 0.999


def _because(
    share: _Share,
    cell: OperatorProfile,
    fp32: OperatorProfile,
    backend: str,
    scheme: str,
    macs: Mapping[str, float],
    isa: Collection[str],
) -> str:
    """Why a group is slower, where that is proven; else nothing."""
    operators = _by_operator(cell, share.group)
    if scheme == "fp16":
        return _because_fp16(share, cell, fp32, backend, macs, isa)
    if share.group == "convert" and _quantizes(operators):
        return "activations are quantized and results converted back at each inference"
    if share.group not in _WEIGHTED:
        return ""
    precisions = {total.precision for total in cell.operators if total.group == share.group}
    if precisions == {"int8"} and isa and not _INT8 & set(isa):
        return f"this CPU has no {'dot-product' if 'neon' in isa else 'VNNI'} instructions for int8"
    if precisions and precisions <= {"fp32"} and scheme.startswith("int8"):
        return "they stay in float"
    return ""


def _quantizes(conversions: Mapping[str, float]) -> bool:
    """Whether activations are quantized at run time, and that and casts take a third of the conversions' time or more."""
    quantizers = [name for name, ms in conversions.items() if ms > 0 and any(part in name for part in _QUANTIZERS)]
    casts = [name for name in conversions if any(part in name.lower() for part in _CASTS) and name not in quantizers]
    took = sum(conversions[name] for name in (*quantizers, *casts))
    return bool(quantizers) and took >= sum(conversions.values()) / 3


def _because_fp16(
    share: _Share,
    cell: OperatorProfile,
    fp32: OperatorProfile,
    backend: str,
    macs: Mapping[str, float],
    isa: Collection[str],
) -> str:
    no_half = "this CPU has no FP16 arithmetic" if isa and not _HALF & set(isa) else ""
    if share.group in _WEIGHTED:
        return no_half if macs.get("fp16", 0.0) > 0.5 else ""
    longest = (
        share.operator or max(_by_operator(cell, share.group).items(), key=lambda item: item[1], default=("", 0))[0]
    )
    casts = share.group == "convert" and any(part in longest.lower() for part in _CASTS)
    if not _computes_fp32(macs):
        return no_half if casts else ""
    computes = f"{_FRAMEWORKS.get(backend, backend)} computes it in fp32"
    text = f"{no_half}: {computes}" if no_half else computes
    if casts:
        return f"{text} and casts from and to fp16 around that"
    if share.group == "convert" and any(part in longest.lower() for part in _LAYOUT):
        return f"{text} and changes the layout{_around(cell, fp32)}"
    return text


def _around(cell: OperatorProfile, fp32: OperatorProfile) -> str:
    """The operator that takes longest of those that fp32 does not have by themselves."""
    before = {total.operator for total in fp32.operators}
    own = [total for total in cell.operators if total.group == "other" and total.operator not in before]
    return f" around {own[0].operator}, which does not run by itself in fp32" if own else ""


def _faster(shares: list[_Share], macs: Mapping[str, float]) -> str:
    """Nothing needs excusing; for int8 the share of the work that is int8 belongs to the figure."""
    int8 = macs.get("int8", 0.0)
    if shares[0].group in _WEIGHTED and int8 > 0.5:
        return f"{_percent(int8)} of the multiply-adds are int8"
    return ""


def _after(text: str, joint: str = ": ") -> str:
    return f"{joint}{text}" if text else ""


def _percent(share: float) -> str:
    """A share of 1 as whole percent, never more than 100; ``under 1 %`` for what is there but small."""
    percent = 100 * min(max(share, 0.0), 1.0)
    return "under 1 %" if 0 < percent < 1 else f"{percent:.0f} %"


def _ms(value: float) -> str:
    """Milliseconds to three digits."""
    if value >= 100:
        return f"{value:,.0f} ms"
    return f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"
