"""edgeq's own worker, timed from outside: from the start of its process to its first result, or to its end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from edgeq.events import last_line
from edgeq.host.threads import environment
from edgeq.run.job import WorkerJob
from edgeq.run.record import FILE_NAME, Record, read_record
from edgeq.run.watchdog import Watcher, work
from edgeq.spec.errors import EdgeqError

#: The phase that a worker enters when it has its first result.
AFTER_FIRST = "warm-up"


@dataclass(frozen=True)
class Timed:
    """A worker that ran to its end."""

    record: Record
    wall_s: float
    """From before its process was started until it was gone."""
    phases_s: dict[str, float]
    """How long each of its phases took; ``start`` until it tells the first one."""


class _FirstResult(Exception):
    def __init__(self, at: float) -> None:
        self.at = at


class _Phases(Watcher):
    def __init__(self) -> None:
        self.begins = [("start", time.perf_counter())]

    def phase(self, what: str, name: str) -> None:
        self.begins.append((name, time.perf_counter()))

    def lasted(self, end: float) -> dict[str, float]:
        ends = [at for _, at in self.begins[1:]] + [end]
        return {name: until - at for (name, at), until in zip(self.begins, ends, strict=True)}


class _Stopping(Watcher):
    def phase(self, what: str, name: str) -> None:
        if name == AFTER_FIRST:
            raise _FirstResult(time.perf_counter())


def run(job: WorkerJob) -> Timed:
    """Runs ``job`` to its end. Its record may be ``ok``, ``invalid`` (so short a run may be) or ``skipped``.

    Raises:
        EdgeqError: the worker failed.
    """
    began, phases = time.perf_counter(), _Phases()
    failure = work(job, str(job.cell), phases)
    ended = time.perf_counter()
    if failure is not None:
        raise EdgeqError(f"{job.cell} was not measured", failure.note.text, failure.note.hint, code=failure.note.code)
    return Timed(read_record(job.folder / FILE_NAME), ended - began, phases.lasted(ended))


def first_result_s(job: WorkerJob) -> float:
    """Seconds from the start of the worker until its first inference is done; it is stopped there.

    Raises:
        EdgeqError: it failed before.
    """
    began = time.perf_counter()
    try:
        failure = work(job, str(job.cell), _Stopping())
    except _FirstResult as reached:
        return reached.at - began
    why, hint = (failure.note.text, failure.note.hint) if failure else ("it ended without one", "look at its log")
    raise EdgeqError(f"{job.cell} gave no result", why, hint, code="no-figure")


def bare_first_result_s(backend: str, file: Path, sample: Path, threads: int, folder: Path) -> float:
    """Seconds from the start of ``benchmarks/bare.py`` until its first inference is done; it is stopped there.

    Args:
        file: What the framework loads.
        sample: A ``.npy`` of one sample with its batch dimension, as the file takes it.
        folder: For what it says on standard error.

    Raises:
        EdgeqError: it ended before.
    """
    script, log = Path(__file__).with_name("bare.py"), folder / "bare.log"
    began = time.perf_counter()
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, str(script), backend, str(file), str(sample), str(threads)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env={**os.environ, **environment(threads)},
        )  # fmt: skip
    assert process.stdout is not None
    with process.stdout as told:
        done, at = told.readline() == b"done\n", time.perf_counter()
    process.kill()
    process.wait()
    if not done:
        raise EdgeqError(f"a bare script for {backend} gave no result", last_line(log), f"see {log}", code="no-figure")
    return at - began
