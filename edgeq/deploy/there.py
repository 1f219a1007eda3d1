"""``edgeq run --device``: starts the run on the device, shows its lines here, and brings its records home.

The run does not hang on the connection. Where that breaks, it is made again and the run goes on being watched; where it
can't be made for minutes, the same command with ``--resume`` goes on later.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from edgeq.deploy.attend import BUSY
from edgeq.deploy.job import Say, attend_words, look, state
from edgeq.deploy.records import fetch
from edgeq.deploy.ssh import NO_CONNECTION, Device, LostConnection, connection_error, echo, present, told
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

T = TypeVar("T")

#: Seconds to wait before a lost connection is tried again, once for each: 10 minutes in all.
WAITS = (1, 2, 5, 10, 30, 60, 60, 60, 60, 60, 120, 120)
#: Records are brought home when a cell has ended, but no more often than so, in seconds: the copy shares the device's cores
#: with the cell that comes next.
FETCH_S = 60.0
#: A line by which ``edgeq run`` tells that a cell has ended.
_ENDED = re.compile(r"\[\d+/\d+\] ")


@dataclass
class RemoteRun:
    """One run on a device.

    Attributes:
        results: Where records go here.
        say: Shows a line.
        sleep: Waits so many seconds; tests do not.
        clock: Seconds of a clock that only goes forward.
    """

    device: Device
    results: Path
    say: Say
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        found = look(self.device)
        if found.unpacked is None:
            raise EdgeqError(
                f"no bundle in {self.device.folder} on {self.device.address}",
                "a device runs what a bundle brought",
                f"run: edgeq deploy --device {self.device.address}",
                code="not-deployed",
            )
        self.folder = found.unpacked
        self._read, self._pending, self._fetched = 0, b"", self.clock()
        self._told: set[Note] = set()

    def run(self, arguments: Sequence[str], resume: bool) -> int:
        """Runs ``edgeq run ARGUMENTS`` there; returns its exit code.

        Args:
            resume: ``arguments`` hold ``--resume``: a run that is at work is watched, in place of starting one.

        Raises:
            EdgeqError: another run is at work (code ``busy``), the device stayed away (``unreachable`` and others), or the
                run was killed (``run-died``). What was finished by then is here.
        """
        known = state(self.device, self.folder)
        if known["running"] and not resume:
            raise self._busy()
        if known["running"]:
            self.say(f"a run is at work on {self.device.address}: {' '.join(known['arguments'] or ()) or 'edgeq run'}")
        else:
            self._start(arguments)
        try:
            self._patiently(self._follow)
            ended = self._patiently(lambda: state(self.device, self.folder))
        except KeyboardInterrupt:
            self.say(f"the run goes on on {self.device.address}; the same command with --resume watches it again")
            self.say(f"to stop it: ssh {self.device.address} 'cd {self.folder} && python3 attend.py stop'")
            raise
        finally:
            self._flush()
        self._patiently(self._fetch)
        if ended["exit"] is None:
            raise EdgeqError(
                f"the run on {self.device.address} ended without a word",
                "it was killed, or the device restarted; the records of finished cells are here",
                "the same command with --resume goes on",
                code="run-died",
            )
        return int(ended["exit"])

    def listing(self, arguments: Sequence[str]) -> str:
        """What ``edgeq run ARGUMENTS`` prints there, where it measures nothing (``--list``)."""
        words = ["sh", "-c", 'cd -- "$1" && shift && exec sh run.sh run "$@"', "sh", self.folder, *arguments]
        done = self.device.run(words)
        if done.returncode != 0:
            raise told(self.device.address, done.stderr or done.stdout)
        return done.stdout

    def _start(self, arguments: Sequence[str]) -> None:
        done = self.device.run(attend_words(self.folder, "start", *arguments))
        if done.returncode == BUSY:
            raise self._busy()
        if done.returncode != 0:
            raise told(self.device.address, done.stderr or done.stdout)

    def _busy(self) -> EdgeqError:
        return EdgeqError(
            f"a run is at work on {self.device.address}",
            "two at a time would disturb each other",
            "add --resume to watch it, or wait until it ends",
            code="busy",
        )

    def _follow(self) -> None:
        """Shows what the run prints, from where it was last seen, until it ends. Raises ``LostConnection``."""
        words = self.device.command(attend_words(self.folder, "follow", str(self._read)))
        with present(self.device.program[0]):
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )  # ssh's few words fit into the pipe
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            echo(process.stdout, self._show)
        finally:
            if process.poll() is None:
                process.terminate()
            said = process.stderr.read().decode(errors="replace")
            code = process.wait()
        if code == NO_CONNECTION:
            raise connection_error(self.device.address, said)
        if code != 0:
            raise told(self.device.address, said)

    def _show(self, block: bytes) -> None:
        self._read += len(block)
        *lines, self._pending = (self._pending + block).split(b"\n")
        for line in lines:
            self.say(line.decode(errors="replace"))
        ended = any(_ENDED.match(line.decode(errors="replace")) for line in lines)
        if ended and self.clock() - self._fetched >= FETCH_S:
            try:
                self._fetch()
            except LostConnection as error:  # the follower loses it, too, and makes it again
                self.say(f"records were not brought now: {error}")

    def _flush(self) -> None:
        if self._pending:
            self.say(self._pending.decode(errors="replace"))
            self._pending = b""

    def _fetch(self) -> None:
        self._fetched = self.clock()
        for note in fetch(self.device, self.folder, self.results):
            if note not in self._told:
                self._told.add(note)
                self.say(f"warning [{note.code}] {note.text}\n  try: {note.hint}")

    def _patiently(self, action: Callable[[], T]) -> T:
        """Does ``action``, again and again as long as the connection is lost, for as long as ``WAITS`` says.

        Waiting starts anew whenever something was seen of the run in between.
        """
        tries, seen = 0, self._read
        while True:
            try:
                return action()
            except LostConnection as error:
                tries, seen = (tries if seen == self._read else 0), self._read
                if tries == len(WAITS):
                    raise LostConnection(
                        error.what,
                        f"{error.why}; the run goes on there by itself",
                        "when the device can be reached: the same command with --resume",
                        code=error.code,
                    ) from error
                self.say(f"{error}; trying again in {WAITS[tries]} s")
                self.sleep(WAITS[tries])
                tries += 1
