"""What a cell is judged by, and how sure that is: figures, speed-ups and accuracies with their 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgeq.run.intervals import over_rounds
from edgeq.run.judged import THROUGHPUT, figure_of
from edgeq.run.judged import judged as judged_figure
from edgeq.run.record import Interval, Record
from edgeq.student import paired_ratio

#: 97.5 % quantile of the normal distribution: for intervals of counts, where no spread is estimated.
_Z = 1.959964


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval (``low <= value <= high``), or without one where both ends are None."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    """How many rounds, blocks or images the interval is drawn from."""
    of: str | None = None
    """``rounds``, ``blocks``; of a speed-up ``rounds`` (paired) or ``intervals`` (of the two figures); of an accuracy
    ``images`` or ``paired images``."""

    @classmethod
    def around(cls, value: float, low: float, high: float, n: int, of: str) -> Estimate:
        """An interval widened, if need be, to hold the figure itself: a median may lie outside of a mean's interval."""
        return cls(value, min(low, value), max(high, value), n, of)


def judged(record: Record) -> str | None:
    """The percentile of the record that LoadGen judged at (``p90``); where it holds another, the next higher one.

    None in offline, which is judged by its throughput.
    """
    return None if record.cell.scenario == "offline" else judged_figure(record).removeprefix("latency_ms.")


def figure(record: Record) -> Estimate | None:
    """What the cell is judged by: milliseconds a query at the judged percentile, or samples a second in offline.

    By MLPerf's rules a latency is LoadGen's early-stopping estimate of the percentile, an upper bound. Its interval is
    drawn from the rounds; within one round it has none, as the record's interval is of the percentile itself.
    """
    name = judged_figure(record)
    early = _early(record)
    if early is not None:
        interval = over_rounds(list(by_round(record).values()), early)
        return _with(early, interval)
    value = figure_of(record, name)
    return None if value is None else _with(value, record.intervals.get(name))


def _early(record: Record) -> float | None:
    """LoadGen's early-stopping estimate where MLPerf's rules make that the figure; None where it gave none."""
    by_rules = record.run.mlperf_rules and record.cell.scenario != "offline"
    return record.loadgen.early_stopping_ms if by_rules and record.loadgen else None


def _with(value: float, interval: Interval | None) -> Estimate:
    if interval is None:
        return Estimate(value)
    return Estimate.around(value, max(0.0, interval.low), interval.high, interval.n, interval.of)


def overhead(record: Record) -> tuple[Estimate | None, Estimate | None]:
    """Microseconds of the ``null`` backend: of a query, LoadGen's own median latency; of a sample, time of the run.

    A query of offline is the whole run, so that it has no figure. The latency's interval is the record's. The run's time
    a sample has one over rounds; of one round only in offline, where it is the throughput's.
    """
    found = record.overhead_us
    if found is None:
        return None, None
    runs = [1e6 * each.duration_s / each.samples for each in record.rounds
            if each.status == "ok" and each.duration_s is not None and each.samples]  # fmt: skip
    sample, rate = _with(found.per_sample, over_rounds(runs, found.per_sample)), record.intervals.get(THROUGHPUT)
    if record.cell.scenario == "offline":
        if sample.low is None and rate is not None and rate.low > 0:
            sample = Estimate.around(sample.value, 1e6 / rate.high, 1e6 / rate.low, rate.n, rate.of)
        return None, sample
    median = record.intervals.get("latency_ms.p50")
    if median is None:
        return Estimate(found.per_query), sample
    ends = max(0.0, 1e3 * median.low), 1e3 * median.high
    return Estimate.around(found.per_query, *ends, median.n, median.of), sample


def by_round(record: Record) -> dict[int, float]:
    """The figure of each round that was ``ok``, by the round's number; empty in a record without rounds.

    Where the figure is an early-stopping estimate, a round to which LoadGen gave none is left out: its percentile is
    another quantity, and lower.
    """
    name, estimated = judged_figure(record), _early(record) is not None
    found = {
        each.round: each.early_stopping_ms if estimated else figure_of(each, name)
        for each in record.rounds
        if each.status == "ok"
    }
    return {number: value for number, value in found.items() if value is not None and value > 0}


def ratio(
    new: Estimate, base: Estimate, *, new_rounds: Mapping[int, float], base_rounds: Mapping[int, float], rate: bool
) -> Estimate | None:
    """How many times as fast ``new`` is as ``base``, with an interval; None where a figure is zero.

    With two rounds in common or more, paired by round, as both cells of a round ran close to each other in time: mean
    and Student's t of the logarithms of the rounds' ratios. Else the two intervals at their worst: the slow end of the
    one over the fast end of the other; wider than a 95 % interval, as both would have to lie at their ends at once.

    Args:
        new: The figure.
        base: The figure compared with, of the same scenario.
        new_rounds: The figure by round (``by_round``).
        base_rounds: The same of ``base``.
        rate: The figures are samples a second; else milliseconds, of which fewer are faster.
    """
    if new.value <= 0 or base.value <= 0:
        return None
    sign = 1 if rate else -1
    value = (new.value / base.value) ** sign
    common = sorted(new_rounds.keys() & base_rounds.keys())
    new_values, base_values = ([of[number] for number in common] for of in (new_rounds, base_rounds))
    pairs = paired_ratio(new_values, base_values) if rate else paired_ratio(base_values, new_values)
    if pairs is not None:
        return Estimate.around(value, pairs.low, pairs.high, pairs.n, "rounds")
    fast, slow = (new, base) if rate else (base, new)
    if fast.low is None or fast.high is None or slow.low is None or slow.high is None or slow.low <= 0:
        return Estimate(value)
    n = min(new.n or 0, base.n or 0)
    return Estimate.around(value, fast.low / slow.high, fast.high / slow.low, n, "intervals")


def proportion(fraction: float, n: int) -> Estimate:
    """A share of ``n`` images with Wilson's score interval (Wilson 1927), which also holds near 0 and 1."""
    spread = _Z**2 / n
    centre = (fraction + spread / 2) / (1 + spread)
    half = _Z * math.sqrt(fraction * (1 - fraction) / n + spread / (4 * n)) / (1 + spread)
    return Estimate.around(fraction, max(0.0, centre - half), min(1.0, centre + half), n, "images")


def accuracy_drop(base: Estimate, own: Estimate, agreement: float | None) -> Estimate:
    """Top-1 lost against fp32 (fractions; negative where it was gained), with an interval.

    Where both were judged on as many images and ``agreement`` (share of images with fp32's own top-1) is known, the
    images are paired: only those on which the two differ can move the difference. The record says how many differ, not
    which of them were right in one of the two; all are taken as such, so that the interval is too wide, never too
    narrow. Its formula is Agresti and Min (2005), half a count added to each kind of pair. Else the two proportions are
    taken as independent: Newcombe (1998), method 10, from Wilson's intervals.
    """
    value = base.value - own.value
    differing = None if agreement is None or own.n is None or own.n != base.n else own.n * (1 - agreement)
    # More lost than differ: these were not the same images.
    if differing is not None and own.n is not None and abs(own.n * value) <= differing + 0.5:
        n, total, lost = own.n, own.n + 2, own.n * value
        half = _Z * math.sqrt(max(0.0, differing + 1 - lost**2 / total)) / total
        centre = lost / total
        return Estimate.around(value, max(-1.0, centre - half), min(1.0, centre + half), n, "paired images")
    if base.low is None or base.high is None or own.low is None or own.high is None:
        return Estimate(value)
    down = math.hypot(base.value - base.low, own.high - own.value)
    up = math.hypot(base.high - base.value, own.value - own.low)
    return Estimate.around(value, value - down, value + up, min(base.n or 0, own.n or 0), "images")


def row_of(name: str, estimate: Estimate | None) -> dict[str, Any]:
    """An estimate as columns: ``<name>``, ``<name>_low``, ``<name>_high``, ``<name>_n`` and ``<name>_of``."""
    found = {} if estimate is None else vars(estimate)
    return {name: found.get("value"), **{f"{name}_{part}": found.get(part) for part in ("low", "high", "n", "of")}}


def from_row(name: str, row: Mapping[str, Any]) -> Estimate | None:
    """The estimate that ``row_of`` spelled out; None where there is no figure."""
    parts = (row[f"{name}_{part}"] for part in ("low", "high", "n", "of"))
    return None if row[name] is None else Estimate(row[name], *parts)


def overlaps(first: Estimate, second: Estimate) -> bool:
    """Whether two figures can't be told apart: their intervals touch. One without an interval is told from nothing."""
    if first.low is None or first.high is None or second.low is None or second.high is None:
        return True
    return first.low <= second.high and second.low <= first.high


def ranks(figures: Sequence[Estimate], *, rate: bool) -> list[int]:
    """A rank for each figure, the same for those that can't be told apart from the best of that rank.

    The best figure leads the first rank; each other one, from better to worse, joins the first rank whose leader its
    interval overlaps, or else leads a rank of its own. A rank's number is 1 and the count of figures in better ranks.
    So rank 1 holds exactly those which this run does not show to be slower than the best.
    """
    order = sorted(range(len(figures)), key=lambda index: figures[index].value, reverse=rate)
    groups: list[list[int]] = []
    for index in order:
        home = next((group for group in groups if overlaps(figures[group[0]], figures[index])), None)
        if home is None:
            groups.append([index])
        else:
            home.append(index)
    found, place = [0] * len(figures), 1
    for group in groups:
        for index in group:
            found[index] = place
        place += len(group)
    return found
