"""Why a cell is slower or faster than fp32, in one sentence drawn from both operator profiles. Pure: figures in, text out.

The operators' times explain the difference only where they make up most of it. A cause ("because") is named only where the
operators' own names prove it, beside the operators that it is the cause of; what else is known of the precisions or of the
CPU stands beside as a fact, in brackets, and is no cause.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
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
#: The profiles, and the groups named, must show this much of the difference in plain wall time, and the profiles at most
#: so many times as much: otherwise they tell of something else, such as the profiler's own time.
_COVERS, _BEYOND = 0.5, 2.0
#: Times with the profiler on that lie further from the plain ones than this are told, lest figures contradict each other.
_PROFILED_APART = 1.1

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
#: Casts or quantizers are the group's matter where they make up this share of its difference.
_MOST = 0.5
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
        certain: False where the two times were taken more than once and do not show which is faster.
    """
    if fp32 is None or scheme == "fp32":
        return _alone(cell, scheme)
    ms, reference = _wall(cell, fp32)
    head = f"{_ratio(ms, reference)} ({_ms(ms)} against {_ms(reference)})"
    if _speed(ms, reference) == "same":
        return f"{head}{_after(_why_the_same(scheme, macs))}"
    if not certain:
        return f"not to be told apart from fp32 ({_ms(ms)} against {_ms(reference)}): the rounds do not show which is faster"
    shares = _shares(cell, fp32, ms - reference)
    if not shares:
        return f"{head}; the operators' times do not show why"
    said = [_said(share, cell, fp32) for share in shares]
    causes = [_beside(share, cell, fp32, backend, scheme, macs or {}, isa) for share in shares]
    joint = "; and " if any(causes) else " and "
    return f"{head}{_profiled(cell, fp32)}{joint.join(f'{a}{b}' for a, b in zip(said, causes, strict=True))}"


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


def _profiled(cell: OperatorProfile, fp32: OperatorProfile) -> str:
    """What joins the plain times and those by operator: where both differ, the times with the profiler on."""
    apart = max(abs(math.log(each.profiled_ms / (each.plain_ms or each.profiled_ms))) for each in (cell, fp32))
    if apart <= math.log(_PROFILED_APART):
        return ": "
    return f"; with the profiler on ({_ms(cell.profiled_ms)} against {_ms(fp32.profiled_ms)}), "


def _shares(cell: OperatorProfile, fp32: OperatorProfile, gap: float) -> list[_Share]:
    """At most two groups that explain ``gap``, the larger first; none that moves the other way.

    Args:
        gap: Milliseconds that the cell takes longer than fp32 by its plain times; negative where it is faster.
    """
    sign = math.copysign(1.0, gap)
    whole = sign * (cell.profiled_ms - fp32.profiled_ms)
    if not _COVERS * abs(gap) <= whole <= _BEYOND * abs(gap):
        return []
    found = [_Share(group, cell.groups.get(group, 0.0), fp32.groups.get(group, 0.0)) for group in GROUPS]
    found = [share for share in found if share.group != "untimed" and sign * share.gap >= _TELLS * whole]
    found.sort(key=lambda share: -sign * share.gap)
    if len(found) > 1 and sign * found[0].gap >= (1 - _LEFT) * max(whole, abs(gap)):
        found = found[:1]
    found = [_with_operator(share, cell, fp32, sign) for share in found[:2]]
    return found if sum(sign * share.gap for share in found) >= _COVERS * max(whole, abs(gap)) else []


def _with_operator(share: _Share, cell: OperatorProfile, fp32: OperatorProfile, sign: float) -> _Share:
    """``share`` narrowed to one operator where that makes most of it. Not for layers with weights: their operators have
    other names in fp32, so that their times can't be set side by side."""
    if share.group in _WEIGHTED:
        return share
    gaps = _gaps(cell, fp32, share.group)
    name = max(sorted(gaps), key=lambda operator: sign * gaps[operator], default=None)
    if name is None or sign * gaps[name] < _ONE_OPERATOR * sign * share.gap:
        return share
    times, before = _by_operator(cell, share.group), _by_operator(fp32, share.group)
    return _Share(share.group, times.get(name, 0.0), before.get(name, 0.0), name)


def _by_operator(profile: OperatorProfile, group: Group) -> dict[str, float]:
    found: dict[str, float] = {}
    for total in profile.operators:
        if total.group == group:
            found[total.operator] = found.get(total.operator, 0.0) + total.ms
    return found


def _gaps(cell: OperatorProfile, fp32: OperatorProfile, group: Group) -> dict[str, float]:
    """Milliseconds that each operator of a group takes longer than in fp32."""
    times, before = _by_operator(cell, group), _by_operator(fp32, group)
    return {name: times.get(name, 0.0) - before.get(name, 0.0) for name in {*times, *before}}


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
    gaps = _gaps(cell, fp32, group)
    longest = sorted((name for name in gaps if gaps[name] > 0), key=lambda name: (-gaps[name], name))[:2]
    return f", above all {' and '.join(longest)}" if longest else ""


def _why_the_same(scheme: str, macs: Mapping[str, float] | None) -> str:
    if macs and _computes_fp32(macs):
        return "it computes in fp32, only storage is halved" if scheme == "fp16" else "it computes in fp32"
    int8 = (macs or {}).get("int8", 1.0)
    if scheme.startswith("int8") and int8 < 0.5:
        return f"{'only ' if int8 >= 0.01 else ''}{_percent(int8)} of its multiply-adds are int8"
    return ""


def _beside(
    share: _Share,
    cell: OperatorProfile,
    fp32: OperatorProfile,
    backend: str,
    scheme: str,
    macs: Mapping[str, float],
    isa: Collection[str],
) -> str:
    """What stands beside a group: a proven cause, or facts in brackets; often nothing."""
    if share.group in _WEIGHTED:
        return _in_brackets(_computed(share, cell, scheme, macs, isa))
    if share.group != "convert" or share.gap <= 0:
        return ""
    if scheme == "fp16":
        return _casts_to_fp16(share, cell, fp32, backend, macs, isa)
    quantizers, casts = (_part(share, cell, fp32, names) for names in (_is_quantizer, _is_cast))
    if quantizers > 0 and quantizers + max(casts, 0.0) >= _MOST * share.gap:
        back = " and results converted back" if casts > 0 else ""
        return f", because activations are quantized{back} at each inference"
    return ""


def _computed(
    share: _Share, cell: OperatorProfile, scheme: str, macs: Mapping[str, float], isa: Collection[str]
) -> str:
    """What is known of a group of layers with weights: what a faster one computes in, what a slower one's CPU lacks."""
    precisions = {total.precision for total in cell.operators if total.group == share.group and total.ms > 0}
    if share.gap < 0:
        int8 = macs.get("int8", 0.0)
        return f"{_percent(int8)} of the model's multiply-adds are int8" if "int8" in precisions and int8 > 0.5 else ""
    if scheme.startswith("int8") and precisions == {"int8"} and isa and not _INT8 & set(isa):
        return f"this CPU has no {'dot-product' if 'neon' in isa else 'VNNI'} instructions for int8"
    return _no_half(isa) if scheme == "fp16" and precisions == {"fp16"} else ""


def _casts_to_fp16(
    share: _Share,
    cell: OperatorProfile,
    fp32: OperatorProfile,
    backend: str,
    macs: Mapping[str, float],
    isa: Collection[str],
) -> str:
    """Of conversions: that they are casts around fp32 computation is a cause; whatever else is computed so, a fact."""
    half = _no_half(isa)
    if _part(share, cell, fp32, _is_cast) < _MOST * share.gap:
        facts = ["it computes in fp32"] if _computes_fp32(macs) else []
        own = _own(cell, fp32) if _part(share, cell, fp32, _is_layout) >= _MOST * share.gap else ""
        return _in_brackets("; ".join([*facts, *([own] if own else [])]))
    if not _computes_fp32(macs):
        return _in_brackets(half)
    framework = _FRAMEWORKS.get(backend, backend)
    return f", because {framework} computes it in fp32 and casts from and to fp16 around that{_in_brackets(half)}"


def _part(share: _Share, cell: OperatorProfile, fp32: OperatorProfile, belongs: Callable[[str], bool]) -> float:
    """Milliseconds of a share's difference that the operators which ``belongs`` is true of make."""
    gaps = _gaps(cell, fp32, share.group)
    return sum(gap for name, gap in gaps.items() if belongs(name) and share.operator in (None, name))


def _is_quantizer(operator: str) -> bool:
    return any(part in operator for part in _QUANTIZERS)


def _is_cast(operator: str) -> bool:
    return any(part in operator.lower() for part in _CASTS) and not _is_quantizer(operator)


def _is_layout(operator: str) -> bool:
    return any(part in operator.lower() for part in _LAYOUT)


def _own(cell: OperatorProfile, fp32: OperatorProfile) -> str:
    """The operator that takes longest of those that fp32 does not have by themselves."""
    before = {total.operator for total in fp32.operators}
    own = [total.operator for total in cell.operators if total.group == "other" and total.operator not in before]
    return f"{own[0]} runs by itself, which it does not in fp32" if own else ""


def _computes_fp32(macs: Mapping[str, float]) -> bool:
    return macs.get("fp32", 0.0) > 0.999


def _no_half(isa: Collection[str]) -> str:
    return "this CPU has no FP16 arithmetic" if isa and not _HALF & set(isa) else ""


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


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
