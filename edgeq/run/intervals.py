"""95 % confidence intervals: from within one run by batch means, and from several rounds by Student's t.

Within a run neighbouring queries resemble each other (caches, clock, a neighbour's work), so that their own spread tells
too little. Batch means (Law and Kelton, *Simulation Modeling and Analysis*; Schmeiser 1982 for the number of batches): cut
the run into k contiguous blocks, take the figure of each, and treat the k figures as independent: the whole run's figure
± t(k - 1) · s / √k. The same with the blocks' quantiles is "batch quantiles". It holds as far as blocks are long against the
time over which queries depend on each other, and says nothing of how the next run differs: rounds do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from edgeq.loadgen.times import Times
from edgeq.run.record import Interval
from edgeq.student import half_width

Series = npt.NDArray[np.float64]

#: Blocks of a run: fewer than 5 leave t too large to be of use; beyond 10 to 30 nothing is gained (Schmeiser 1982), and
#: the fewer there are, the longer and the more independent.
FEWEST_BLOCKS, MOST_BLOCKS = 5, 10
#: Observations that a block needs beyond its quantile, so that it has one at all, and in any case.
BEYOND, FEWEST_IN_BLOCK = 2, 5

#: Figures of a latency, and the quantile that each is; None is the mean.
FIGURES: Mapping[str, float | None] = {"mean": None, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def over_rounds(figures: Sequence[float], centre: float, within: Sequence[Interval] = ()) -> Interval | None:
    """The interval of a figure from its values in several rounds, which are taken as independent.

    Args:
        figures: One a round, in the figure's unit.
        centre: The record's own figure (the median of them); the interval is about their mean, and widened where it
            would not hold the centre.
        within: The figure's interval from within each round. Rounds vary at least by as much as each of them is unsure,
            so that two which agree by chance do not make a sure figure: the half-width is never below that of the mean of
            figures with these errors.

    Returns:
        None for fewer than two rounds.
    """
    if len(figures) < 2:
        return None
    mean, half = statistics.fmean(figures), half_width(figures)
    if len(within) == len(figures):
        half = max(half, math.hypot(*((each.high - each.low) / 2 for each in within)) / len(figures))
    return _interval(min(mean - half, centre), max(mean + half, centre), len(figures), "rounds")


def within_run(series: Series, figure: float, quantile: float | None) -> Interval | None:
    """The interval of the mean (``quantile`` None) or of a quantile of a run's queries, about ``figure``.

    Args:
        series: The queries' values in the order of time, ``[n]``.
        figure: The same quantity of the whole run, as LoadGen tells it.
        quantile: 0 to 1.

    Returns:
        None where the queries are too few: each of ``FEWEST_BLOCKS`` blocks needs ``BEYOND`` of them above the quantile.
    """
    least = FEWEST_IN_BLOCK
    if quantile is not None:
        least = max(least, math.ceil(round(BEYOND / min(quantile, 1 - quantile), 9)))
    count = min(MOST_BLOCKS, len(series) // least)
    if count < FEWEST_BLOCKS:
        return None
    blocks = np.array_split(series, count)
    values = [block.mean() if quantile is None else at_quantile(block, quantile) for block in blocks]
    return _about(figure, np.asarray(values, np.float64))


def at_quantile(values: Series, quantile: float) -> float:
    """The value that LoadGen calls this quantile: of n sorted values the one at index ``floor(n * quantile)``."""
    index = min(len(values) - 1, int(len(values) * quantile))
    return float(np.partition(values, index)[index])


def latency_intervals(latencies_ms: Series, figures: Mapping[str, float]) -> dict[str, Interval]:
    """``latency_ms.<name>`` → interval in milliseconds, for each of ``FIGURES`` that the queries are enough for.

    Args:
        latencies_ms: Of each query in the order of time, ``[n]``.
        figures: LoadGen's figures by name.
    """
    found = {f"latency_ms.{name}": within_run(latencies_ms, figures[name], q) for name, q in FIGURES.items()}
    return {name: interval for name, interval in found.items() if interval is not None}


def rate_intervals(times: Times, samples_per_second: float) -> dict[str, Interval]:
    """``samples_per_second`` → interval of an offline run, from the rates of contiguous groups of blocks."""
    rates = block_rates(times, MOST_BLOCKS)
    if len(rates) < FEWEST_BLOCKS:
        return {}
    return {"samples_per_second": _about(samples_per_second, rates)}


def block_rates(times: Times, most: int) -> Series:
    """Samples a second in up to ``most`` contiguous parts of an offline run, of about equally many samples each.

    A part reaches from the last answer of the one before it to its own last; each holds ``FEWEST_IN_BLOCK`` answers or
    more, so that it is not the rhythm of a framework's batches that is seen. Empty where they are too few for two.
    """
    ends = times.ends
    count = min(most, len(ends) // FEWEST_IN_BLOCK)
    if count < 2:
        return np.empty(0)
    done = np.cumsum(times.sizes)
    bounds = np.searchsorted(done, np.arange(1, count + 1) * (done[-1] / count), side="left")
    bounds = np.minimum(bounds, len(ends) - 1)
    last = np.concatenate([times.begins[:1], ends[bounds]])
    samples = np.diff(np.concatenate([[0], done[bounds]]))
    seconds = np.diff(last) / 1e9
    kept = (seconds > 0) & (samples > 0)
    rates: Series = samples[kept] / seconds[kept]
    return rates


def _about(figure: float, values: Series) -> Interval:
    half = half_width(values.tolist())
    return _interval(figure - half, figure + half, len(values), "blocks")


def _interval(low: float, high: float, n: int, of: str) -> Interval:
    return Interval.model_validate({"low": max(0.0, low), "high": high, "n": n, "of": of})
