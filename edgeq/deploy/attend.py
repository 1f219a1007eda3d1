"""On the device: ``edgeq run`` that outlives the connection by which it was started, and can be watched again.

``python3 attend.py start OPTIONS|state|follow OFFSET|stop`` in the folder of an unpacked bundle; packed as it is, so it
knows the standard library alone. What belongs to a run lies in ``.state/``: ``lock``, held by the run as long as it
lives, so that no stale number of a process can be taken for it; ``log``, what it printed; ``run.json``, when and with
which words it was started; ``exit``, its exit code, written last.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

STATE = Path(".state")
#: How often a follower looks for more: rarely, because it shares the cores with what is being measured.
TICK_S = 1.0
#: Exit code of ``start`` where a run is at work already.
BUSY = 75
_CHUNK = 1 << 16


def running() -> bool:
    """Whether a run is at work: it holds the lock, and the kernel takes that from it when it ends, however it does."""
    try:
        with (STATE / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def state() -> dict[str, Any]:
    """``running``; ``exit``, the last run's exit code (None: it is at work, was killed, or there was none); ``arguments``
    and ``started`` (seconds since 1970; None where there was none)."""
    known: dict[str, Any] = {"arguments": None, "started": None, "exit": None}
    with contextlib.suppress(OSError, ValueError):
        known.update(json.loads((STATE / "run.json").read_text(encoding="utf-8")))
    at_work = running()  # asked before the exit code is read, which is written while the lock is held
    with contextlib.suppress(OSError, ValueError):
        known["exit"] = int((STATE / "exit").read_text(encoding="utf-8"))
    return {**known, "running": at_work}


def start(arguments: list[str]) -> int:
    """Starts ``./run.sh run ARGUMENTS`` in a session of its own, its output in the log; returns at once.

    Returns:
        0, or ``BUSY`` where a run is at work, and nothing was started.
    """
    STATE.mkdir(exist_ok=True)
    Path("results").mkdir(exist_ok=True)
    lock = (STATE / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return BUSY
    for name in ("exit", "run.json"):
        (STATE / name).unlink(missing_ok=True)
    log = os.open(STATE / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    if os.fork():
        return 0
    os.setsid()
    # A handler, not "ignore", which the run would inherit: "stop" is meant for it, and this process is to tell its end.
    signal.signal(signal.SIGINT, lambda *_: None)
    about = {"arguments": arguments, "started": time.time(), "session": os.getpid()}
    (STATE / "run.json").write_text(json.dumps(about), encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, number in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, number)
    # The lock goes to whatever this process starts: should it be killed, the run itself still counts as at work.
    os.set_inheritable(lock.fileno(), True)
    code = os.spawnv(os.P_WAIT, "/bin/sh", ["sh", "run.sh", "run", *arguments])
    # A signal is told as a shell tells it.
    (STATE / "exit").write_text(str(code if code >= 0 else 128 - code), encoding="utf-8")
    os._exit(0)


def follow(offset: int) -> None:
    """Writes the log from byte ``offset`` to standard output, as it grows, until the run has ended and all is written, or
    until nobody reads it any more: a connection that was cut leaves no follower behind."""
    reader = select.poll()
    reader.register(sys.stdout, 0)  # only that its other end is closed
    with (STATE / "log").open("rb") as log:
        log.seek(offset)
        while True:
            at_work = running()  # before the read: what is written after it would else be lost
            while block := log.read(_CHUNK):
                sys.stdout.buffer.write(block)
                sys.stdout.buffer.flush()
            if not at_work or reader.poll(1000 * TICK_S):
                return


def stop() -> None:
    """Interrupts the run, as Ctrl-C would: what is finished is kept."""
    session = state().get("session")
    if running() and session:
        os.killpg(int(session), signal.SIGINT)


def main(arguments: list[str]) -> int:
    """The command line: see the module's own words."""
    verb, *rest = arguments
    if verb == "start":
        return start(rest)
    if verb == "state":
        print(json.dumps(state()))
        return 0
    if verb == "stop":
        stop()
        return 0
    try:
        follow(int(rest[0]))
    except (BrokenPipeError, FileNotFoundError):  # whoever watched is gone, or nothing was ever started
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
