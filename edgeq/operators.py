"""Where the time of an inference goes: operators as a framework's own profiler times them, in groups of one naming."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

_STRICT = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

Group = Literal["convolution", "depthwise", "fully connected", "convert", "other", "untimed"]
#: ``convert`` is quantize, dequantize, cast and change of layout; ``untimed`` what the profiler did not ascribe.
GROUPS: tuple[Group, ...] = ("convolution", "depthwise", "fully connected", "convert", "other", "untimed")


class OperatorTime(BaseModel):
    """One executed operator (a node of the graph as it ran), in milliseconds an inference."""

    model_config = _STRICT
    name: str
    operator: str
    """The framework's own name of its kind, such as ``QLinearConv``."""
    group: Group
    precision: str | None = None
    """What it computes in (``fp32``, ``int8`` …), where the framework says."""
    ms: float = Field(ge=0)


class OperatorTotal(BaseModel):
    """All operators of one kind and precision, in milliseconds an inference."""

    model_config = _STRICT
    operator: str
    group: Group
    precision: str | None = None
    count: int = Field(ge=1)
    ms: float = Field(ge=0)


class OperatorProfile(BaseModel):
    """One artifact's time by operator, from an inference loop of its own: never from the measured one."""

    model_config = _STRICT
    tool: str
    """Whose profiler it was, such as ``ONNX Runtime profiler``."""
    threads: int
    inferences: int = Field(ge=1)
    """How many the figures are the mean of."""
    profiled_ms: float = Field(gt=0)
    """Wall time of an inference with the profiler on: what ``groups`` adds up to."""
    plain_ms: float | None = Field(default=None, gt=0)
    """Median wall time of an inference of the same session options without the profiler."""
    groups: dict[Group, float]
    """Milliseconds an inference, by group; adds up to ``profiled_ms``."""
    operators: list[OperatorTotal]
    """Slowest first."""
    slowest: list[OperatorTime] = Field(default_factory=list)
    """The slowest single nodes, slowest first."""

    def share(self, group: Group) -> float:
        """Share of the profiled time that ``group`` takes, 0 to 1."""
        return self.groups.get(group, 0.0) / self.profiled_ms


def profile_of(
    times: Sequence[OperatorTime],
    *,
    tool: str,
    threads: int,
    inferences: int,
    profiled_ms: float,
    plain_ms: float | None = None,
    keep: int = 5,
) -> OperatorProfile:
    """Adds up ``times`` (milliseconds an inference); what they lack of ``profiled_ms`` is ``untimed``.

    Where the operators add up to more than the wall time (a profiler counts some work twice, or operators overlap),
    the total takes their sum's place, so that no share exceeds 1.
    """
    totals: dict[tuple[str, Group, str | None], tuple[int, float]] = {}
    groups: dict[Group, float] = dict.fromkeys(GROUPS, 0.0)
    for entry in times:
        key = entry.operator, entry.group, entry.precision
        count, ms = totals.get(key, (0, 0.0))
        totals[key] = count + 1, ms + entry.ms
        groups[entry.group] += entry.ms
    timed = sum(groups.values())
    groups["untimed"] += max(0.0, profiled_ms - timed)
    operators = [
        OperatorTotal(operator=operator, group=group, precision=precision, count=count, ms=ms)
        for (operator, group, precision), (count, ms) in totals.items()
    ]
    return OperatorProfile(
        tool=tool,
        threads=threads,
        inferences=inferences,
        profiled_ms=max(profiled_ms, timed),
        plain_ms=plain_ms,
        groups=groups,
        operators=sorted(operators, key=lambda total: -total.ms),
        slowest=sorted(times, key=lambda entry: -entry.ms)[:keep],
    )
