from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from edgeq.events import Child, cause_of_death, last_line

TALKER = """
import os, sys
from edgeq.events import die_with_parent, emit
die_with_parent()
print("noise that a framework prints")
emit("phase", name="load", limit_s=1)
emit("note", text="µ" * 70000)
{rest}
"""


@pytest.fixture
def talk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts a child whose module ends with the given lines."""

    def start(rest: str = "") -> tuple[Child, Path]:
        (tmp_path / "talker.py").write_text(TALKER.format(rest=rest))
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).resolve().parents[1]}")
        log = tmp_path / "child.log"
        return Child.start("talker", tmp_path / "job", log), log

    return start


def test_events_come_whole_and_noise_goes_to_the_log(talk: Any) -> None:
    child, log = talk()
    events = [event for event in child.events(0.01) if event is not None]
    assert [event["event"] for event in events] == ["phase", "note"]
    assert len(events[1]["text"]) == 70000
    assert child.process.returncode == 0
    assert last_line(log) == "noise that a framework prints"


def test_a_child_leaves_with_its_code_and_what_it_printed_but_no_farewell(talk: Any) -> None:
    rest = "import atexit, ctypes; atexit.register(print, 'farewell'); from edgeq.events import leave\n"
    child, log = talk(rest + "ctypes.CDLL(None).puts(b'said by a library'); leave(3)")
    assert [event["event"] for event in child.events(0.01) if event is not None] == ["phase", "note"]
    assert child.process.returncode == 3
    assert last_line(log) == "said by a library"


def test_a_silent_child_still_lets_the_watchdog_look(talk: Any) -> None:
    child, _ = talk("import signal; signal.pause()")
    events = child.events(0.001)
    seen = [next(events) for _ in range(3)]
    while seen[-1] is not None:
        seen.append(next(events))
    child.kill()
    assert child.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("rest", "code"),
    [
        ("os.kill(os.getpid(), 4)", "illegal-instruction"),
        ("os.kill(os.getpid(), 11)", "crashed"),
        ("os.kill(os.getpid(), 9)", "killed"),
        ("raise RuntimeError('broken')", "crashed"),
    ],
)
def test_a_death_is_put_into_words(talk: Any, rest: str, code: str) -> None:
    child, log = talk(rest)
    list(child.events(0.01))
    found, text = cause_of_death(child.process.returncode, log, oom_killed=False)
    assert found == code
    assert ("broken" in text) == ("RuntimeError" in rest)


def test_the_kernels_out_of_memory_kill_is_told_from_a_persons(tmp_path: Path) -> None:
    assert cause_of_death(-9, tmp_path / "no.log", oom_killed=True)[0] == "out-of-memory"


def test_a_worker_does_not_outlive_its_parent(tmp_path: Path) -> None:
    """The parent is killed with SIGKILL, so that nothing of its own can tidy up."""
    (tmp_path / "talker.py").write_text(TALKER.format(rest="import signal; signal.pause()"))
    parent = (
        "import os, sys, pathlib, signal\n"
        "from edgeq.events import Child\n"
        "child = Child.start('talker', pathlib.Path('job'), pathlib.Path('child.log'))\n"
        "next(event for event in child.events(0.01) if event is not None)\n"
        "print(child.process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = f"{tmp_path}:{Path(__file__).resolve().parents[1]}"
    done = subprocess.run(
        [sys.executable, "-c", parent], cwd=tmp_path, env={"PYTHONPATH": path}, capture_output=True, text=True
    )
    pid = int(done.stdout)
    if psutil.pid_exists(pid):
        psutil.Process(pid).wait(timeout=30)
    assert not psutil.pid_exists(pid)
