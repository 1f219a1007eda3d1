"""What is not done twice, and what is: told once, cut short, taken over from a killed run, planned anew."""

from __future__ import annotations

from typing import Any

from edgeq.files import write_error
from edgeq.run.accuracy import with_accuracy
from edgeq.run.job import MEASURED, WorkerJob
from edgeq.run.phases import OPERATORS, SATURATION
from edgeq.run.record import FILE_NAME, Record, read_record, write_record
from edgeq.run.rounds import with_round
from edgeq.run.watchdog import Failure
from edgeq.spec.note import Note

#: Phase after the measurement → the code that says why its outcome is missing, and that in words.
_MISSING = {
    SATURATION: ("no-probe", "the saturation probe did not run"),
    OPERATORS: ("no-profile", "the operators were not profiled"),
}


def told(record: Record, what: str) -> bool:
    """Whether a record has its ``profile`` or ``probe``, or a warning why not."""
    return getattr(record, what) is not None or f"no-{what}" in {note.code for note in record.warnings}


def fatal(record: Record, what: str) -> list[Note]:
    """The warning that ``profile`` or ``probe`` is missing, where asking for it killed the worker; else none."""
    if "cut-short" not in {note.code for note in record.warnings}:
        return []
    return [note for note in record.warnings if note.code == f"no-{what}"]


def cut_short(job: WorkerJob, failure: Failure) -> Record | None:
    """The record of a measurement that is whole, though its worker died of what comes after it; None where it is not.

    It is written as the turn's record. Where the saturation probe or the operator profile was the end of the worker, the
    warning ``no-probe`` or ``no-profile`` says so: it is not asked for again, to the same end.

    Raises:
        EdgeqError: the record can't be read or written.
    """
    if not (job.folder / MEASURED).is_file():
        return None
    return _concluded(job, read_record(job.folder / MEASURED), failure)


def left_over(job: WorkerJob) -> Record | None:
    """A measurement of this very turn that lies whole in its folder, as the run was stopped while the worker told the rest.

    It becomes the turn's record, with the accuracy that is known by now; an invalid one is measured again instead.

    Raises:
        EdgeqError: the record can't be read or written.
    """
    if not (job.folder / MEASURED).is_file():
        return None
    record = read_record(job.folder / MEASURED)
    key = record.artifact.key if record.artifact else None
    asked = (job.cell, job.run.id, job.run.round, job.artifact_key)
    if record.status != "ok" or (record.cell, record.run.id, record.run.round, key) != asked:
        return None
    return _concluded(job, with_accuracy(record, job.accuracy, job.warnings), Failure(_STOPPED, ""))


_STOPPED = Note(code="stopped", text="the run was stopped before the worker had ended")


def _concluded(job: WorkerJob, record: Record, failure: Failure) -> Record:
    text = f"the measurement is whole, but not what is told after it (what ran, probe, operators): {failure.note.text}"
    log = f"see {job.folder / 'worker.log'}" if failure.phase else ""
    notes = [Note(code="cut-short", text=text, hint=log)]
    if failure.phase in _MISSING:
        code, what = _MISSING[failure.phase]
        notes.append(Note(code=code, text=f"{what}: {failure.note.text}", hint=log))
    record = with_round(record.model_copy(update={"warnings": [*record.warnings, *notes]}), job.place)
    write_record(job.folder / FILE_NAME, record)
    try:
        (job.folder / MEASURED).unlink()
    except OSError as error:
        raise write_error(job.folder, error) from error
    return record


def planned_anew(record: Record) -> dict[str, Any] | None:
    """How to try an invalid cell again: by the rate it showed, where a lower one was planned; else None.

    LoadGen generates its queries before it starts: offline's samples, and for the streams as many as twice the duration
    takes by the planned rate. Where that was too low, as a busy machine slowed the canary down, or a system is faster than
    the plan believes that any can be, they are used up before the minimum duration is over, and the run is invalid.

    Returns:
        Fields of ``WorkerJob`` to change: ``ms_per_sample``, and the warning ``planned-anew`` to add to its ``warnings``.
    """
    if record.status != "invalid" or record.loadgen is None or not record.samples or not record.duration_s:
        return None
    in_force = record.loadgen.settings
    rate, least_ms = in_force.get("target_qps"), in_force.get("min_duration_ms")
    # The logs' clock may be a millisecond off.
    if not rate or least_ms is None or record.duration_s * 1e3 >= least_ms - 1:
        return None
    # Offline, the rate is of samples, and all of them are one query; else it is of queries.
    unit = 1 if record.cell.scenario == "offline" else in_force.get("samples_per_query", 1)
    planned, found = 1e3 / rate / unit, record.duration_s * 1e3 / record.samples
    if found >= planned:
        return None
    note = Note(
        code="planned-anew",
        text=f"an earlier try ended after {record.duration_s:.2g} s, before its minimum duration: planned were "
        f"{planned:.3g} ms a sample, the run took {found:.3g} ms",
        hint="the figure is of the last try; a quiet machine needs only one",
    )
    return {"ms_per_sample": found, "warnings": [note]}
