"""Student's t, and the interval of a ratio that was measured in pairs. Pure: numbers in, numbers out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

#: 97.5 % quantiles of Student's t with 1 to 30 degrees of freedom (``scipy.stats.t.ppf``), and of the normal beyond.
_T = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.306, 2.2622, 2.2281,
    2.201, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.093, 2.086,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip

#: Two rounds that differ give a log ratio of any width; beyond e**20 it says no more, and would overflow.
WIDEST_LOG = 20.0


@dataclass(frozen=True)
class Ratio:
    """How many times as large one quantity is as another, over ``n`` pairs, and the 95 % interval of that."""

    middle: float
    """The pairs' geometric mean, or their median: as the function that gave it says."""
    low: float
    high: float
    n: int

    @property
    def shown(self) -> bool:
        """Whether the pairs show a difference: the interval leaves out 1."""
        return self.low > 1 or self.high < 1


def student_t(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, for a two-sided interval of 95 %; off by less than 0.1 % at any ``freedom``.

    Raises:
        ValueError: ``freedom`` is below 1.
    """
    if freedom < 1:
        raise ValueError(f"{freedom} degrees of freedom")
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = 1.959964  # beyond the table by its expansion in 1/freedom (Abramowitz and Stegun 26.7.5, two terms)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def half_width(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of the mean of two or more independent ``values``, in their unit.

    Raises:
        ValueError: there are fewer than two.
    """
    return student_t(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def paired_ratio(new: Sequence[float], base: Sequence[float]) -> Ratio | None:
    """``new`` over ``base``, pair by pair: mean and Student's t of the logarithms of the pairs' ratios.

    Args:
        new: Positive values in any unit, one a round.
        base: The other's, in the same unit and of the same rounds.

    Returns:
        None for fewer than two pairs: how much they vary is not known.
    """
    logs = [math.log(one / other) for one, other in zip(new, base, strict=True)]
    if len(logs) < 2:
        return None
    middle, half = statistics.fmean(logs), min(half_width(logs), WIDEST_LOG)
    return Ratio(math.exp(middle), math.exp(middle - half), math.exp(middle + half), len(logs))


def median_ratio(new: Sequence[float], base: Sequence[float]) -> Ratio | None:
    """``new`` over ``base``, pair by pair: the median of the pairs' ratios, which single disturbed pairs do not move.

    The interval lies between two of the ratios in their order: the k-th from either end, with the largest k that leaves
    2.5 % or less to either side, by the binomial distribution of how many lie below the true median (Thompson, Annals of
    Mathematical Statistics 7, 1936). Fewer than six pairs have no such interval, and are judged by ``paired_ratio``.

    Args:
        new: Positive values in any unit, one a round.
        base: The other's, in the same unit and of the same rounds.

    Returns:
        None for fewer than two pairs.
    """
    ratios = sorted(one / other for one, other in zip(new, base, strict=True))
    n = len(ratios)
    if n < _FEWEST_FOR_MEDIAN:
        return paired_ratio(new, base)
    k, below = 0, 1
    while below <= 0.025 * 2**n:
        k += 1
        below += math.comb(n, k)
    return Ratio(statistics.median(ratios), ratios[k - 1], ratios[n - k], n)


#: With five pairs, the smallest and the largest ratio enclose the median in 94 of 100 cases.
_FEWEST_FOR_MEDIAN = 6
