"""Rows → the table on the terminal, and the document that is kept."""

from __future__ import annotations

import importlib.metadata
import math
import platform
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.bars import MET, Claim, Row, summary
from benchmarks.bench import Bench
from edgeq import __version__

SCHEMA = 1
#: Columns where there is no terminal: the table is not cut in a log.
WIDTH = 160
_PACKAGES = ("openvino", "ai-edge-litert", "onnxruntime", "torch", "mlcommons-loadgen", "numpy")


def document(rows: Sequence[Row], bench: Bench, began: datetime, stopped: bool) -> dict[str, Any]:
    """JSON values: what was measured, on what, with what, and every round's figures."""
    met, total = summary(rows)
    return {
        "schema": SCHEMA,
        "began": began.isoformat(timespec="seconds"),
        "ended": datetime.now().astimezone().isoformat(timespec="seconds"),
        "stopped": stopped,
        "device": dict(bench.device),
        "versions": {"edgeq": __version__, "python": platform.python_version(), **_versions()},
        "threads": bench.threads,
        "rounds": bench.rounds,
        "met": met,
        "of": total,
        "disturbed_cells": disturbed(rows)[0],
        "rows": [row.as_json() for row in rows],
    }


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def print_table(rows: Sequence[Row], console: Console | None = None) -> None:
    """One line a row; what failed says why below, what did not reach its bar where its time goes."""
    console = _console(console)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("row", no_wrap=True)
    for title in ("edgeq", "other or limit", "ratio", "95 %", "bar"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in rows:
        style = "" if not row.counts else "green" if row.verdict in MET else "red"
        table.add_row(*cells(row), Text(row.verdict, style=style))
    console.print(table)
    for row in rows:
        for note in row.failures:
            lost = "failed" if row.given_up else "lacks a round"
            console.print(f"{row.claim.name} {lost}: {note.text}", markup=False, highlight=False)
    for row in rows:
        if row.verdict not in MET and row.where_ms:
            parts = ", ".join(f"{name} {_duration(ms)}" for name, ms in row.where_ms.items())
            console.print(f"{row.claim.name}, where the time goes: {parts}", markup=False, highlight=False)
    beside, known = disturbed(rows)
    if beside:
        text = f"{beside} of {known} cells ran while other programs used the CPU: the ratios are of a busy machine"
        console.print(text, style="yellow", markup=False, highlight=False)


def _duration(ms: float) -> str:
    return f"{ms / 1e3:.2f} s" if abs(ms) >= 100 else f"{ms * 1e3:+.0f} µs" if abs(ms) < 1 else f"{ms:.2f} ms"


def disturbed(rows: Sequence[Row]) -> tuple[int, int]:
    """How many of the measured cells say ``busy-neighbour``, of how many that tell their warnings."""
    told = [one.detail["warnings"] for row in rows for one in row.rounds if "warnings" in one.detail]
    return sum("busy-neighbour" in codes for codes in told), len(told)


def print_list(claims: Sequence[Claim]) -> None:
    """Name, bar and text of what there is to measure."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for claim in claims:
        table.add_row(claim.name, bar_text(claim), claim.text)
    _console(None).print(table, markup=False)


def _console(given: Console | None) -> Console:
    console = given or Console()
    if not console.is_terminal:
        console.width = max(console.width, WIDTH)
    return console


def bar_text(claim: Claim) -> str:
    """Such as ``≤ 1.02 or +0.05 ms``; empty where there is none."""
    bar = claim.bar
    if bar is None:
        return ""
    slack = "" if bar.slack is None else f" or +{bar.slack:g} {claim.unit}"
    return f"{'≥' if bar.side == 'at least' else '≤'} {bar.ratio:g}{slack}"


def cells(row: Row) -> list[str]:
    """Name, ours, theirs, ratio, interval and bar, as they stand in the table."""
    ratio, said = row.ratio, bar_text(row.claim)
    if ratio is None:
        return [row.claim.name, "", "", "", "", said]
    interval = f"{ratio.low:.3f} to {ratio.high:.3f}" if ratio.n > 1 else ""
    unit = row.claim.unit
    return [
        row.claim.name,
        f"{digits(row.ours)} {unit}",
        f"{digits(row.theirs)} {unit}",
        f"{ratio.middle:.3f}",
        interval,
        said,
    ]


def digits(value: float) -> str:
    """Three digits or more: ``0.0123``, ``4.56``, ``1234``."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value < 1000 else f"{value:.0f}"
