"""Tables in the terminal: as rich lays them out; and what a report spares itself."""

from __future__ import annotations

import gc
import io
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from edgeq.report import write_report
from edgeq.report.render import _fold, _lines, _room, show_table
from edgeq.report.table import Table
from edgeq.run.record import Record
from tests.report.factory import record, write_run

WORDS = st.lists(st.text("ab±é", min_size=1, max_size=9), max_size=5).map(" ".join)


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]], text: frozenset[int] = frozenset()) -> Table:
    tags = [{} for _ in rows]
    return Table(kind="summary", title="t", context="c", header=header, rows=rows, tags=tags, text=text)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    columns = draw(st.integers(1, 4))
    line = st.tuples(*[WORDS] * columns)
    text = frozenset(draw(st.sets(st.integers(0, columns - 1))))
    return _table(draw(line), draw(st.lists(line, max_size=4)), text)


@given(tables(), st.integers(40, 120))
def test_a_table_looks_as_rich_would_draw_it(table: Table, width: int) -> None:
    kept = range(len(table.header))
    widths = _room(table, list(kept), width)
    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for index in kept:
        align: Literal["left", "right"] = "left" if index in table.text else "right"
        drawn.add_column(Text(table.header[index]), justify=align, overflow="fold", width=max(1, widths[index]))
    for row in table.rows:
        drawn.add_row(*map(Text, row))
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(drawn)
    lines = "\n".join(_lines(table, list(kept), [max(1, width) for width in widths])).split("\n")
    assert [line.rstrip() for line in lines] == [line.rstrip() for line in console.export_text().splitlines()]


@given(st.text("ab漢 ", max_size=40), st.integers(2, 10))
def test_folded_lines_fit_and_lose_no_word(text: str, width: int) -> None:
    lines = _fold(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_a_table_wider_than_its_terminal_gives_way_column_by_column() -> None:
    row = ("wordswithoutspaces", "x" * 30, "short")
    console = Console(width=24, file=io.StringIO(), record=True)
    show_table(_table(("one", "two", "three"), [row], frozenset({0, 1, 2})), console)
    lines = console.export_text().splitlines()
    assert max(map(cell_len, lines)) <= 24
    assert any("short" in line for line in lines)


def test_nothing_is_collected_while_a_report_is_made_and_everything_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "r", [record("m/tflite/fp32/offline")])
    seen: list[bool] = []

    def validate(value: object) -> Record:
        seen.append(gc.isenabled())
        raise ValueError("no more")

    monkeypatch.setattr(Record, "model_validate", validate)
    assert gc.isenabled()
    with pytest.raises(ValueError, match="no more"):
        write_report(tmp_path / "r", None, tmp_path / "o", {"md"})
    assert seen == [False]
    assert gc.isenabled()
