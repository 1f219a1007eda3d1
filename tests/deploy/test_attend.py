"""A run that outlives whoever started it, told apart from one that died."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgeq.deploy import attend

PROGRAM = attend.__file__


def attended(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, PROGRAM, *words], cwd=folder, capture_output=True)


def state(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(attended(folder, "state").stdout)
    return found


def board(folder: Path, script: str) -> Path:
    """A folder whose ``run.sh`` is ``script``; it waits until ``go`` can be opened for writing, where it reads it."""
    (folder / "run.sh").write_text(f"#!/bin/sh\n{script}\n")
    os.mkfifo(folder / "go")
    return folder


def let_go(folder: Path) -> None:
    (folder / "go").write_text("go\n")


def test_nothing_was_started(tmp_path: Path) -> None:
    assert state(tmp_path) == {"arguments": None, "started": None, "exit": None, "running": False}
    assert attended(tmp_path, "follow", "0").stdout == b""


def test_it_is_at_work_then_has_an_exit_code_and_a_log_from_any_byte(tmp_path: Path) -> None:
    board(tmp_path, 'echo "told: $*"; read go <go; echo done; exit 3')
    assert attended(tmp_path, "start", "--model", "a b").returncode == 0
    known = state(tmp_path)
    assert (known["running"], known["exit"], known["arguments"]) == (True, None, ["--model", "a b"])
    assert attended(tmp_path, "start").returncode == attend.BUSY
    assert state(tmp_path)["arguments"] == ["--model", "a b"]
    let_go(tmp_path)
    assert attended(tmp_path, "follow", "0").stdout == b"told: run --model a b\ndone\n"
    assert attended(tmp_path, "follow", "6").stdout == b"run --model a b\ndone\n"
    assert attended(tmp_path, "follow", "1000").stdout == b""
    known = state(tmp_path)
    assert (known["running"], known["exit"]) == (False, 3)


def test_a_follower_sees_what_is_written_after_it_came(tmp_path: Path) -> None:
    board(tmp_path, "echo first; read go <go; echo last")
    attended(tmp_path, "start")
    follower = subprocess.Popen([sys.executable, PROGRAM, "follow", "0"], cwd=tmp_path, stdout=subprocess.PIPE)
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"first\n"
    let_go(tmp_path)
    assert follower.stdout.read() == b"last\n"
    assert follower.wait() == 0


def test_a_follower_whom_nobody_reads_ends_though_nothing_is_written(tmp_path: Path) -> None:
    board(tmp_path, "echo first; read go <go")
    attended(tmp_path, "start")
    follower = subprocess.Popen([sys.executable, PROGRAM, "follow", "0"], cwd=tmp_path, stdout=subprocess.PIPE)
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"first\n"
    follower.stdout.close()
    assert follower.wait() == 0
    assert state(tmp_path)["running"]
    let_go(tmp_path)


def test_one_that_is_killed_has_no_exit_code_and_another_can_start(tmp_path: Path) -> None:
    board(tmp_path, "echo here; read go <go; echo not reached")
    attended(tmp_path, "start")
    os.killpg(state(tmp_path)["session"], signal.SIGKILL)
    assert attended(tmp_path, "follow", "0").stdout in (b"here\n", b"")  # returns: nobody holds the lock
    known = state(tmp_path)
    assert (known["running"], known["exit"]) == (False, None)
    (tmp_path / "run.sh").write_text("exit 0")
    assert attended(tmp_path, "start").returncode == 0
    attended(tmp_path, "follow", "0")
    assert state(tmp_path)["exit"] == 0


def test_stop_interrupts_it_as_the_keyboard_would(tmp_path: Path) -> None:
    board(tmp_path, 'trap "echo stopped; exit 1" INT; echo here; read go <go')
    attended(tmp_path, "start")
    follower = subprocess.Popen([sys.executable, PROGRAM, "follow", "0"], cwd=tmp_path, stdout=subprocess.PIPE)
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"here\n"
    assert attended(tmp_path, "stop").returncode == 0
    assert follower.stdout.read().endswith(b"stopped\n")
    assert state(tmp_path)["exit"] == 1
    assert attended(tmp_path, "stop").returncode == 0


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_it_holds_no_stream_of_the_connection_that_started_it(tmp_path: Path, stream: int) -> None:
    board(tmp_path, "readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2")
    attended(tmp_path, "start")
    shown = attended(tmp_path, "follow", "0").stdout.decode().splitlines()
    assert shown[stream] == ("/dev/null" if stream == 0 else str(tmp_path / ".state" / "log"))
