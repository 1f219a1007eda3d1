"""A table ready to be written in any format, and how one is laid out from groups of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgeq.report.numbers import NOTHING
from edgeq.report.wording import distinct, joined, name_of
from edgeq.spec.names import BACKENDS, SCENARIOS, SCHEMES

Row = dict[str, Any]

#: Terminals in characters, from which on a column is shown there; ``PAGE`` columns are in files only.
NARROW, MIDDLE, WIDE, FULL, BROAD, PAGE = 0, 120, 160, 180, 200, 1 << 20

_TAGS = ("device", "run", "weights", "profile", "warnings")


@dataclass(frozen=True)
class Table:
    """One table, ready to be written in any format."""

    kind: str
    """``summary``, ``ranking``, ``artifacts``, ``time``, ``not-measured``, ``notes``, ``overhead``, ``emulated`` or
    ``overlap``: the stem of its CSV file."""
    title: str
    context: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    tags: list[dict[str, str]]
    """For each row: device, run, weights, profile and codes of the warnings that bear on it."""
    legend: str = ""
    text: frozenset[int] = field(default_factory=frozenset)
    """Columns of words (left-aligned); the others hold figures."""
    widths: tuple[int, ...] = ()
    """For each column, the width of terminal from which on it is shown there; empty where all always are."""


@dataclass(frozen=True)
class Column:
    """A header, and what stands under it for a group of rows."""

    header: str
    value: Callable[[list[Row]], str]
    words: bool = False
    width: int = NARROW


def lay_out(kind: str, title: str, line: str, columns: Sequence[Column], groups: Sequence[list[Row]],
            legend: str = "") -> Table:  # fmt: skip
    """A table with a row for each of ``groups``."""
    rows = [tuple(column.value(group) or ("" if column.words else NOTHING) for column in columns) for group in groups]
    return Table(
        kind=kind, title=title, context=line, header=tuple(column.header for column in columns), rows=rows,
        tags=[tags(group) for group in groups], legend=legend,
        text=frozenset(index for index, column in enumerate(columns) if column.words),
        widths=tuple(column.width for column in columns),
    )  # fmt: skip


def tags(group: Sequence[Row]) -> dict[str, str]:
    """Warnings of all rows of a group, and what they share."""
    codes = distinct(code for row in group for code in row["warnings"].split())
    shared = {name: joined(row[name] for row in group) for name in _TAGS}
    return {**shared, "cells": ", ".join(f"{name_of(row)} {row['scenario']}" for row in group),
            "warnings": " ".join(codes)}  # fmt: skip


def order(row: Row) -> tuple[int, int, int]:
    """The contract's order of backends, schemes and scenarios."""
    backend = BACKENDS.index(row["backend"]) if row["backend"] in BACKENDS else len(BACKENDS)
    scheme = SCHEMES.index(row["scheme"]) if row["scheme"] in SCHEMES else len(SCHEMES)
    return backend, scheme, SCENARIOS.index(row["scenario"])


def by_artifact(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows grouped by backend and scheme, in the contract's order, each group by scenario."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=order):
        groups.setdefault((row["backend"], row["scheme"]), []).append(row)
    return list(groups.values())


def whose(rows: Sequence[Row], devices: bool) -> list[Column]:
    """Columns for what differs: the device where a report holds several, the weights where these rows do."""
    columns = [Column("device", lambda group: joined(row["device_name"] for row in group), True)] if devices else []
    if len(distinct(row["weights_sha256"] for row in rows)) > 1:
        columns.append(Column("weights", lambda group: joined(row["weights"] for row in group), True))
    return columns


def first(shown: Callable[[Row], str]) -> Callable[[list[Row]], str]:
    """What an artifact's scenarios share, shown once; where they differ all the same, all are shown."""
    return lambda group: joined(text for row in group if (text := shown(row)) != NOTHING) or NOTHING


def worst(group: Sequence[Row], name: str, choose: Callable[..., Any]) -> float | None:
    """The largest or smallest (``choose``) of a column; None where it is empty."""
    values = [row[name] for row in group if row[name] is not None]
    return float(choose(values)) if values else None
