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
from edgeq.report.tables import Table


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
        lines += [*(f"- {escape(sentence)}" for sentence in section.answers), ""]
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
    return str(report.cells.drop(columns=["notes"]).to_csv(index=False))


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
                _show_table(table, console)
        # Last, where the eye is when the command has finished.
        for sentence in section.answers:
            console.print(Text(f"> {sentence}", style="bold green"))


def _show_table(table: Table, console: Console) -> None:
    console.print(Text(f"\n{table.title}", style="bold"))
    if table.kind == "notes":
        for mark, code, what, where, todo in table.rows:
            console.print(Text(f"{mark} {code} ({where}): {what}" + ("" if todo == "-" else f" -> {todo}")))
        return
    console.print(Text(table.context, style="dim"))
    widths = table.widths or (0,) * len(table.header)
    kept = [index for index, width in enumerate(widths) if width <= console.width]
    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for index in kept:
        column = [table.header[index], *(row[index] for row in table.rows)]
        longest = max(len(word) for text in column for word in text.split() or [""])
        align: Literal["left", "right"] = "left" if index in table.text else "right"
        shown.add_column(Text(table.header[index]), justify=align, overflow="fold", min_width=min(longest, 16))
    for row in table.rows:
        shown.add_row(*(Text(row[index]) for index in kept))
    console.print(shown)
    if len(kept) < len(table.header):
        names = "; ".join(name for index, name in enumerate(table.header) if index not in kept)
        console.print(Text(f"In report.md, and in a wider terminal, also: {names}.", style="dim"))
