"""Before a cell starts: can its framework be imported here, and will it fit in memory? What can't is a record, no crash."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from edgeq.backends import installed
from edgeq.host import memory
from edgeq.run.expectations import expectations
from edgeq.run.footprint import Footprint, footprint
from edgeq.run.imports import Imported, check_import
from edgeq.run.job import driven_as
from edgeq.run.plan import RunPlan
from edgeq.run.watchdog import Watcher
from edgeq.spec.names import NULL, Cell
from edgeq.spec.note import Note

#: A peak counts files that are mapped, which the kernel can drop: VGG-19 in fp32 ran on TFLite in a control group of 760 MB,
#: 1294 MB at its peak where there was room.
_ANYWAY = "; to try it all the same: --ignore-memory"


@dataclass(frozen=True)
class Room:
    """Whether a worker fits: what it takes, and what there is, in bytes."""

    takes: Footprint
    available: int

    @property
    def fits(self) -> bool:
        """False only where not even the least that such a cell was seen to take can be had."""
        return self.takes.least <= self.available

    @property
    def tight(self) -> bool:
        return self.takes.most > self.available


class Preflight:
    """One run's checks; each framework is imported once at most, before the first cell of its backend."""

    def __init__(self, plan: RunPlan, watcher: Watcher) -> None:
        self._plan, self._request, self._watcher = plan, plan.request, watcher
        self._imported: dict[str, Imported] = {}

    def notes(self) -> list[Note]:
        """What the device's instruction sets let one expect of this run: told once, and no warning of any figure."""
        if set(self._request.backends) == {NULL}:
            return []
        return expectations(self._request.device, self._request.schemes)

    def dead(self, backend: str) -> bool:
        """Whether its import was tried in this run, and failed."""
        return backend in self._imported and self._imported[backend].note is not None

    def refusal(self, cell: Cell, mode: str = "performance") -> tuple[str, Note] | None:
        """Why a cell whose artifact is there is not measured: the status of its record and the reason."""
        imported = self._import(cell.backend)
        if imported.note is not None:
            return "failed", imported.note
        room = self._room(cell, mode)
        if room is None or room.fits or self._request.ignore_memory:
            return None
        return "skipped", self._too_little(cell, mode, room)

    def warnings(self, cell: Cell) -> list[Note]:
        """``tight-memory`` where a cell is tried though it may not fit."""
        room = self._room(cell, "performance")
        if room is None or not room.tight:
            return []
        text = f"it may take up to {_mb(room.takes.most)} MB, {_mb(room.available)} MB could be had without swapping"
        return [Note(code="tight-memory", text=text, hint="end other programs, then run it again")]

    def _import(self, backend: str) -> Imported:
        if backend not in self._imported:
            what = f"{backend}: is it fit for this CPU?"
            request = self._request
            self._imported[backend] = check_import(
                backend, request.device, request.threads, lambda _, step: self._watcher.phase(what, step)
            )
        return self._imported[backend]

    def _room(self, cell: Cell, mode: str) -> Room | None:
        """None where the device does not tell."""
        manifest, framework = self._plan.manifest(cell), self._import(cell.backend).peak_rss
        available = memory.available()
        if manifest is None or framework is None or available is None:
            return None
        samples, profile = self._plan.samples[cell.model], self._request.profile
        setting = self._plan.setting(replace(cell, scenario=driven_as(mode, cell.scenario)))[0]
        takes = footprint(
            cell.backend, cell.scheme, framework=framework, artifact=manifest.bytes,
            sample=4 * math.prod(manifest.input.shape), resident=min(profile.resident_samples, samples.count),
            setting=setting,
        )  # fmt: skip
        return Room(takes, available)

    def _too_little(self, cell: Cell, mode: str, room: Room) -> Note:
        total = memory.total()
        of = "" if total is None else f" of {_mb(total)} MB"
        text = f"it would take about {room.takes.words()}, and {_mb(room.available)} MB{of} can be had"
        return Note(code="too-little-memory", text=text, hint=self._what_fits(cell, mode, room))

    def _what_fits(self, cell: Cell, mode: str, room: Room) -> str:
        """Another artifact of the same model, of the same backend first, the nearest to float."""
        other = [
            Cell(cell.model, backend, scheme, cell.scenario)
            for model, backend, scheme in sorted(self._plan.found, key=lambda key: key[1] != cell.backend)
            if model == cell.model and installed(backend)
        ]
        for each in other:
            manifest = self._plan.manifest(each)
            if (
                each == cell
                or manifest is None
                or manifest.status != "ok"
                or self._import(each.backend).note is not None
            ):
                continue
            found = self._room(each, mode)
            if found is not None and not found.tight:
                return f"{each.scheme} on {each.backend} fits: --backend {each.backend} --scheme {each.scheme}{_ANYWAY}"
        limit, total = memory.limit(), memory.total()
        most = min((value for value in (limit, total) if value is not None), default=0)
        if room.takes.most < most:
            return f"end other programs, then run the same command with --resume{_ANYWAY}"
        return f"run a smaller model here, or {cell.model} on a device with more memory{_ANYWAY}"


def _mb(count: int) -> str:
    return f"{count / 1e6:.0f}"
