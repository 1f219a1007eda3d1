"""``results/<device>/<run>/``: made once, added to, never rewritten; and found again by ``--resume``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edgeq.files import write_error, write_json
from edgeq.run.record import record_path
from edgeq.spec.errors import EdgeqError, RequestError
from edgeq.spec.names import Cell

SCHEMA = 1


@dataclass(frozen=True)
class RunFolder:
    """One run on one device."""

    path: Path
    id: str
    request: dict[str, Any]
    cells: tuple[str, ...]

    def record(self, cell: Cell) -> Path:
        return record_path(self.path, cell)


def set_aside(path: Path) -> None:
    """Renames the record at ``path`` out of the way of the next try, which does not overwrite it."""
    if path.is_file():
        path.rename(next_try(path))


def next_try(path: Path) -> Path:
    """Where a record at ``path`` is kept when another takes its place: the next free ``record.try-N.json``."""
    return path.with_name(f"record.try-{1 + sum(1 for _ in path.parent.glob('record.try-*.json'))}.json")


def create_run(results: Path, device: str, profile: str, request: dict[str, Any], cells: Sequence[Cell]) -> RunFolder:
    """Makes the folder of a new run and its ``run.json``.

    Raises:
        EdgeqError: the folder can't be made or written (``cannot-write``, ``disk-full``).
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    try:
        path = _fresh_folder(results / device, f"{stamp}-{profile}")
    except OSError as error:
        raise write_error(results / device, error) from error
    names = [str(cell) for cell in cells]
    document = {
        "schema": SCHEMA,
        "run": path.name,
        "device": device,
        "started": datetime.now(UTC).isoformat(),
        "profile": request["profile"],
        "request": request,
        "cells": names,
    }
    write_json(path / "run.json", document)
    return RunFolder(path, path.name, request, tuple(names))


def _fresh_folder(parent: Path, name: str) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    attempt = 1
    while True:
        path = parent / (name if attempt == 1 else f"{name}-{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            attempt += 1
        else:
            return path


def resume_run(results: Path, device: str, request: dict[str, Any]) -> RunFolder:
    """The newest run on this device that was asked for with the same request.

    Raises:
        RequestError: there is none; the message says what differs from the newest.
    """
    runs = sorted(path.parent for path in (results / device).glob("*/run.json"))
    if not runs:
        raise RequestError(
            "nothing to resume",
            f"no run under {results / device}",
            "start one: the same command without --resume",
            code="nothing-to-resume",
        )
    for path in reversed(runs):
        document = _read_run(path / "run.json")
        if document["request"] == request:
            return RunFolder(path, path.name, request, tuple(document["cells"]))
    newest = _read_run(runs[-1] / "run.json")["request"]
    changed = sorted(key for key in {*newest, *request} if newest.get(key) != request.get(key))
    raise RequestError(
        "no run to resume was asked for in this way",
        f"the newest, {runs[-1].name}, differs in: {', '.join(changed)}",
        "repeat the options of that run, or start anew without --resume",
        code="nothing-to-resume",
    )


def _read_run(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        # A run.json from before there were rounds is of one.
        return {"request": {"rounds": 1, **document["request"]}, "cells": document["cells"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EdgeqError(
            f"{path} is damaged",
            str(error),
            f"move {path.parent} away, then start anew without --resume",
            code="bad-run",
        ) from error
