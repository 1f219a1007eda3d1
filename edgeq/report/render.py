"""A report as Markdown, as CSV, and in the terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Literal

from rich import box
from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from edgeq.report.document import Report, Section
from edgeq.report.frames import plain
from edgeq.report.gating import GATING
from edgeq.report.table import PAGE, Table


def escape(text: str) -> str:
    """``text`` for a cell of a Markdown table: one line, and nothing in it that would end the cell or start HTML."""
    flat = " ".join(text.split())
    return flat.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("`", "\\`")


def markdown(report: Report) -> str:
    """The whole report as one page."""
    lines = ["# edgeq report", ""]
    lines += [f"> {escape(caution)}\n" for caution in report.cautions]
    answered = [section for section in report.sections if section.answers]
    if answered:
        lines += ["## Answers", ""]
    for section in answered:
        lines += [f"**{escape(section.title)}**", "", *(f"> {escape(caution)}\n" for caution in section.cautions)]
        lines += [*(f"- {escape(answer.text)}" for answer in section.answers), ""]
    for section in report.sections:
        lines += _section(section)
    return "\n".join(lines).rstrip() + "\n"


def _section(section: Section) -> Iterable[str]:
    yield from (f"## {escape(section.title)}", "")
    if not section.answers:
        yield from (f"> {escape(caution)}\n" for caution in section.cautions)
    for table in section.tables:
        if table.title != section.title:
            yield from (f"### {escape(table.title)}", "")
        yield from (f"*{escape(table.context)}*", "")
        yield from _as_list(table) if table.kind == "notes" else _as_table(table)
        yield ""
        if table.legend:
            yield from (escape(table.legend), "")


def _as_table(table: Table) -> Iterable[str]:
    yield "| " + " | ".join(map(escape, table.header)) + " |"
    yield "|" + "|".join("---" if index in table.text else "---:" for index in range(len(table.header))) + "|"
    for row in table.rows:
        yield "| " + " | ".join(map(escape, row)) + " |"


def _as_list(table: Table) -> Iterable[str]:
    """Notes are sentences: a list reads better than a table of five columns."""
    for mark, code, what, where, todo in table.rows:
        hint = "" if todo == "-" else f" *To do:* {escape(todo)}"
        yield f"- {escape(mark)} **{escape(code)}** ({escape(where)}): {escape(what.rstrip('.'))}.{hint}"


def table_csv(tables: Sequence[Table]) -> str:
    """Tables of one kind as one CSV: each row first says its device, run, weights, profile and warnings."""
    columns = list(dict.fromkeys(name for table in tables for name in table.header))
    tags = list(dict.fromkeys(name for table in tables for tag in table.tags for name in tag))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*tags, "table", *columns])
    for table in tables:
        for row, tag in zip(table.rows, table.tags, strict=True):
            values = dict(zip(table.header, row, strict=True))
            writer.writerow([*(tag.get(name, "") for name in tags), table.title, *(values.get(n, "") for n in columns)])
    return out.getvalue()


def cells_csv(report: Report) -> str:
    """One row a cell with all figures, unrounded; an absent figure is an empty field."""
    return str(plain(report.cells).to_csv(index=False))


def show(report: Report, console: Console) -> None:
    """Prints the report: the answers, and for each model its summary, what is missing, and the notes."""
    for caution in report.cautions:
        console.print(Text(f"! {caution}", style="yellow"))
    for section in report.sections:
        console.print(Group(Text(""), Text(section.title, style="bold")))
        for caution in section.cautions:
            console.print(Text(f"! {caution}", style="yellow"))
        for table in section.tables:
            if table.kind != "ranking":
                show_table(table, console)
        # Last, where the eye is when the command has finished.
        for answer in section.answers:
            console.print(Text(f"> {answer.text}", style="bold green" if answer.sure else ""))


#: In a terminal, notes of one code beyond so many are told by one of them: a noisy machine gives every cell its own.
_MOST_ALIKE = 3
#: Not these: each says something of its cell that a reader must know.
_EACH_COUNTS = {*GATING, "saturation", "slower-than-fp32"}


def _note_lines(table: Table) -> Iterable[str]:
    by_code: dict[str, list[Sequence[str]]] = {}
    for row in table.rows:
        by_code.setdefault(row[1], []).append(row)
    for code, rows in by_code.items():
        shown = rows if len(rows) <= _MOST_ALIKE or code in _EACH_COUNTS else rows[:1]
        for mark, _, what, where, todo in shown:
            yield f"{mark} {code} ({where}): {what}" + ("" if todo == "-" else f" -> {todo}")
        if len(shown) < len(rows):
            others = "; ".join(row[3] for row in rows[1:])
            yield f"{rows[0][0]} {code}, likewise in {len(rows) - 1} more, in their own words in report.md: {others}"


def show_table(table: Table, console: Console) -> None:
    """Prints one table, without the columns that the terminal is too narrow for, which it names."""
    console.print(Text(f"\n{table.title}", style="bold"))
    if table.kind == "notes":
        for line in _note_lines(table):
            console.print(Text(line))
        return
    console.print(Text(table.context, style="dim"))
    kept = _fitting(table, console.width)
    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for index, width in zip(kept, _room(table, kept, console.width), strict=True):
        align: Literal["left", "right"] = "left" if index in table.text else "right"
        shown.add_column(Text(table.header[index]), justify=align, overflow="fold", width=width)
    for row in table.rows:
        shown.add_row(*(Text(row[index]) for index in kept))
    console.print(shown)
    if table.legend:
        console.print(Text(table.legend, style="dim"))
    if len(kept) < len(table.header):
        wider = " and in a wider terminal" if any(table.widths[i] < PAGE for i in _left_out(table, kept)) else ""
        names = "; ".join(table.header[index] for index in _left_out(table, kept))
        console.print(Text(f"In report.md{wider} also: {names}.", style="dim"))


def _left_out(table: Table, kept: Sequence[int]) -> list[int]:
    return [index for index in range(len(table.header)) if index not in kept]


def _fitting(table: Table, width: int) -> list[int]:
    """Columns that are shown in a terminal of ``width`` characters: those meant for it, as far as there is room.

    Where these figures are longer than usual, the columns meant for the widest terminals give way, instead of the last.
    """
    widths = table.widths or (0,) * len(table.header)
    kept = [index for index, least in enumerate(widths) if least <= width]
    while sum(_least_width(table, index) + 2 for index in kept) - 2 > width:
        widest = max((widths[index] for index in kept), default=0)
        if widest == 0:
            break
        kept = [index for index in kept if widths[index] < widest]
    return kept


def _room(table: Table, kept: Sequence[int], width: int) -> list[int]:
    """A width for each column: its least, and of what is left as much as it has use for, all growing alike.

    Rich takes from the widest column whatever its least width, gives that back, and cuts off the table's right end.
    """
    found = [_least_width(table, index) for index in kept]
    use = [max(len(table.header[index]), *(len(row[index]) for row in table.rows), 0) for index in kept]
    spare = width - sum(found) - 2 * (len(kept) - 1)
    while spare > 0 and any(have < need for have, need in zip(found, use, strict=True)):
        for place, need in enumerate(use):
            if found[place] < need and spare > 0:
                found[place] += 1
                spare -= 1
    return found


def _least_width(table: Table, index: int) -> int:
    """Its longest word, at most 16 characters; a figure is not torn from its interval."""
    figures, column = index not in table.text, [row[index] for row in table.rows]
    words = [*table.header[index].split(), *(column if figures else (word for text in column for word in text.split()))]
    return min(max(map(len, words), default=0), 16)
