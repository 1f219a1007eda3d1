"""Each known trap stands in docs/traps.md with a test that is there, or with the reason why it has none."""

from __future__ import annotations

import re
from pathlib import Path

TRAPS = range(1, 31)


def _rows(repo: Path) -> dict[int, list[str]]:
    lines = (repo / "docs" / "traps.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if re.match(r"\| \d+ \|", line)]
    return {int(row[0]): row[1:] for row in cells}


def test_every_trap_has_a_test_or_a_reason(repo: Path) -> None:
    rows = _rows(repo)
    assert list(rows) == list(TRAPS)
    for number, (thread, does, tests, reason) in rows.items():
        assert thread, number
        assert does, number
        files = re.findall(r"`([^`]+)`", tests)
        assert files or reason, f"trap {number} has neither"
        for name in files:
            assert (repo / "tests" / name).is_file(), f"trap {number}: {name}"


def test_every_test_of_a_trap_is_listed(repo: Path) -> None:
    listed = " ".join(row[2] for row in _rows(repo).values())
    for path in (repo / "tests" / "traps").glob("test_trap_*.py"):
        assert path.name in listed
        for number in map(int, re.findall(r"_(\d\d)(?=_)", path.name)):
            assert path.name in _rows(repo)[number][2], f"{path.name} is not in row {number}"
