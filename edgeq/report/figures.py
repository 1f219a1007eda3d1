"""What a cell is judged by, and how sure that is: figures, speed-ups and accuracies with their 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgeq.run.intervals import over_rounds, student_t
from edgeq.run.record import Latency, Record, Round
from edgeq.spec.names import Cell

#: Percentiles that a record holds.
_PERCENTILES = {0.5: "p50", 0.9: "p90", 0.95: "p95", 0.99: "p99"}

#: 97.5 % quantile of the normal distribution: for intervals of counts, where no spread is estimated.
_Z = 1.959964

#: Two rounds that differ give a log ratio of any width; beyond e**20 it says no more, and would overflow.
_WIDEST_LOG = 20.0


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
    if record.cell.scenario == "offline":
        return None
    asked = record.loadgen.percentile if record.loadgen else None
    return next((name for value, name in _PERCENTILES.items() if value >= (asked or 0.9) - 1e-9), "max")


def figure(record: Record) -> Estimate | None:
    """What the cell is judged by: milliseconds a query at the judged percentile, or samples a second in offline.

    By MLPerf's rules a latency is LoadGen's early-stopping estimate of the percentile, an upper bound. Its interval is
    drawn from the rounds; within one round it has none, as the record's interval is of the percentile itself.
    """
    name = judged(record)
    value = _value(record, record.cell, name, estimated=False)
    estimate = _value(record, record.cell, name, estimated=record.run.mlperf_rules)
    if estimate is None:
        return None
    if estimate != value:
        interval = over_rounds(list(by_round(record).values()), estimate)
    else:
        interval = record.intervals.get("samples_per_second" if name is None else f"latency_ms.{name}")
    if interval is None:
        return Estimate(estimate)
    return Estimate.around(estimate, max(0.0, interval.low), interval.high, interval.n, interval.of)


def overhead(record: Record) -> tuple[Estimate | None, Estimate | None]:
    """Microseconds a query and a sample of the ``null`` backend, from the intervals of latency and throughput."""
    found = record.overhead_us
    if found is None:
        return None, None
    query, sample = Estimate(found.per_query), Estimate(found.per_sample)
    median, rate = record.intervals.get("latency_ms.p50"), record.intervals.get("samples_per_second")
    if median is not None and record.latency_ms is not None:
        query = Estimate.around(query.value, max(0.0, 1e3 * median.low), 1e3 * median.high, median.n, median.of)
    if rate is not None and rate.low > 0:
        sample = Estimate.around(sample.value, 1e6 / rate.high, 1e6 / rate.low, rate.n, rate.of)
        if record.latency_ms is None:
            size = query.value / sample.value
            query = Estimate(query.value, size * (sample.low or 0.0), size * (sample.high or 0.0), rate.n, rate.of)
    return query, sample


def by_round(record: Record) -> dict[int, float]:
    """The figure of each round that was ``ok``, by the round's number; empty in a record without rounds."""
    found = {
        each.round: _value(each, record.cell, judged(record), estimated=record.run.mlperf_rules)
        for each in record.rounds
        if each.status == "ok"
    }
    return {number: value for number, value in found.items() if value is not None and value > 0}


def _value(of: Record | Round, cell: Cell, name: str | None, *, estimated: bool) -> float | None:
    if name is None:
        return of.samples_per_second
    if estimated:
        within = of if isinstance(of, Round) else of.loadgen
        early = None if within is None else within.early_stopping_ms
        if early is not None:
            return early
    return getattr(of.latency_ms, name) if isinstance(of.latency_ms, Latency) else None


def _half_width(values: list[float]) -> float:
    """Half of the 95 % interval of the mean of ``values``: Student's t with n - 1 degrees of freedom."""
    n, mean = len(values), sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (n - 1)
    return student_t(n - 1) * math.sqrt(variance / n)


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
    if len(common) >= 2:
        logs = [sign * math.log(new_rounds[number] / base_rounds[number]) for number in common]
        middle, half = sum(logs) / len(logs), min(_half_width(logs), _WIDEST_LOG)
        return Estimate.around(value, math.exp(middle - half), math.exp(middle + half), len(common), "rounds")
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
    """Whether two figures can't be told apart: their intervals touch. A figure without one is taken as its own end."""
    return _low(first) <= _high(second) and _low(second) <= _high(first)


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


def _low(of: Estimate) -> float:
    return of.value if of.low is None else of.low


def _high(of: Estimate) -> float:
    return of.value if of.high is None else of.high
