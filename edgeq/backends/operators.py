"""What the operator profiles of all frameworks share: inferences with and without the profiler, taken in turn."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgeq.artifact import Layer
from edgeq.backends.session import Array
from edgeq.operators import Group

#: Inferences with and without the profiler alternate in blocks of about so many seconds, at most so many inferences.
BLOCK_S, BLOCK_INFERENCES = 0.05, 50
#: Warm-up: at least so many inferences, and this share of the seconds given.
WARM_UP_INFERENCES, WARM_UP_SHARE = 3, 0.2

_GROUPS: dict[str, Group] = {"conv": "convolution", "depthwise": "depthwise", "linear": "fully connected"}


def in_turn(samples: Array) -> Iterator[Array]:
    """Batches of one, ``[1, *shape]``, of ``samples`` ``[n, *shape]``, over and over."""
    return (samples[index : index + 1] for index in itertools.cycle(range(len(samples))))


class Profiled(Protocol):
    """A framework's two sessions of the same options, one of them with the profiler on.

    Where ``count`` is more than 1, each begins with an inference that counts for nothing: the other's threads may still
    spin, and caches hold the other's weights.
    """

    def plain(self, count: int) -> list[float]:
        """``count`` inferences without the profiler; seconds of each."""
        ...

    def profiled(self, count: int) -> list[float]:
        """``count`` inferences whose operators are timed and kept; seconds of each."""
        ...

    def forget(self) -> None:
        """Drops the operators kept so far."""
        ...


@dataclass(frozen=True)
class Timing:
    """Wall times around the operators."""

    inferences: int
    """With the profiler on."""
    profiled_ms: float
    """Their mean."""
    plain_ms: float
    """Median of those without."""


def alternate(sessions: Profiled, seconds: float, block_s: float = BLOCK_S, most: int | None = None) -> Timing:
    """Infers with and without the profiler, in turn, in blocks of ``block_s``, for about ``seconds``, or until ``most``
    inferences were profiled.

    What a profiler takes to start and to be read does not count as time spent. A model so slow that three inferences
    would not fit is inferred twice without and twice with it, and the second of each counts: a first inference makes
    what is made lazily, and says nothing of how slow the model is.
    """
    sessions.plain(1)
    first = sessions.plain(1)[0]
    if 3 * first > seconds:
        sessions.profiled(1)
        sessions.forget()
        return Timing(1, sessions.profiled(1)[0] * 1e3, first * 1e3)
    warm = [first]
    while len(warm) < WARM_UP_INFERENCES or sum(warm) < WARM_UP_SHARE * seconds:
        warm += sessions.plain(1)
    sessions.profiled(1)
    sessions.forget()
    count = max(1, min(most or BLOCK_INFERENCES, BLOCK_INFERENCES, round(block_s / max(min(warm), 1e-6))))
    plain, profiled = sessions.plain(count), sessions.profiled(count)
    while sum(warm) + sum(plain) + sum(profiled) < seconds and (most is None or len(profiled) < most):
        plain += sessions.plain(count)
        profiled += sessions.profiled(count)
    return Timing(len(profiled), statistics.fmean(profiled) * 1e3, statistics.median(plain) * 1e3)


def timed(infer: Callable[[], object], count: int, *, settle: bool = True) -> list[float]:
    """Seconds of each of ``count`` inferences, after one untimed where ``settle`` and ``count`` is more than 1."""
    if settle and count > 1:
        infer()
    found = []
    for _ in range(count):
        began = time.perf_counter()
        infer()
        found.append(time.perf_counter() - began)
    return found


def group_of(layer: Layer) -> Group:
    """The group that a layer of the float model belongs to."""
    return _GROUPS[layer.op]


def is_depthwise(weight: Sequence[int], input_channels: int) -> bool:
    """True where each output channel of a convolution reads one of several input channels.

    ``weight`` is ``[O, I/groups, kh, kw]`` or ``[groups, O/groups, I/groups, kh, kw]``.
    """
    return weight[-3] == 1 and input_channels > 1
