"""Child process → parent: one JSON object a line on a pipe of its own, so that frameworks may print what they like."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import IO, Any, NoReturn, TypeVar

from pydantic import BaseModel

from edgeq.spec.errors import EdgeqError

_FD = "EDGEQ_EVENTS_FD"


def emit(kind: str, **fields: Any) -> None:
    """Tells the parent something; without a parent (run by hand), prints it to standard error."""
    line = json.dumps({"event": kind, **fields}) + "\n"
    descriptor = os.environ.get(_FD)
    if descriptor is None:
        sys.stderr.write(line)
    else:
        os.write(int(descriptor), line.encode())


def die_with_parent() -> None:
    """Asks Linux to kill this process when its parent dies, so that a killed run leaves no worker behind."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)


Job = TypeVar("Job", bound=BaseModel)


def serve(argv: Sequence[str], kind: type[Job], work: Callable[[Job], None]) -> int:
    """The main of a child: reads the job that ``argv[1]`` names, does it, and tells the parent an ``EdgeqError``.

    Returns the exit code: 0, or 1 where an error was told.
    """
    die_with_parent()
    job = kind.model_validate(json.loads(Path(argv[1]).read_text(encoding="utf-8")))
    try:
        work(job)
    except EdgeqError as error:
        emit("error", what=error.what, why=error.why, hint=error.hint, code=error.code, exit_code=error.exit_code)
        return 1
    return 0


def leave(code: int) -> NoReturn:
    """Ends this process now, without the interpreter's own end: with torch that takes 0.6 s, and others have died of it.

    For the last line of a child's module: what it had to write is written, and sessions are closed.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # what a library printed through C's own buffers
    os._exit(code)


@dataclass(eq=False)
class Child:
    """A running child process and the pipe that its events come through."""

    process: subprocess.Popen[bytes]
    pipe: IO[bytes]

    @classmethod
    def start(
        cls, module: str, job: Path, log: Path, env: Mapping[str, str] | None = None, *, told: bool = False
    ) -> Child:
        """Runs ``python -m module job``; its output goes to ``log``. A session of its own keeps Ctrl-C from it.

        ``told``: it can be sent lines by ``tell``; else its standard input is empty.
        """
        read, write = os.pipe()
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", module, str(job)],
                stdin=subprocess.PIPE if told else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(write,),
                start_new_session=True,
                env={**os.environ, **(env or {}), _FD: str(write), "PYTHONUNBUFFERED": "1"},
            )
        os.close(write)
        return cls(process, os.fdopen(read, "rb", buffering=0))

    def events(self, tick_s: float = 0.5) -> Iterator[dict[str, Any] | None]:
        """Yields each event as it comes, and None every ``tick_s`` seconds without one; ends when the child has."""
        pending = b""
        with DefaultSelector() as selector:
            selector.register(self.pipe, EVENT_READ)
            while True:
                if not selector.select(tick_s):
                    yield None
                    continue
                block = os.read(self.pipe.fileno(), 1 << 16)
                if not block:
                    break
                *lines, pending = (pending + block).split(b"\n")
                for line in lines:
                    yield json.loads(line)
        self.process.wait()

    def tell(self, line: str) -> None:
        """Writes a line to the child's standard input. A child that is gone does not hear it: its events end, too."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()

    def kill(self) -> None:
        """Ends the child now (SIGKILL: LoadGen is deaf to everything else) and waits for it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.pipe.close()
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()


def cause_of_death(code: int, log: Path, oom_killed: bool) -> tuple[str, str]:
    """A child's exit status in words: a stable code and one line."""
    tail = last_line(log)
    said = f"; its last line was: {tail}" if tail else ""
    if code >= 0:
        return "crashed", f"the worker ended with exit code {code}{said}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if oom_killed:
        return "out-of-memory", f"the kernel killed the worker ({name}) because memory ran out"
    if name == "SIGILL":
        return "illegal-instruction", f"the worker died of {name}: a library uses an instruction this CPU lacks{said}"
    if name == "SIGKILL":
        return "killed", f"the worker was killed ({name}), and the kernel counted no out-of-memory kill"
    return "crashed", f"the worker died of {name}{said}"


def last_line(log: Path) -> str:
    """The last non-empty line of a log, shortened; empty where there is none."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
