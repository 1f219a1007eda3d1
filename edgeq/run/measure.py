"""A cell's measurement in its worker: check the output, run LoadGen's performance mode, tell what ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgeq.backends.session import Array, Session
from edgeq.data.samples import open_samples
from edgeq.events import emit
from edgeq.host import memory
from edgeq.loadgen.log import Outcome
from edgeq.logits import distance
from edgeq.run import aftermath
from edgeq.run.canary import check_output, logits_of
from edgeq.run.figures import figures, overhead
from edgeq.run.job import WorkerJob
from edgeq.run.record import OutputCheck, Record
from edgeq.run.rounds import with_round
from edgeq.run.steadiness import cpu_notes, query_notes
from edgeq.run.trial import CHECK_LIMIT_S, HANG_FACTOR, Trial, megabytes
from edgeq.spec.names import NULL, SINGLE_STREAM
from edgeq.spec.note import Note

#: Shares of the largest logit within which the output before and after the run must agree to be called the same.
STABLE = 1e-3


def measure(job: WorkerJob, keep: Callable[[Record], None]) -> Record:
    """One round of a cell: its record is ``ok``, ``invalid`` or ``skipped``.

    Args:
        job: Of mode ``performance``.
        keep: Called with the record as soon as it is measured, and again with what is told after it, each time before
            the framework is asked for anything more.

    Raises:
        EdgeqError: for what makes the cell ``failed``.
    """
    trial = Trial(job)
    session = trial.load()
    samples = open_samples(job.samples)
    reference, before = trial.first(session, samples)
    planning = trial.plan(trial.canary(session, reference), samples)
    reason = trial.too_slow(planning, job.profile.cell_budget_s, "cell_budget_s")
    if reason is not None:
        return _record(trial, "skipped", reason)
    expected, check = _check(trial, session, reference, before)
    outcome = trial.drive(session, samples, planning)
    _take(trial, outcome)
    after = logits_of(session, reference[:1], many=trial.scenario != SINGLE_STREAM)
    if check is not None:
        trial.known["output_check"] = check.model_copy(update={"stable": _same(after, expected[:1])})
    trial.known["peak_rss_mb"] = megabytes(memory.peak_rss())
    status, invalid = ("ok", None) if outcome.valid else ("invalid", _invalid(outcome))
    keep(_record(trial, status, invalid))
    aftermath.what_ran(trial, session)
    layout = session.input.layout
    keep(_record(trial, status, invalid))
    session.close()
    if job.probe:
        aftermath.saturation(trial)
        keep(_record(trial, status, invalid))
    if job.operators:
        aftermath.operators(trial, reference, layout)
    return _record(trial, status, invalid)


def _check(trial: Trial, session: Session, reference: Array, first: Array) -> tuple[Array, OutputCheck | None]:
    """The reference samples' logits, and how far they lie from torch's."""
    expected_s = trial.known["canary"].ms_per_sample / 1e3 * trial.at_once * len(reference)
    emit("phase", name="output check", limit_s=max(CHECK_LIMIT_S, HANG_FACTOR * expected_s))
    found = logits_of(session, reference, many=trial.scenario != SINGLE_STREAM)
    trial.known["warmup"] += len(reference)
    if trial.manifest is None or trial.expected is None:
        return found, None
    checked, notes = check_output(found, trial.expected, trial.manifest)
    codes = {note.code for note in notes}
    # The manifest may warn of the same: this device's own figure stands.
    trial.notes = [note for note in trial.notes if note.code not in codes] + notes
    if not _same(first, found[:1]):
        trial.notes.append(
            Note(
                code="unstable-output",
                text=f"the same sample gave other logits the second time "
                f"({distance(found[:1], first).max_rel_error:.1e} of the largest)",
                hint="report this with the record: accuracy can't be trusted",
            )
        )
    trial.known["output_check"] = checked
    return found, checked


def _take(trial: Trial, outcome: Outcome) -> None:
    """Adds the run's figures, and what they say of themselves."""
    trial.known |= figures(outcome, trial.job.profile, trial.scenario)
    if outcome.times is not None:
        trial.notes += query_notes(outcome.times, trial.scenario)
    if trial.cell.backend == NULL:
        trial.known["overhead_us"] = overhead(outcome, trial.scenario)
    elif trial.known.get("cpu_per_wall") is not None:
        trial.notes += cpu_notes(trial.known["cpu_per_wall"], trial.job.threads)


def _invalid(outcome: Outcome) -> Note:
    return Note(
        code="loadgen-invalid",
        text="LoadGen calls the run invalid: " + "; ".join(outcome.reasons),
        hint="on a quiet machine: the same command with --resume tries it again; or use a longer profile",
    )


def _record(trial: Trial, status: Any, reason: Note | None) -> Record:
    warnings = list(dict.fromkeys(trial.notes))
    record = Record(cell=trial.cell, status=status, reason=reason, run=trial.job.run, warnings=warnings, **trial.known)
    return with_round(record, trial.job.place)


def _same(found: Array, expected: Array) -> bool:
    return distance(found, expected).max_rel_error <= STABLE
