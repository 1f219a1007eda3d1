"""A report as Markdown, as CSV, and in the terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len, chop_cells
from rich.console import Console

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
        _say(console, f"! {caution}", "yellow")
    for section in report.sections:
        console.out("")
        _say(console, section.title, "bold")
        for caution in section.cautions:
            _say(console, f"! {caution}", "yellow")
        for table in section.tables:
            if table.kind != "ranking":
                show_table(table, console)
        # Last, where the eye is when the command has finished.
        for answer in section.answers:
            _say(console, f"> {answer.text}", "bold green" if answer.sure else None)


def _say(console: Console, text: str, style: str | None = None) -> None:
    """Prints ``text`` as it is, in lines that the terminal has room for."""
    lines = [line for part in text.split("\n") for line in _fold(part, console.width)]
    console.out("\n".join(lines), style=style, highlight=False)


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
    console.out("")
    _say(console, table.title, "bold")
    if table.kind == "notes":
        for line in _note_lines(table):
            _say(console, line)
        return
    _say(console, table.context, "dim")
    kept = _fitting(table, console.width)
    head, *body = _lines(table, kept, _room(table, kept, console.width))
    console.out(head, style="bold", highlight=False)
    console.out("\n".join(body), highlight=False)
    if table.legend:
        _say(console, table.legend, "dim")
    if len(kept) < len(table.header):
        wider = " and in a wider terminal" if any(table.widths[i] < PAGE for i in _left_out(table, kept)) else ""
        names = "; ".join(table.header[index] for index in _left_out(table, kept))
        _say(console, f"In report.md{wider} also: {names}.", "dim")


def _lines(table: Table, kept: Sequence[int], widths: Sequence[int]) -> Iterator[str]:
    """The header, a rule and each row as lines of text, cells folded to ``widths``.

    What rich's own tables look like, which took nearly half of the time of a report over ten thousand records.
    """
    words = [index in table.text for index in kept]
    yield "\n".join(_side_by_side([_fold(table.header[index], width) for index, width in _zip(kept, widths)], widths, words,
                                  bottom=True))  # fmt: skip
    yield "─" * (sum(widths) + 2 * (len(widths) - 1))
    for row in table.rows:
        yield from _side_by_side([_fold(row[index], width) for index, width in _zip(kept, widths)], widths, words)


def _zip(kept: Sequence[int], widths: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(kept, widths, strict=True)


def _side_by_side(
    cells: Sequence[Sequence[str]], widths: Sequence[int], words: Sequence[bool], *, bottom: bool = False
) -> Iterator[str]:
    """The lines of a row, from the lines of its cells; ``words`` are left-aligned, shorter cells stand at the top."""
    height = max(map(len, cells))
    for number in range(height):
        parts = []
        for lines, width, left in zip(cells, widths, words, strict=True):
            position = number - (height - len(lines) if bottom else 0)
            text = lines[position] if 0 <= position < len(lines) else ""
            room = " " * (width - cell_len(text))
            parts.append(text + room if left else room + text)
        yield "  ".join(parts)


def _fold(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` characters of the terminal, broken at spaces, or where a word is longer."""
    if cell_len(text) <= width:
        return [text]
    lines = [""]
    for word in text.split():
        joint = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joint) <= width:
            lines[-1] = joint
        else:
            lines += chop_cells(word, width)
    return lines if lines[0] else lines[1:]


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

    Where there is not even room for the least widths, the widest columns give way.
    """
    found = [_least_width(table, index) for index in kept]
    use = [max(len(table.header[index]), *(len(row[index]) for row in table.rows), 0) for index in kept]
    spare = width - sum(found) - 2 * (len(kept) - 1)
    while spare > 0 and any(have < need for have, need in zip(found, use, strict=True)):
        for place, need in enumerate(use):
            if found[place] < need and spare > 0:
                found[place] += 1
                spare -= 1
    while spare < 0 and max(found) > 1:
        found[found.index(max(found))] -= 1
        spare += 1
    return found


def _least_width(table: Table, index: int) -> int:
    """Its longest word, at most 16 characters; a figure is not torn from its interval."""
    figures, column = index not in table.text, [row[index] for row in table.rows]
    words = [*table.header[index].split(), *(column if figures else (word for text in column for word in text.split()))]
    return min(max(map(len, words), default=0), 16)
