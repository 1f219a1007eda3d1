"""What ``edgeq report`` calls: write the report, print it, or give it as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from edgeq.files import write_text
from edgeq.report import render
from edgeq.report.document import Report, build
from edgeq.report.frames import plain, records_of
from edgeq.report.overlap import overlap_of
from edgeq.report.table import FULL
from edgeq.spec.errors import RequestError, nearest

__all__ = [
    "FORMATS",
    "as_json",
    "build",
    "check_formats",
    "print_overlap",
    "print_report",
    "show",
    "write",
    "write_report",
]

FORMATS = ("md", "csv")

#: Columns that a terminal needs for all that is shown in one; narrower ones get fewer columns.
_PLAIN_WIDTH = FULL


def check_formats(formats: Sequence[str] | set[str]) -> None:
    """Raises ``RequestError`` (``unknown-format``) naming the formats there are."""
    for name in sorted(formats):
        if name not in FORMATS:
            close = nearest(name, FORMATS)
            raise RequestError(
                f"no report format {name!r}", f"this edgeq writes {', '.join(FORMATS)}",
                f"did you mean {close!r}?" if close else f"use --format {','.join(FORMATS)}", code="unknown-format",
            )  # fmt: skip


def write_report(results: Path, runs: Sequence[Path] | None, out: Path, formats: set[str]) -> list[Path]:
    """Writes ``report.md`` (``md``), and ``cells.csv`` with all figures and one CSV a kind of table (``csv``).

    Args:
        results: The results folder.
        runs: Runs to report, as folders, ``<device>/<run>`` or ids; None or empty for the newest of each device.
        out: The folder to write to.
        formats: Any of ``FORMATS``.

    Returns:
        The files written.

    Raises:
        RequestError: an unknown format or run, or nothing to report; nothing has been written then.
        EdgeqError: the disk is full, or ``out`` can't be written.
    """
    check_formats(formats)
    return write(build(results, runs), out, formats)


def write(report: Report, out: Path, formats: set[str]) -> list[Path]:
    """Writes a report that is built already; as ``write_report``."""
    files: dict[str, str] = {}
    if "md" in formats:
        files["report.md"] = render.markdown(report)
    if "csv" in formats:
        files["cells.csv"] = render.cells_csv(report)
        tables = [table for section in report.sections for table in section.tables]
        for kind in dict.fromkeys(table.kind for table in tables):
            files[f"{kind}.csv"] = render.table_csv([table for table in tables if table.kind == kind])
    for name, text in files.items():
        write_text(out / name, text)
    return [out / name for name in files]


def print_report(results: Path, runs: Sequence[Path] | None = None, console: Console | None = None) -> None:
    """Prints the report to the terminal. Raises as ``write_report`` does."""
    show(build(results, runs), console)


def show(report: Report, console: Console | None = None) -> None:
    """Prints a report that is built already; into a file or a pipe as wide as its tables need."""
    render.show(report, console or _screen())


def _screen() -> Console:
    screen = Console()
    return screen if screen.is_terminal else Console(width=_PLAIN_WIDTH)


def print_overlap(results: Path, runs: Sequence[Path], console: Console | None = None) -> None:
    """Prints two runs cell by cell, and how many of their intervals overlap. Raises as ``overlap_of`` does."""
    _, table, sentence = overlap_of(results, runs)
    screen = console or _screen()
    render.show_table(table, screen)
    screen.print(Text(sentence, style="bold"))


def as_json(report: Report) -> dict[str, Any]:
    """For ``--json``: ``cautions``, ``answers`` (by section) and ``cells`` (all columns of ``cells.csv``)."""
    cells = records_of(plain(report.cells))
    answers = {
        section.title: [answer.text for answer in section.answers] for section in report.sections if section.answers
    }
    return {"cautions": report.cautions, "answers": answers, "cells": cells}
