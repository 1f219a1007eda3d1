"""Starts one worker and watches it: a phase that does not end in its time, a death, and whoever shows the progress."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from edgeq.events import Child, cause_of_death
from edgeq.files import write_error, write_json
from edgeq.host.memory import OomKills, oom_kills
from edgeq.host.threads import environment
from edgeq.run.job import LOADGEN_DIR, MEASURED, WorkerJob
from edgeq.run.record import FILE_NAME, Record
from edgeq.run.store import RunFolder
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

#: Seconds for a worker's first event: Python's start and the imports before it.
START_LIMIT_S = 120.0

#: How often the watchdog looks while a worker is silent.
TICK_S = 0.5


class Watcher:
    """What the runner tells whoever shows it; the base class shows nothing."""

    def began(self, run: RunFolder, cells: int, rounds: int, finished: int) -> None:
        """A run of ``cells`` in ``rounds`` starts (or goes on, with ``finished`` of cells × rounds done)."""

    def told(self, note: Note) -> None:
        """Something to know of this device, said once a run."""

    def preparing(self, what: str, done: int, total: int) -> None:
        """Samples are being preprocessed."""

    def phase(self, what: str, name: str) -> None:
        """``what`` (a cell or an accuracy run) has come to phase ``name``."""

    def cooling(self, what: str, now_c: float | None, to_c: float) -> None:
        """``what`` was slowed down and waits for the device, at ``now_c`` °C, to cool to ``to_c``, to be measured again."""

    def ended(self, record: Record, turns: int = 1) -> None:
        """A cell has been measured in round ``record.run.round``, or ``turns`` rounds of it are left out."""

    def accuracy(self, what: str, text: str) -> None:
        """An artifact's accuracy run has ended."""


@dataclass(frozen=True)
class Failure:
    """Why a worker failed, and in which phase."""

    note: Note
    phase: str


def work(job: WorkerJob, what: str, watcher: Watcher) -> Failure | None:
    """Runs one worker to its end; returns why it failed, or None.

    Raises:
        EdgeqError: its folder can't be written, or the disk is full.
        KeyboardInterrupt: as it came; an unfinished measurement's logs are removed, a finished one is kept.
    """
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        (job.folder / MEASURED).unlink(missing_ok=True)
    except OSError as error:
        raise write_error(job.folder, error) from error
    job_file, log = job.folder / "job.json", job.folder / "worker.log"
    write_json(job_file, job.model_dump(mode="json", by_alias=True))
    oom = oom_kills()
    child = Child.start("edgeq.run.worker", job_file, log, environment(job.setting.threads))
    try:
        return _watch(child, what, log, oom, watcher)
    except BaseException:
        child.kill()
        if not (job.folder / FILE_NAME).is_file() and not (job.folder / MEASURED).is_file():
            shutil.rmtree(job.folder / LOADGEN_DIR, ignore_errors=True)
        raise
    finally:
        child.kill()


def _watch(child: Child, what: str, log: Path, oom: OomKills, watcher: Watcher) -> Failure | None:
    phase, deadline, limit = "start", time.monotonic() + START_LIMIT_S, START_LIMIT_S
    reported: Note | None = None
    for event in child.events(TICK_S):
        if event is None:
            if time.monotonic() > deadline:
                text = f"the worker was stopped: phase '{phase}' had not ended after {limit:.0f} s"
                hint = f"see {log}; if the device is only slow, use a longer profile"
                return Failure(Note(code="hung", text=text, hint=hint), phase)
        elif event["event"] == "phase":
            phase, limit = event["name"], event["limit_s"]
            deadline = time.monotonic() + limit
            watcher.phase(what, phase)
        elif event["event"] == "error":
            reported = Note(code=event["code"], text=f"{event['what']}: {event['why']}", hint=event["hint"])
            if event["code"] in ("disk-full", "cannot-write"):
                raise EdgeqError(event["what"], event["why"], event["hint"], code=event["code"])
    code = child.process.returncode
    if reported is not None:
        return Failure(reported, phase)
    if code == 0:
        return None
    cause, text = cause_of_death(code, log, oom_kills().since(oom))
    note = Note(code=cause, text=f"{text} (in phase '{phase}')", hint=f"see {log}, then: edgeq run --resume")
    return Failure(note, phase)
