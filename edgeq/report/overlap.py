"""Two runs of the same matrix: whose intervals overlap, cell by cell. What they share decides if a run can be repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgeq.report.figures import Estimate, figure, judged, overlaps
from edgeq.report.numbers import share, spread
from edgeq.report.runs import Run, load_runs
from edgeq.report.table import Table
from edgeq.report.wording import unit
from edgeq.run.record import Record
from edgeq.spec.errors import RequestError
from edgeq.spec.names import Cell


@dataclass(frozen=True)
class Pair:
    """One cell in both runs."""

    cell: Cell
    unit: str
    first: Estimate
    second: Estimate

    @property
    def together(self) -> bool:
        """Whether the two intervals overlap."""
        return overlaps(self.first, self.second)


@dataclass(frozen=True)
class Overlap:
    """The cells that have an interval in both runs, and why each of the others was left out."""

    pairs: list[Pair]
    left_out: dict[Cell, str] = field(default_factory=dict)

    @property
    def apart(self) -> list[Pair]:
        """Those whose intervals do not overlap."""
        return [pair for pair in self.pairs if not pair.together]

    @property
    def share(self) -> float | None:
        """Share of the pairs that overlap, 0 to 1; None without a pair."""
        return 1 - len(self.apart) / len(self.pairs) if self.pairs else None


def overlap(first: Run, second: Run) -> Overlap:
    """Compares each cell of two runs by the figure that its scenario is judged by."""
    pairs: list[Pair] = []
    left_out: dict[Cell, str] = {}
    for cell in dict.fromkeys([*first.cells, *second.cells]):
        one, other = first.records.get(cell), second.records.get(cell)
        found = _why_not(one, other)
        if found or one is None or other is None:
            left_out[cell] = found or "not in both runs"
            continue
        a, b = figure(one), figure(other)
        if a is None or b is None or a.low is None or b.low is None:
            left_out[cell] = "no interval in both runs"
        else:
            pairs.append(Pair(cell, unit(cell.scenario, judged(one)), a, b))
    return Overlap(pairs, left_out)


def _why_not(one: Record | None, other: Record | None) -> str:
    if one is None or other is None:
        return "not in both runs"
    if one.status != "ok" or other.status != "ok":
        if one.status == other.status:
            return f"{one.status} in both runs"
        return f"{one.status} in the first run, {other.status} in the second"
    for what, read in _ALIKE.items():
        if read(one) != read(other):
            return f"another {what}"
    if judged(one) != judged(other):
        return f"judged at {judged(one)} in the first run, at {judged(other)} in the second"
    if _query(one) != _query(other):
        return "queries of another size"
    return ""


def _threads(record: Record) -> int | None:
    return record.effective.threads if record.effective else None


#: What two measurements must share, lest they are of different things.
_ALIKE: dict[str, Callable[[Record], object]] = {
    "device": lambda record: (record.device or {}).get("slug"),
    "artifact": lambda record: record.artifact and record.artifact.key,
    "number of threads": _threads,
    "profile": lambda record: (record.run.profile, record.run.mlperf_rules),
}


def _query(record: Record) -> float | None:
    """Samples a query: a latency is of all of them. Offline has one query of as many as the run took."""
    if record.cell.scenario == "offline" or not record.samples or not record.queries:
        return None
    return record.samples / record.queries


def overlap_of(results: Path, runs: Sequence[Path]) -> tuple[Overlap, Table, str]:
    """The comparison of two runs, its table, and its sentence.

    Raises:
        RequestError: not two runs (``bad-value``), no cell with an interval in both (``nothing-in-common``), or as
            ``edgeq.report.runs.load_runs``.
    """
    loaded = load_runs(results, runs) if len(runs) == 2 else []
    if len(loaded) != 2:
        raise RequestError(
            f"{len(runs)} runs given" if len(runs) != 2 else "the two runs are one", "--overlap compares two runs",
            "name two: edgeq report RUN RUN --overlap", code="bad-value",
        )  # fmt: skip
    first, second = loaded
    found = overlap(first, second)
    if found.share is None:
        reason = _tally(found.left_out) or "they hold no cells"
        raise RequestError(
            f"nothing to compare in {first.id} and {second.id}", f"no cell has an interval in both ({reason})",
            "name two runs of the same cells, with --rounds 2 or more", code="nothing-in-common",
        )  # fmt: skip
    count = len(found.pairs)
    sentence = f"{count - len(found.apart)} of {count} cells overlap ({share(found.share)})"
    if found.apart:
        sentence += f"; apart: {', '.join(str(pair.cell) for pair in found.apart)}"
    if found.left_out:
        sentence += f"; {len(found.left_out)} left out: {_tally(found.left_out)}"
    return found, _table(first, second, found), f"{sentence}."


def _tally(left_out: Mapping[Cell, str]) -> str:
    """``2 failed in both runs, 1 another device``."""
    counts = Counter(left_out.values())
    return ", ".join(f"{count} {why}" for why, count in counts.most_common())


def _table(first: Run, second: Run, found: Overlap) -> Table:
    ordered = sorted(found.pairs, key=lambda pair: pair.together)
    rows = [
        (str(pair.cell), pair.unit, _shown(pair.first), _shown(pair.second), "" if pair.together else "apart")
        for pair in ordered
    ]
    rows += [(str(cell), "", "-", "-", f"left out: {why}") for cell, why in found.left_out.items()]
    one_round = any("blocks" in (pair.first.of, pair.second.of) for pair in found.pairs)
    within = " Of one round, an interval knows nothing of how runs differ: use --rounds 3." if one_round else ""
    dates = [
        f"{run.id} ({run.slug}, {run.dates[0]:%Y-%m-%d %H:%M})" if run.dates else run.id for run in (first, second)
    ]
    return Table(
        kind="overlap", title="Two runs of the same cells", context=f"first: {dates[0]}; second: {dates[1]}",
        header=("cell", "figure", "first run", "second run", ""), rows=rows, tags=[{} for _ in rows],
        legend=f"Each with its 95 % interval; apart: the intervals do not overlap. Left out: not counted.{within}",
        text=frozenset({0, 1, 4}),
    )  # fmt: skip


def _shown(of: Estimate) -> str:
    return spread(of.value, of.low, of.high)
