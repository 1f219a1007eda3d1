"""Has ``edgeq.host.sampler`` watch the device while a cell is timed. Whatever becomes of it costs the cell a warning only."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

from edgeq.host.sampler import READY
from edgeq.loadgen.log import Outcome
from edgeq.run.during import During, Line, read_lines, summarise
from edgeq.spec.note import Note

#: The sampler's file, beside LoadGen's logs.
FILE_NAME = "host.jsonl"

#: Seconds for the sampler's first line, which is Python's start and a few small files; and for its last one.
START_LIMIT_S, END_LIMIT_S = 30.0, 10.0

COMMAND = (sys.executable, "-m", "edgeq.host.sampler")


@dataclass
class Watched:
    """What the sampler wrote, and why it did not watch to the end, where it did not; filled in as the watching ends."""

    lines: list[Line] = field(default_factory=list)
    note: Note | None = None

    def during(self, outcome: Outcome) -> During | None:
        """What the device did in the run that ``outcome`` is of.

        The times of its queries are of the sampler's own clock: on Linux ``time.perf_counter`` is CLOCK_MONOTONIC, too.
        """
        times = outcome.times
        if times is None or not len(times.ends):
            return summarise(self.lines, -1.0, -1.0, 0)
        return summarise(self.lines, int(times.begins.min()) / 1e9, int(times.ends.max()) / 1e9, outcome.samples)


@contextmanager
def watching(folder: Path) -> Iterator[Watched]:
    """While inside, the device is watched into ``host.jsonl`` in ``folder``; the sampler's start is over by then."""
    path, watched = folder / FILE_NAME, Watched()
    process = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        process = subprocess.Popen([*COMMAND, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        watched.note = _await(process)
    except OSError as error:
        watched.note = _not_watched(f"its sampler could not be started: {error.strerror or error}")
    try:
        yield watched
    finally:
        if process is not None:
            ended = _end(process)
            watched.note = watched.note or ended
            watched.lines = read_lines(path)


def _await(process: subprocess.Popen[bytes]) -> Note | None:
    """Waits for the first line; returns why there is none."""
    assert process.stdout is not None
    deadline = time.monotonic() + START_LIMIT_S
    with DefaultSelector() as selector:
        selector.register(process.stdout, EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            said = os.read(process.stdout.fileno(), len(READY))
            if said:
                return None
            return _not_watched(f"its sampler {_fate(process.wait())} before its first line")
    process.kill()
    return _not_watched(f"its sampler had no first line after {START_LIMIT_S:.0f} s, and was stopped")


def _end(process: subprocess.Popen[bytes]) -> Note | None:
    """Tells the sampler to end and waits for it; returns what was wrong with it."""
    assert process.stdin is not None
    assert process.stdout is not None
    early = process.poll()
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        code = process.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return _not_watched(f"its sampler did not end within {END_LIMIT_S:.0f} s, and was stopped", "to no known end")
    finally:
        process.stdout.close()
    if early is None and code == 0:
        return None
    return _not_watched(f"its sampler {_fate(code)}", "only up to a point", "; what it saw up to then is in the record")


def _fate(code: int) -> str:
    return f"was killed (signal {-code})" if code < 0 else f"ended (exit code {code})"


def _not_watched(why: str, how: str = "not at all", rest: str = "") -> Note:
    text = f"the device was watched {how} while it was measured: {why}{rest}"
    hint = "the figures stand, but heat or under-voltage may have gone unseen; worker.log may say more"
    return Note(code="not-watched", text=text, hint=hint)
