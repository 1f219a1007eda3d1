from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from edgeq.loadgen.log import Outcome
from edgeq.loadgen.times import Times
from edgeq.run import watching
from edgeq.run.watching import FILE_NAME
from edgeq.run.watching import watching as watch


@pytest.fixture(autouse=True)
def _children_find_edgeq(monkeypatch: pytest.MonkeyPatch, repo: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(repo))


Samplers = Callable[[], list[psutil.Process]]


@pytest.fixture
def samplers() -> Samplers:
    """The children that live now and were not there before the test, as another test's server may be."""
    before = psutil.Process().children()

    def found() -> list[psutil.Process]:
        now = [child for child in psutil.Process().children() if child not in before]
        return [child for child in now if child.status() != psutil.STATUS_ZOMBIE]

    return found


def _outcome(begin_s: float, end_s: float) -> Outcome:
    begins, ends = (np.array([round(moment * 1e9)], np.int64) for moment in (begin_s, end_s))
    return Outcome(
        version="", commit="", scenario="SingleStream", mode="", valid=True, reasons=[], errors=0, warnings=0, settings={},
        queries=1, samples=1, duration_s=end_s - begin_s, times=Times(begins, ends, np.ones(1, np.int64)),
    )  # fmt: skip


def test_the_sampler_s_start_is_over_before_and_its_end_after(tmp_path: Path, samplers: Samplers) -> None:
    folder = tmp_path / "cell"
    with watch(folder) as watched:
        assert (folder / FILE_NAME).read_text().count("\n") >= 1
        assert len(samplers()) == 1
    assert samplers() == []
    assert watched.note is None
    assert watched.lines[-1]["end"] is True
    begin, end = watched.lines[0]["t"], watched.lines[-1]["t"]
    during = watched.during(_outcome(begin, end))
    assert during is not None
    assert (during.samples, during.span_s) == (len(watched.lines), end - begin)


def test_a_sampler_killed_with_9_costs_a_warning_and_leaves_its_lines(tmp_path: Path, samplers: Samplers) -> None:
    with watch(tmp_path) as watched:
        (sampler,) = samplers()
        os.kill(sampler.pid, signal.SIGKILL)
        os.waitid(os.P_PID, sampler.pid, os.WEXITED | os.WNOWAIT)  # dead, and still its parent's to bury
    assert watched.note is not None
    assert watched.note.code == "not-watched"
    assert "only up to a point while it was measured: its sampler was killed (signal 9)" in watched.note.text
    assert "about" in watched.lines[0]
    assert "end" not in watched.lines[-1]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("no-such-python",), "could not be started: No such file or directory"),
        ((sys.executable, "-c", "import sys; sys.exit(3)"), "ended (exit code 3) before its first line"),
        ((sys.executable, "-c", "import os; os.kill(os.getpid(), 4)"), "was killed (signal 4) before its first line"),
    ],
)
def test_a_sampler_that_does_not_come_up_costs_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], said: str
) -> None:
    monkeypatch.setattr(watching, "COMMAND", command)
    with watch(tmp_path) as watched:
        pass
    assert watched.note is not None
    assert (watched.note.code, said in watched.note.text) == ("not-watched", True)
    assert watched.lines == []
    assert watched.during(_outcome(0, 1)) is None


def test_a_sampler_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, samplers: Samplers) -> None:
    monkeypatch.setattr(watching, "COMMAND", (sys.executable, "-c", "import signal; signal.pause()"))
    monkeypatch.setattr(watching, "START_LIMIT_S", 0.1)
    with watch(tmp_path) as watched:
        pass
    assert watched.note is not None
    assert "no first line" in watched.note.text
    assert samplers() == []


def test_a_sampler_deaf_to_its_end_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, samplers: Samplers
) -> None:
    deaf = "import os, signal; os.write(1, b'ready'); signal.pause()"
    monkeypatch.setattr(watching, "COMMAND", (sys.executable, "-c", deaf))
    monkeypatch.setattr(watching, "END_LIMIT_S", 0.1)
    with watch(tmp_path) as watched:
        pass
    assert watched.note is not None
    assert "did not end" in watched.note.text
    assert samplers() == []


def test_what_an_earlier_try_saw_is_not_taken_for_this_one_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FILE_NAME).write_text('{"t": 1.0}\n')
    monkeypatch.setattr(watching, "COMMAND", ("no-such-python",))
    with watch(tmp_path) as watched:
        pass
    assert watched.lines == []


def test_a_failure_in_the_measurement_ends_the_sampler_and_passes(tmp_path: Path, samplers: Samplers) -> None:
    with pytest.raises(ZeroDivisionError), watch(tmp_path) as watched:
        raise ZeroDivisionError
    assert samplers() == []
    assert watched.note is None
