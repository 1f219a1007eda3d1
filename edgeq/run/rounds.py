"""Rounds: every cell measured N times, each time in another order; and one record made of a cell's rounds."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edgeq.run.during import together
from edgeq.run.intervals import FIGURES, over_rounds
from edgeq.run.judged import figure_of, judged
from edgeq.run.record import HostStates, Interval, Latency, Overhead, Record, Round
from edgeq.run.steadiness import codes, rounds_notes
from edgeq.spec.matrix import Planned
from edgeq.spec.note import Note

_MEDIANS = ("samples_per_second", "load_ms", "first_inference_ms", "import_ms", "cpu_per_wall")
_SUMS = ("queries", "samples", "duration_s", "cpu_s")
_MAXIMA = ("peak_rss_mb", "loaded_rss_mb")

#: Found out once for all rounds of a cell (or once an artifact), whichever round it was that asked, and why it could not
#: be: of the device and the artifact, not of a round.
_ONCE = ("profile", "probe")
_TOLD_ONCE = {"saturation", "no-probe", "no-profile", "cut-short", "single-inference"}


@dataclass(frozen=True)
class Step:
    """One cell's turn in one round."""

    round: int
    """From 1."""
    order: int
    """Position in the run, from 0, over all rounds."""
    plan: Planned


def steps(planned: Sequence[Planned], rounds: int, seed: int) -> list[Step]:
    """All turns in order: one round goes by the matrix, several each in an order of its own drawn from ``seed``.

    Interleaved, so that a device that slowly changes (heat, a neighbour) does so for all cells alike; in random order, so
    that no cell always comes after the same other one.
    """
    found: list[Step] = []
    for number in range(1, rounds + 1):
        turns = list(planned)
        if rounds > 1:
            random.Random(f"edgeq rounds {seed} {number}").shuffle(turns)
        found += [Step(number, len(found) + position, plan) for position, plan in enumerate(turns)]
    return found


def with_round(record: Record, folder: str) -> Record:
    """The record of one turn with its figures as a ``Round``, whose logs lie in ``folder``."""
    shared = {name: getattr(record, name) for name in Round.model_fields if name in Record.model_fields}
    shared |= {"warnings": codes(record.warnings)}
    early = record.loadgen.early_stopping_ms if record.loadgen else None
    run = record.run
    found = Round(
        round=run.round, order=run.order, started=run.started, early_stopping_ms=early, folder=folder, **shared
    )
    return record.model_copy(update={"rounds": [found]})


def merged(records: Sequence[Record], asked: int) -> Record:
    """One record of a cell's rounds so far.

    ``ok`` where any round is, its figures made of those rounds (see ``Round``), with the warnings ``round-lost`` where
    others are not and ``rounds-missing`` where some are still to come. Where none is ok, the first one's reason.

    Args:
        records: One a round, with its ``Round``; in order.
        asked: How many rounds the run has.
    """
    if asked == 1:
        return records[0]
    rounds = [each.rounds[0] for each in records]
    good = [each for each in records if each.status == "ok"]
    told = [*_lost(rounds), *_missing(records, asked)] if good else _missing(records, asked)
    if not good:
        warnings = [*_warnings(records), *told]
        return records[0].model_copy(update={"rounds": rounds, "warnings": warnings, **_once(records)})
    figures = _figures(good)
    fields = {**good[0].model_dump(by_alias=False), **figures, **_facts(good), "rounds": rounds}
    fields |= _once(records)
    once = [note for each in records if each.status != "ok" for note in each.warnings if note.code in _TOLD_ONCE]
    fields["warnings"] = list(dict.fromkeys([*_warnings(good), *once, *told, *_differing(good)]))
    return Record.model_validate(fields)


def _figures(good: Sequence[Record]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for names, make in ((_MEDIANS, statistics.median), (_SUMS, sum), (_MAXIMA, max)):
        found |= {name: _over([getattr(each, name) for each in good], make) for name in names}
    found["latency_ms"] = _latency([each.latency_ms for each in good if each.latency_ms is not None])
    overheads = [each.overhead_us for each in good if each.overhead_us is not None]
    if overheads:
        found["overhead_us"] = Overhead(
            per_query=statistics.median(each.per_query for each in overheads),
            per_sample=statistics.median(each.per_sample for each in overheads),
        )
    found["intervals"] = _intervals(good, found)
    return found


def _facts(good: Sequence[Record]) -> dict[str, Any]:
    """What is not a figure: of the first round, but for what any of them found out."""
    first = good[0]
    found: dict[str, Any] = {"host": _host([each.host for each in good])}
    found |= {name: _first(good, name) for name in ("effective", "peaks")}
    if first.loadgen is not None:
        early = [each.loadgen.early_stopping_ms for each in good if each.loadgen is not None]
        logs = f"{first.rounds[0].folder}/{first.loadgen.log_dir}"
        known = _over(early, statistics.median)
        found["loadgen"] = first.loadgen.model_copy(update={"early_stopping_ms": known, "log_dir": logs})
    checks = [each.output_check for each in good if each.output_check is not None]
    if checks:
        stable = [check.stable for check in checks]
        worst = min(checks, key=lambda check: float("inf") if check.sqnr_db is None else check.sqnr_db)
        found["output_check"] = worst.model_copy(update={"stable": None if None in stable else all(stable)})
    return found


def _host(found: Sequence[HostStates]) -> HostStates:
    slowed = dict.fromkeys(why for each in found for why in each.slowed_by)
    during = together([each.during for each in found if each.during is not None])
    return HostStates(before=found[0].before, during=during, after=found[-1].after, slowed_by=list(slowed))


def _once(records: Sequence[Record]) -> dict[str, Any]:
    return {name: _first(records, name) for name in _ONCE}


def _first(records: Sequence[Record], name: str) -> Any:
    return next((value for each in records if (value := getattr(each, name)) is not None), None)


def _over(values: Sequence[Any], make: Callable[[list[Any]], Any]) -> Any:
    known = [value for value in values if value is not None]
    return make(known) if known else None


def _latency(found: Sequence[Latency]) -> Latency | None:
    if not found:
        return None
    fields = {name: statistics.median(getattr(each, name) for each in found) for name in Latency.model_fields}
    return Latency(**fields | {"max": max(each.max for each in found)})


def _intervals(good: Sequence[Record], figures: dict[str, Any]) -> dict[str, Interval]:
    """From the rounds where there are two or more, else from within the one."""
    if len(good) < 2:
        return good[0].intervals
    latency, rate = figures["latency_ms"], figures["samples_per_second"]
    centres = {} if rate is None else {"samples_per_second": rate}
    centres |= {} if latency is None else {f"latency_ms.{name}": getattr(latency, name) for name in FIGURES}
    found = {}
    for name, centre in centres.items():
        values = [value for each in good if (value := figure_of(each, name)) is not None]
        interval = over_rounds(values, centre, [each.intervals[name] for each in good if name in each.intervals])
        if interval is not None:
            found[name] = interval
    return found


def _differing(good: Sequence[Record]) -> list[Note]:
    name = judged(good[0])
    found = {each.run.round: value for each in good if (value := figure_of(each, name)) is not None}
    within = {each.run.round: each.intervals[name] for each in good if name in each.intervals}
    return rounds_notes(found, within)


def _lost(rounds: Sequence[Round]) -> list[Note]:
    lost = [each for each in rounds if each.status != "ok"]
    if not lost:
        return []
    why = "; ".join(f"round {each.round} {each.status}: {each.reason.text if each.reason else ''}" for each in lost)
    text = f"the figures are of {len(rounds) - len(lost)} of {len(rounds)} rounds; {why}"
    again = any(not done_with(each) for each in lost)
    hint = "the same command with --resume tries failed and invalid rounds again" if again else ""
    return [Note(code="round-lost", text=text, hint=hint)]


def _missing(records: Sequence[Record], asked: int) -> list[Note]:
    if len(records) >= asked or closed(records):
        return []
    text = f"{len(records)} of {asked} rounds have been run so far"
    return [Note(code="rounds-missing", text=text, hint="run: the same command with --resume")]


def done_with(record: Record | Round) -> bool:
    """Whether a measurement need not be tried again: one that failed is, and one that LoadGen calls invalid; and one for
    which there was too little memory, as there may be more by now."""
    lacked = record.reason is not None and record.reason.code == "too-little-memory"
    return record.status not in ("failed", "invalid") and not lacked


def closed(records: Sequence[Record]) -> bool:
    """Whether no further round is tried: one was skipped (it is too slow here), and none was ok."""
    kinds = {each.status for each in records}
    return "skipped" in kinds and "ok" not in kinds


def _warnings(records: Sequence[Record]) -> list[Note]:
    """Every warning once; one that not all rounds gave in the same words is told in its first words, with its rounds.

    Those of ``_TOLD_ONCE`` are told without: they hold in all rounds, but only one of them asked.
    """
    said: dict[tuple[str, int], dict[int, Note]] = {}
    for each in records:
        counts: dict[str, int] = {}
        for note in each.warnings:
            counts[note.code] = counts.get(note.code, 0) + 1
            said.setdefault((note.code, counts[note.code]), {})[each.run.round] = note
    found = []
    for by_round in said.values():
        first = next(iter(by_round.values()))
        alike = len(by_round) == len(records) and all(note.text == first.text for note in by_round.values())
        if not alike and first.code not in _TOLD_ONCE:
            first = first.model_copy(update={"text": f"{first.text} ({_rounds_in_words(list(by_round))})"})
        found.append(first)
    return list(dict.fromkeys(found))


def _rounds_in_words(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"in round {numbers[0]}"
    return f"in round {numbers[0]}; likewise in {', '.join(str(number) for number in numbers[1:])}"
