from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from benchmarks.bars import Bar, Claim, Measured
from benchmarks.bench import Bench, Step, in_turn, measure, tool
from edgeq.spec.errors import EdgeqError
from tests.benchmarks.talking_child import Job

CHILD = "tests.benchmarks.talking_child"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "models", threads=3, rounds=2, target="x86_64", scratch=tmp_path)


def step(name: str, run: Callable[[int], float], rounds: int | None = None) -> Step:
    def measured(turn: int) -> Mapping[str, Measured]:
        return {name: Measured(run(turn), 1.0)}

    return Step((Claim(name, "", "s", Bar("at least", 1.0)),), measured, rounds)


def ignore(name: str, turn: int, turns: int) -> None:
    pass


def test_rounds_go_through_all_steps_forwards_and_backwards_in_turn() -> None:
    said: list[tuple[str, int, int]] = []
    steps = [step("a", lambda turn: turn + 1), step("b", lambda turn: 1.0, rounds=2), step("c", lambda turn: 1.0)]
    rows = list(measure(steps, 3, lambda *what: said.append(what)))
    assert [name for name, _, _ in said] == ["a", "b", "c", "c", "b", "a", "a", "c"]
    assert said[1] == ("b", 1, 2)
    assert [row.claim.name for row in rows[-1]] == ["a", "b", "c"]
    assert [one.ours for one in rows[-1][0].rounds] == [1, 2, 3]
    assert [row.claim.name for row in rows[0]] == ["a"]


def test_a_step_that_fails_once_lacks_a_round_and_one_that_fails_twice_is_given_up() -> None:
    tries: list[int] = []

    def broken(turn: int) -> float:
        tries.append(turn)
        raise EdgeqError("it broke", "on purpose", "mend it")

    def disturbed(turn: int) -> float:
        if turn == 0:
            raise EdgeqError("it broke", "once", "try again")
        return 2.0

    steps = [step("broken", broken), step("disturbed", disturbed)]
    *_, rows = measure(steps, 4, ignore)
    assert tries == [0, 1]
    assert [row.verdict for row in rows] == ["failed", "met"]
    assert len(rows[1].rounds) == 3
    assert rows[1].failures[0].text == "it broke: once"


def test_what_is_not_the_users_to_mend_stops_the_run() -> None:
    with pytest.raises(ZeroDivisionError):
        list(measure([step("a", lambda turn: 1 / 0)], 1, ignore))


@pytest.mark.parametrize(("turn", "order"), [(0, ["ours", "theirs"]), (1, ["theirs", "ours"]), (2, ["ours", "theirs"])])
def test_two_are_measured_in_turn(turn: int, order: list[str]) -> None:
    said: list[str] = []

    def tell(name: str, value: float) -> Callable[[], float]:
        return lambda: said.append(name) or value  # type: ignore[func-returns-value]

    assert in_turn(turn, tell("ours", 3.0), tell("theirs", 2.0)) == Measured(3.0, 2.0)
    assert said == order


def test_a_child_tells_its_result_and_runs_in_edgeqs_environment(bench: Bench) -> None:
    folder = bench.folder("row/a", 0)
    assert bench.child(CHILD, Job(does="answer"), folder) == {"threads": "3", "answer": 42}


def test_a_plain_child_gets_no_setting_of_threads(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert bench.child(CHILD, Job(does="answer"), bench.folder("row/a", 0), plain=True)["threads"] is None


@pytest.mark.parametrize(
    ("does", "code", "why"),
    [("error", "broken", "on purpose"), ("death", "no-figure", "exit code 3"), ("silence", "no-figure", "exit code 0")],
)
def test_a_child_without_a_result_is_an_error_that_says_why(bench: Bench, does: str, code: str, why: str) -> None:
    with pytest.raises(EdgeqError) as raised:
        bench.child(CHILD, Job(does=does), bench.folder("row/a", 0))
    assert raised.value.code == code
    assert why in raised.value.why


def test_folders_of_a_row_are_new_each_time(bench: Bench) -> None:
    assert len({bench.folder("row/a", 1) for _ in range(3)}) == 3


def test_a_tool_runs_in_its_folder_with_the_threads_asked_for(bench: Bench) -> None:
    folder = bench.folder("row/tool", 0)
    code = "import os; open('here', 'w').close(); print(os.environ['OMP_NUM_THREADS'])"
    assert bench.command([sys.executable, "-c", code], folder).strip() == "3"
    assert (folder / "here").is_file()


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        ([sys.executable, "-c", "import sys; print('no such model', file=sys.stderr); sys.exit(7)"], "no such model"),
        (["/nonexistent/tool"], "No such file"),
    ],
)
def test_a_tool_that_fails_says_what_it_said(bench: Bench, argv: list[str], why: str) -> None:
    with pytest.raises(EdgeqError) as raised:
        bench.command(argv, bench.folder("row/tool", 0))
    assert why in raised.value.why


def test_a_tool_that_hangs_is_stopped(bench: Bench) -> None:
    argv = [sys.executable, "-c", "import threading; threading.Event().wait()"]
    with pytest.raises(EdgeqError, match="longer than"):
        bench.command(argv, bench.folder("row/tool", 0), limit_s=0.5)


def test_a_tool_that_is_not_installed_is_named() -> None:
    with pytest.raises(EdgeqError, match="no-such-tool is not installed"):
        tool("no-such-tool")
