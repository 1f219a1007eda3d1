"""Intervals for counts: a share of right answers, and the difference of two on the same images."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Right = npt.NDArray[np.bool_]


def interval(count: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's exact interval (Biometrika 26, 1934) of the share that ``count`` of ``n`` was drawn from.

    Raises:
        ValueError: not 0 <= ``count`` <= ``n``, or ``n`` is 0.
    """
    if not 0 <= count <= n or n == 0:
        raise ValueError(f"{count} of {n}")
    tail = (1 - level) / 2
    low = 0.0 if count == 0 else _bisect(lambda share: 1 - _at_most(count - 1, n, share) < tail)
    high = 1.0 if count == n else _bisect(lambda share: _at_most(count, n, share) > tail)
    return low, high


@dataclass(frozen=True)
class Paired:
    """Two classifiers on the same ``n`` images; shares from 0 to 1."""

    n: int
    lost: int
    """Images that only the first one gets right."""
    gained: int
    """Images that only the second one gets right."""
    drop: float
    """Top-1 of the first less that of the second."""
    low: float
    high: float
    """95 % interval of ``drop``."""
    p: float
    """McNemar's exact two-sided test: how likely so uneven a split of the differing images is by chance."""


def paired(first: Right, second: Right) -> Paired:
    """Compares right answers (bool ``[n]``) image by image.

    The interval is Newcombe's for paired shares (Statistics in Medicine 17, 1998, method 10): the two score intervals,
    joined by how the answers go together.

    Raises:
        ValueError: different lengths, or no image.
    """
    if first.shape != second.shape or len(first) == 0:
        raise ValueError(f"{first.shape} and {second.shape} right answers")
    n, both, neither = len(first), int(np.sum(first & second)), int(np.sum(~first & ~second))
    lost, gained = int(np.sum(first & ~second)), int(np.sum(~first & second))
    share, other = (both + lost) / n, (both + gained) / n
    (low, high), (other_low, other_high) = _score_interval(both + lost, n), _score_interval(both + gained, n)
    together = _phi(both, lost, gained, neither)
    drop = (lost - gained) / n
    p = min(1.0, 2 * _at_most(min(lost, gained), lost + gained, 0.5))
    below = _joined(share - low, other_high - other, together)
    above = _joined(high - share, other - other_low, together)
    return Paired(n, lost, gained, drop, drop - below, drop + above, p)


def _score_interval(count: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z = 1.959964
    share, middle = count / n, (count + z * z / 2) / (n + z * z)
    half = z * math.sqrt(share * (1 - share) * n + z * z / 4) / (n + z * z)
    return min(share, middle - half), max(share, middle + half)


def _phi(both: int, lost: int, gained: int, neither: int) -> float:
    """Correlation of the two answers, with Newcombe's correction for continuity where it is positive."""
    margins = (both + lost) * (gained + neither) * (both + gained) * (lost + neither)
    if margins == 0:
        return 0.0
    cross, half = both * neither - lost * gained, (both + lost + gained + neither) / 2
    return (max(cross - half, 0.0) if cross > 0 else cross) / math.sqrt(margins)


def _joined(one: float, two: float, together: float) -> float:
    return math.sqrt(max(0.0, one * one - 2 * together * one * two + two * two))


def _at_most(count: int, n: int, share: float) -> float:
    """P(X <= count) for X binomial(n, share), summed in logarithms."""
    if share <= 0:
        return 1.0
    if share >= 1:
        return 1.0 if count >= n else 0.0
    k = np.arange(count + 1)
    steps = np.log((n - k[:-1]) / (k[:-1] + 1)) if count else np.empty(0)
    logs = np.concatenate(([0.0], np.cumsum(steps))) + k * math.log(share) + (n - k) * math.log1p(-share)
    top = float(logs.max())
    return min(1.0, math.exp(top) * float(np.sum(np.exp(logs - top))))


def _bisect(above: Callable[[float], bool]) -> float:
    """The share in [0, 1] at which ``above`` turns from true to false."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) else (low, middle)
    return (low + high) / 2
