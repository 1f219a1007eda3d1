"""Results folders with thousands of records, each made of one real record: another cell, run and device."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from edgeq.run.record import record_path
from edgeq.spec.names import BACKENDS, OFFLINE, SCHEMES, STUDY_SCENARIOS, Cell

#: Devices at most, each with one run; runs of a history have the cells of one model.
DEVICES = 10
_OWN = ("cell", "run", "device", "samples_per_second", "latency_ms", "intervals", "rounds")
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Template:
    """A record of a single-stream cell that has the profile of its operators."""

    value: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> Template:
        return cls(json.loads(path.read_text(encoding="utf-8")))

    def write_devices(self, results: Path, count: int) -> None:
        """``count`` records that a report shows, all of them: of up to ten devices, a run each, of as many models."""
        devices = max(1, min(DEVICES, count // 50))
        for number in range(devices):
            share = count // devices + (number < count % devices)
            self._run(results, f"device-{number}", 0, list(itertools.islice(_cells(), share)))

    def write_history(self, results: Path, count: int) -> None:
        """``count`` records of one device in many runs, of which a report shows the newest."""
        cells = list(itertools.islice(_cells(), len(BACKENDS) * len(SCHEMES) * len(STUDY_SCENARIOS)))
        for number in range(0, count, len(cells)):
            self._run(results, "device-0", number // len(cells), cells[: count - number])

    def _run(self, results: Path, slug: str, number: int, cells: Sequence[Cell]) -> None:
        began = _FIRST + timedelta(hours=number)
        folder = results / slug / f"{began.strftime('%Y%m%dT%H%M%SZ')}-{self.value['run']['profile']}"
        for order, cell in enumerate(cells):
            path = record_path(folder, cell)
            path.parent.mkdir(parents=True)
            started = (began + timedelta(seconds=order)).isoformat(timespec="seconds")
            own = json.dumps(self._own(cell, slug, folder.name, order, started))
            path.write_text(own[:-1] + self._shared[cell.scenario == STUDY_SCENARIOS[0]], encoding="utf-8")
        header = {
            "schema": 1,
            "run": folder.name,
            "device": slug,
            "started": began.isoformat(),
            "profile": self.value["run"]["profile"],
            "request": {},
            "cells": [str(cell) for cell in cells],
        }
        (folder / "run.json").write_text(json.dumps(header), encoding="utf-8")

    @cached_property
    def _shared(self) -> dict[bool, str]:
        """What all records have in common, as the rest of a JSON object: with the profile, had once an artifact, or not."""
        rest = {name: each for name, each in self.value.items() if name not in _OWN}
        return {True: ", " + json.dumps(rest)[1:], False: ", " + json.dumps(rest | {"profile": None})[1:]}

    def _own(self, cell: Cell, slug: str, run: str, order: int, started: str) -> dict[str, Any]:
        """A record's own part; its figures are the template's times a factor from 1 to 2 that hangs on the cell."""
        factor = 1 + (order * 37 % 100) / 100
        value = {name: self.value[name] for name in _OWN}
        place = {"model": cell.model, "backend": cell.backend, "scheme": cell.scheme, "scenario": cell.scenario}
        value |= {
            "cell": place,
            "run": {**value["run"], "id": run, "order": order, "started": started},
            "device": {**value["device"], "slug": slug, "name": slug},
            "latency_ms": {name: ms * factor for name, ms in value["latency_ms"].items()},
            "intervals": {name: _scaled(each, factor) for name, each in value["intervals"].items()},
        }
        if cell.scenario == OFFLINE:
            per_second = 1000 / value["latency_ms"]["p50"]
            within = {**next(iter(value["intervals"].values())), "low": 0.98 * per_second, "high": 1.02 * per_second}
            value |= {"samples_per_second": per_second, "latency_ms": None, "intervals": {"samples_per_second": within}}
        (only,) = value["rounds"]
        figures = {name: value[name] for name in only if name in value}
        return {**value, "rounds": [{**only, **figures, "order": order, "started": started}]}


def _scaled(interval: dict[str, Any], factor: float) -> dict[str, Any]:
    return {**interval, "low": interval["low"] * factor, "high": interval["high"] * factor}


def _cells() -> Iterator[Cell]:
    """Cells without end: a whole matrix a model, one model after the other."""
    for number in itertools.count():
        for backend, scheme, scenario in itertools.product(BACKENDS, SCHEMES, STUDY_SCENARIOS):
            yield Cell(f"model_{number}", backend, scheme, scenario)
