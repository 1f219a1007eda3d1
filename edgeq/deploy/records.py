"""Records of a device, brought home: added to what is here, never put over another run's, each whole or absent."""

from __future__ import annotations

import filecmp
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from edgeq.deploy.rsync import bring
from edgeq.deploy.ssh import Device
from edgeq.files import atomic_path, cache_dir, sha256_json
from edgeq.spec.note import Note

_RUN, _RECORD = "run.json", "record.json"


def fetch(device: Device, folder: str, results: Path) -> list[Note]:
    """Brings what is new under ``folder``'s ``results/`` on the device into ``results``; returns what was not taken.

    By way of a copy in the cache, so that a record that the device's card has damaged since does not replace the whole one
    that came before.

    Raises:
        EdgeqError: the connection failed, or the disk here is full.
    """
    mirror = cache_dir() / "devices" / sha256_json([device.address, folder])[:16]
    bring(device, f"{folder}/results", mirror)
    return merge(mirror, results)


def merge(mirror: Path, results: Path) -> list[Note]:
    """Adds the runs of ``mirror`` (``<device>/<run>/…``) to ``results``.

    A run that is here already is the same one where ``run.json`` is the same, byte by byte; only then its files follow the
    device's, as they do where a cell gets another round, or is tried again (its earlier record is ``record.try-N.json``).

    Returns:
        ``other-run`` where a folder here holds another run, which stays; ``damaged-record`` where the device's record can't
        be read, and the one that is here stays.

    Raises:
        EdgeqError: the disk is full, or ``results`` can't be written.
    """
    notes: list[Note] = []
    for head in sorted(mirror.glob(f"*/*/{_RUN}")):
        run = results / head.parent.relative_to(mirror)
        if run.exists() and not _same(head, run / _RUN):
            text = f"{run} holds another run than the device's of that name: nothing in it was replaced"
            notes.append(
                Note(code="other-run", text=text, hint=f"move it away to have the device's: mv {run} {run}-here")
            )
            continue
        for source, place in _files(head.parent, run):
            if _same(source, place):
                continue
            if source.name == _RECORD and place.is_file() and not _readable(source):
                text = f"{place}: the device's own copy of this record is damaged; the one that came before stays"
                notes.append(Note(code="damaged-record", text=text, hint="check the device's card and power supply"))
                continue
            with atomic_path(place) as temporary:
                shutil.copyfile(source, temporary)
    return notes


def _files(source: Path, target: Path) -> Iterator[tuple[Path, Path]]:
    """Each file and its place: ``run.json`` first, and records after what lies beside them, so that none stands alone."""
    files = [path for path in source.rglob("*") if path.is_file() and not path.name.startswith((".partial-", ".lock"))]
    for path in sorted(files, key=lambda path: (path.name != _RUN, path.name == _RECORD, path)):
        yield path, target / path.relative_to(source)


def _same(one: Path, other: Path) -> bool:
    return other.is_file() and filecmp.cmp(one, other, shallow=False)


def _readable(record: Path) -> bool:
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
        return bool(found["status"] and found["cell"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
