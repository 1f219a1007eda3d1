"""``results/<device>/<run>/`` → ``Run``: what was asked for, and a record, a reason or a gap for each cell of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edgeq.run.record import FILE_NAME, Record, read_record
from edgeq.spec.errors import EdgeqError, RequestError, unknown_name
from edgeq.spec.names import NULL, Cell
from edgeq.spec.note import Note

RUN_FILE = "run.json"
RUN_SCHEMA = 1


@dataclass(frozen=True)
class Run:
    """One run of one device. Every cell asked for is in ``records``, in ``corrupt``, or in ``missing``."""

    path: Path
    id: str
    device: dict[str, Any]
    profile: dict[str, Any]
    cells: list[Cell]
    records: dict[Cell, Record] = field(default_factory=dict)
    corrupt: dict[Cell, Note] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    """What is wrong with the run's own files."""

    @property
    def missing(self) -> list[Cell]:
        """Cells asked for that have not been run yet."""
        return [cell for cell in self.cells if cell not in self.records and cell not in self.corrupt]

    @property
    def slug(self) -> str:
        return self.path.parent.name

    @property
    def emulated(self) -> bool:
        return bool(self.device.get("emulated"))

    @property
    def only_null(self) -> bool:
        return all(cell.backend == NULL for cell in self.cells)

    @property
    def dates(self) -> tuple[datetime, datetime] | None:
        """When its first and its last turn started; None without a record."""
        started = [text for record in self.records.values() for text in _starts(record)]
        moments = [moment for text in started if (moment := _moment(text))]
        return (min(moments), max(moments)) if moments else None

    @property
    def when(self) -> float:
        """For "the newest": when its last cell started, else when its folder was written (seconds since 1970)."""
        return self.dates[1].timestamp() if self.dates else self.path.stat().st_mtime


def _starts(record: Record) -> list[str]:
    return [record.run.started, *(each.started for each in record.rounds)]


def load_runs(results: Path, named: Sequence[Path] | None = None) -> list[Run]:
    """The runs to report: those named, or the newest of each device.

    A run is named by its folder, by ``<device>/<run>``, or by its id. Without names, a newest run that holds only the
    ``null`` backend comes with the newest that measured models, instead of hiding it.

    Raises:
        RequestError: no results folder (``no-results``), nothing recorded in it (``no-records``), or an unknown run
            (``unknown-name``, with the nearest).
    """
    if not results.is_dir():
        raise RequestError(
            f"no results at {results}", "there is no such folder", "run: edgeq run (or name it with --results DIR)",
            code="no-results",
        )  # fmt: skip
    folders = _folders(results)
    if named:
        chosen = [_load(folder) for folder in dict.fromkeys(_find(results, folders, name) for name in named)]
    else:
        chosen = _newest(_load(folder) for folder in folders)
    if not any(run.records or run.corrupt for run in chosen):
        raise RequestError(
            f"no records under {results}", "no cell has been run to its end", "run: edgeq run", code="no-records"
        )
    return chosen


def older_runs(results: Path, chosen: Sequence[Run]) -> list[Path]:
    """Folders of runs that are under ``results`` and not among ``chosen``."""
    taken = {run.path.resolve() for run in chosen}
    return [folder for folder in _folders(results) if folder.resolve() not in taken]


def _folders(results: Path) -> list[Path]:
    """Run folders: two levels down, with a run file or at least one record."""
    found = [folder for folder in sorted(results.glob("*/*")) if folder.is_dir()]
    return [folder for folder in found if (folder / RUN_FILE).is_file() or next(folder.glob(_RECORDS), None)]


_RECORDS = f"*/*/*/*/{FILE_NAME}"


def _find(results: Path, folders: Sequence[Path], name: Path) -> Path:
    for folder in folders:
        if folder.resolve() in (name.resolve(), (results / name).resolve()) or folder.name == str(name):
            return folder
    if (name / RUN_FILE).is_file():
        return name
    raise unknown_name("run", str(name), [folder.name for folder in folders])


def _newest(runs: Iterable[Run]) -> list[Run]:
    """Of each device the newest run; takes ``runs`` one by one, so that no more than that of their records is in memory."""
    newest: dict[str, dict[bool, Run]] = {}
    for run in runs:
        if run.records or run.corrupt:
            kinds = newest.setdefault(run.slug, {})
            known = kinds.get(run.only_null)
            if known is None or run.when >= known.when:
                kinds[run.only_null] = run
    chosen: list[Run] = []
    for kinds in newest.values():
        models, overhead = kinds.get(False), kinds.get(True)
        chosen += [] if models is None else [models]
        if overhead is not None and (models is None or not any(cell.backend == NULL for cell in models.cells)):
            chosen.append(overhead)
    return chosen


def _load(folder: Path) -> Run:
    notes: list[Note] = []
    header = _header(folder, notes)
    cells = _cells(folder, header, notes)
    records: dict[Cell, Record] = {}
    corrupt: dict[Cell, Note] = {}
    for path in sorted(folder.glob(_RECORDS)):
        parsed = _cell_of(path, notes)
        if parsed is None:
            continue
        try:
            record = read_record(path)
            if record.cell != parsed:
                raise EdgeqError(
                    f"{path} is the record of {record.cell}", f"it stands in the folder of {parsed}",
                    "move it back, or delete it and run: edgeq run --resume", code="bad-record",
                )  # fmt: skip
            records[parsed] = record
        except EdgeqError as error:
            corrupt[parsed] = Note.of(error)
    return Run(
        path=folder, id=folder.name, device=_device(folder, header, records), profile=_profile(header, records),
        cells=list(dict.fromkeys([*cells, *records, *corrupt])), records=records, corrupt=corrupt, notes=notes,
    )  # fmt: skip


def _header(folder: Path, notes: list[Note]) -> dict[str, Any]:
    path = folder / RUN_FILE
    hint = "cells that were never started can't be told; the records that are there are shown"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        notes.append(Note(code="bad-run-file", text=f"cannot read {path}: {error}", hint=hint))
        return {}
    if not isinstance(value, dict) or value.get("schema") != RUN_SCHEMA:
        notes.append(Note(code="bad-run-file", text=f"{path} is not a run file of schema {RUN_SCHEMA}", hint=hint))
        return {}
    return value


def _cells(folder: Path, header: dict[str, Any], notes: list[Note]) -> list[Cell]:
    cells: list[Cell] = []
    for name in header.get("cells") or []:
        try:
            cells.append(Cell.parse(str(name)))
        except RequestError as error:
            notes.append(Note(code="bad-run-file", text=f"{folder / RUN_FILE}: {error}", hint=error.hint))
    return cells


def _cell_of(path: Path, notes: list[Note]) -> Cell | None:
    try:
        return Cell.parse("/".join(path.parts[-5:-1]))
    except RequestError as error:
        notes.append(Note(code="bad-record", text=f"{path}: {error}", hint="delete that folder"))
        return None


def _device(folder: Path, header: dict[str, Any], records: dict[Cell, Record]) -> dict[str, Any]:
    """The device as the records describe it, else as the run file does, else by its folder's name."""
    described = [record.device for record in records.values() if record.device]
    listed = header.get("device")
    base = described[0] if described else listed if isinstance(listed, dict) else {}
    emulated = any(device.get("emulated") for device in [*described, base])
    return {"name": folder.parent.name, "slug": folder.parent.name, **base, "emulated": emulated}


def _profile(header: dict[str, Any], records: dict[Cell, Record]) -> dict[str, Any]:
    listed = header.get("profile")
    if isinstance(listed, dict):
        return listed
    first = next(iter(records.values()), None)
    if isinstance(listed, str):
        return {"name": listed}
    return {"name": first.run.profile, "title": first.run.title} if first else {}


def _moment(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
