"""The processes of a search: one for each number of threads and streams, told a turn at a time, all of them watched."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgeq.artifact import Manifest
from edgeq.events import Child, cause_of_death
from edgeq.files import write_json
from edgeq.host.memory import OomKills, available, oom_kills
from edgeq.host.threads import environment
from edgeq.run.footprint import footprint
from edgeq.setting import Setting
from edgeq.spec.errors import EdgeqError
from edgeq.tune import memory
from edgeq.tune.child import TuneJob, Turn, Turned

MODULE = "edgeq.tune.child"
#: Loading a large model from a slow card, and a first inference without a kernel for it, may take so long.
LIMIT_S = 300.0

#: Threads and streams.
Pair = tuple[int, int]


@dataclass
class _Worker:
    child: Child
    log: Path
    before: OomKills
    events: Iterator[dict[str, Any] | None]
    batches: set[int] = field(default_factory=set)
    """Of the sessions that it has open."""


class Workers:
    """Sessions stay open from turn to turn as long as memory allows; a process that dies costs the turn in hand."""

    def __init__(self, manifest: Path, made: Manifest, file: Path, folder: Path) -> None:
        """``folder`` is a scratch folder; ``file`` is what the backend loads, verified."""
        self._path, self._manifest, self._file, self._folder = manifest, made, file, folder
        self._running: dict[Pair, _Worker] = {}
        self._grown: dict[Setting, int] = {}

    def turn(self, setting: Setting, scenario: str | None, seconds: float, *, must: bool = False) -> Turned:
        """One turn of ``setting``.

        Args:
            scenario: None for a first look at one sample.
            seconds: See ``Turn``.
            must: Try it whatever memory is free: ``edgeq run`` would, too.

        Raises:
            EdgeqError: what the process reported; how it died; that it did not answer (``hung``), or that memory is short
                (``memory``). Another turn can be asked for all the same.
        """
        pair = (setting.threads, setting.streams)
        self._make_room(setting, must=must)
        if pair in self._running and self._running[pair].child.process.poll() is not None:
            self._stop(pair)  # died between two turns, for which this setting is not to blame
        worker = self._running.get(pair) or self._start(pair)
        worker.batches.add(setting.batch)
        worker.child.tell(Turn(batch=setting.batch, scenario=scenario, seconds=seconds).model_dump_json())
        try:
            event = self._answer(worker, setting)
        except EdgeqError:
            self._stop(pair)
            raise
        if event["event"] == "refused":
            worker.batches.discard(setting.batch)
            raise EdgeqError(f"{setting.words()} was refused", event["text"], event["hint"], code=event["code"])
        found = Turned.model_validate({name: value for name, value in event.items() if name != "event"})
        if found.grown is not None:
            self._grown[setting] = found.grown
        return found

    def close(self) -> None:
        """Ends all processes."""
        for pair in list(self._running):
            self._stop(pair)

    def _stop(self, pair: Pair) -> None:
        self._running.pop(pair).child.kill()

    def _start(self, pair: Pair) -> _Worker:
        threads, streams = pair
        name = f"{threads}-{streams}"
        job = TuneJob(
            manifest=self._path, file=self._file, key=self._manifest.key, threads=threads, streams=streams,
            folder=self._folder,
        )  # fmt: skip
        file, log = self._folder / f"{name}.json", self._folder / f"{name}.log"
        write_json(file, job.model_dump(mode="json"))
        before = oom_kills()
        child = Child.start(MODULE, file, log, environment(threads), told=True)
        self._running[pair] = _Worker(child, log, before, child.events())
        return self._running[pair]

    def _answer(self, worker: _Worker, setting: Setting) -> dict[str, Any]:
        deadline = time.monotonic() + LIMIT_S
        for event in worker.events:
            if event is None:
                if time.monotonic() > deadline:
                    raise EdgeqError(
                        f"{setting.words()} was stopped", f"a turn had not ended after {LIMIT_S:.0f} s",
                        "run: edgeq doctor, to see whether the framework runs here at all", code="hung",
                    )  # fmt: skip
            elif event["event"] == "error":
                raise EdgeqError(**{name: event[name] for name in ("what", "why", "hint", "code", "exit_code")})
            elif event["event"] != "ready":
                return event
        code, text = cause_of_death(worker.child.process.returncode, worker.log, oom_kills().since(worker.before))
        raise EdgeqError(f"{setting.words()} was lost", text, "run: edgeq doctor", code=code)

    def _make_room(self, setting: Setting, *, must: bool) -> None:
        """Ends processes, the other ones first, until there is memory for a session of ``setting``."""
        pair = (setting.threads, setting.streams)
        if pair in self._running and setting.batch in self._running[pair].batches:
            return
        made, sample = self._manifest, 4 * math.prod(self._manifest.input.shape)
        expected = footprint(
            made.backend, made.scheme, framework=0, artifact=made.bytes, sample=sample, resident=0, setting=setting
        )
        wanted = memory.needed(setting, expected, sample, self._grown)
        others = sorted(self._running, key=lambda each: each == pair)
        while (free := available()) is not None and wanted > memory.SHARE * free:
            if not others:
                if must:
                    return
                raise EdgeqError(
                    f"{setting.words()} was not tried", f"it may take {wanted / 1e6:.0f} MB, {free / 1e6:.0f} MB are free",
                    "end other programs, then run: edgeq tune --again", code="memory",
                )  # fmt: skip
            self._stop(others.pop(0))
