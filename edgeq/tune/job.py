"""``edgeq tune``: artifact by artifact, a search, and what it found stored beside the artifact."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from edgeq.artifact import Manifest, exported, find_manifest, read_manifest, verify
from edgeq.backends import require
from edgeq.files import only_one
from edgeq.run.plan import tuning_versions
from edgeq.setting import Tuned, store_tuned, stored, tuning_key
from edgeq.spec.errors import EdgeqError
from edgeq.spec.matrix import matrix
from edgeq.spec.names import Cell
from edgeq.spec.note import Note
from edgeq.tune.search import FATAL, Limits, Search
from edgeq.tune.workers import Workers

#: Called with an artifact, and what is going on with it.
OnProgress = Callable[[str, str], None]
#: ``changed`` and ``default``: searched, and which won; ``kept``: found before, under the same key.
Outcome = Literal["changed", "default", "kept", "skipped", "failed"]
#: Reasons for which a cell is skipped: nothing is wrong with it.
_SKIPS = ("too-slow", "too-busy", "not-installed")


@dataclass(frozen=True)
class TuneRequest:
    """Everything that ``edgeq tune`` was asked for."""

    models_dir: Path
    results: Path
    models: Sequence[str]
    backends: Sequence[str]
    schemes: Sequence[str]
    scenarios: Sequence[str]
    threads: int
    target: str
    device: dict[str, Any]
    limits: Limits = field(default_factory=Limits)
    again: bool = False
    """Search anew where a search with the same key is stored."""
    seed: int = 0
    """Of the order of turns."""


@dataclass(frozen=True)
class TunedCell:
    """What became of a cell: ``tuned`` where something is stored for it now, else ``reason``."""

    cell: Cell
    outcome: Outcome
    tuned: Tuned | None = None
    reason: Note | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "cell": self.cell.as_dict(), "outcome": self.outcome,
            "tuned": self.tuned.model_dump(mode="json") if self.tuned else None,
            "reason": self.reason.model_dump(mode="json") if self.reason else None,
        }  # fmt: skip


def tune(request: TuneRequest, on_progress: OnProgress) -> Iterator[TunedCell]:
    """Searches artifact by artifact; yields each cell's outcome once it is stored.

    Raises:
        EdgeqError: a run or another search is at work on this device (code ``busy``), or the disk is full. What was yielded
            is stored.
    """
    artifacts: dict[tuple[str, str, str], list[Cell]] = {}
    with only_one(request.results / str(request.device["slug"]), "edgeq run or edgeq tune"):
        for plan in matrix(request.models, request.backends, request.schemes, request.scenarios):
            cell = plan.cell
            if plan.reason is not None:
                yield TunedCell(cell, "skipped", reason=plan.reason)
            else:
                artifacts.setdefault((cell.model, cell.backend, cell.scheme), []).append(cell)
        for cells in artifacts.values():
            yield from _artifact(request, cells, on_progress)


def _artifact(request: TuneRequest, cells: Sequence[Cell], on_progress: OnProgress) -> Iterator[TunedCell]:
    first, left = cells[0], list(cells)
    try:
        require(first.backend)
        path = find_manifest(request.models_dir, first.model, first.backend, first.scheme, request.target).absolute()
        manifest = read_manifest(path)
        exported(manifest)
        key = tuning_key(manifest, request.device, tuning_versions(first.backend), request.threads)
        for cell in cells if not request.again else ():
            found = stored(path, manifest, cell.scenario, request.threads, key, request.device)
            if found is not None:
                left.remove(cell)
                yield TunedCell(cell, "kept", found)
        if left:
            yield from _search(request, path, manifest, key, left, on_progress)
    except EdgeqError as error:
        if error.code in FATAL:
            raise
        outcome: Outcome = "skipped" if error.code in _SKIPS else "failed"
        yield from [TunedCell(cell, outcome, reason=Note.of(error)) for cell in left]


def _search(
    request: TuneRequest, path: Path, manifest: Manifest, key: str, cells: Sequence[Cell], on_progress: OnProgress
) -> Iterator[TunedCell]:
    name = f"{manifest.model}/{manifest.backend}/{manifest.scheme}"
    on_progress(name, "reading the artifact")
    file = verify(path, manifest, model=manifest.model, backend=manifest.backend, scheme=manifest.scheme)
    with tempfile.TemporaryDirectory(prefix="edgeq-tune-") as folder:
        workers = Workers(path, manifest, file, Path(folder))
        search = Search(
            workers, manifest, [cell.scenario for cell in cells], request.threads, request.limits,
            lambda what: on_progress(name, what), random.Random(f"{request.seed} {name}"),
        )  # fmt: skip
        try:
            chosen = search.run()
        finally:
            workers.close()
    for cell in cells:
        choice = chosen.get(cell.scenario)
        if choice is None:
            yield TunedCell(cell, "failed", reason=search.why_lost(cell.scenario))
            continue
        tuned = search.tuned(cell.scenario, choice, key)
        store_tuned(path, request.device, request.threads, tuned)
        yield TunedCell(cell, "default" if tuned.setting == tuned.default else "changed", tuned)
