"""Sessions of one number of threads and streams, in a process of their own: ``python -m edgeq.tune.child JOB``.

A process, because PyTorch's number of threads is the process's. It stays for all rounds, and so do its sessions (one a
batch): a turn is then worth some tenths of a second, and many turns fit where few would if each had to load the model.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import psutil
from pydantic import BaseModel, ConfigDict

from edgeq.artifact import Manifest, read_manifest
from edgeq.backends import open_session, preload
from edgeq.backends.batches import collect, one_by_one
from edgeq.backends.session import Array, Session, SessionOptions
from edgeq.data.layout import to_layout
from edgeq.events import emit, leave, serve
from edgeq.logits import alive
from edgeq.run.canary import load_reference
from edgeq.run.steady import settle, time_once
from edgeq.setting import QUERY, Setting
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import OFFLINE, SINGLE_STREAM
from edgeq.spec.note import Note
from edgeq.tune.choice import rate

#: Samples held in memory, as in the profile ``quick``: an inference finds its sample in memory, not in a cache.
RESIDENT = 64
#: A turn asks at least so many queries, or as many as begin within ``LONG_S``; offline, at least one, and each of at
#: least so many calls a stream.
QUERIES, CALLS, LONG_S = 5, 2, 4.0
#: Warming up: a session, at most so many seconds; one that is warm, for another scenario, and before each further turn.
SETTLE_S, ANOTHER_S, AGAIN_S = 1.0, 0.2, 0.05
#: A first inference that takes so many times what is bearable is not followed by another.
HOPELESS = 5.0


class TuneJob(BaseModel):
    """What a process is started with."""

    model_config = ConfigDict(extra="forbid")
    manifest: Path
    file: Path
    key: str
    """The artifact's, which the search was begun with."""
    threads: int
    streams: int
    folder: Path
    """Where logits go."""


class Turn(BaseModel):
    """A line of standard input: time one setting in one scenario. Without a scenario: infer one sample, twice."""

    model_config = ConfigDict(extra="forbid")
    batch: int
    scenario: str | None
    seconds: float
    """To spend on timed queries; for the one sample, what is bearable."""


class Turned(BaseModel):
    """The answer to a ``Turn``."""

    model_config = ConfigDict(extra="forbid")
    rate: float
    """Samples a second: of the median query."""
    best: float
    """The same of the fastest query, which is what it might do undisturbed."""
    queries: int
    seconds: float
    """The whole turn took, with what it needed to open and to warm up."""
    grown: int | None = None
    """Bytes by which the process grew with this session, where the turn opened it."""
    logits: Path | None = None
    """``[n, classes]`` of the reference samples, which take turns, by this setting and scenario: of its first turn."""


class Sessions:
    """The sessions of this process, by batch, and samples for them."""

    def __init__(self, job: TuneJob) -> None:
        """Raises ``EdgeqError``: the artifact is another one by now (``artifact-changed``), the framework is missing."""
        self._job = job
        self._manifest: Manifest = read_manifest(job.manifest)
        if self._manifest.key != job.key:
            raise EdgeqError(
                f"{job.manifest} has been exported anew", "the search was for another file", "run: edgeq tune",
                code="artifact-changed",
            )  # fmt: skip
        preload(self._manifest.backend)
        reference = to_layout(load_reference(self._manifest, job.manifest)[0], self._manifest.input.layout)
        self._references = len(reference)
        self._resident: Array = np.ascontiguousarray(np.resize(reference, (RESIDENT, *reference.shape[1:])))
        self._open: dict[int, Session] = {}
        self._warm: dict[tuple[int, str], float] = {}
        """Seconds a sample by batch and scenario, of what has had a turn."""
        self._next = 0

    def turn(self, turn: Turn) -> Turned:
        """Raises ``EdgeqError`` where the session refuses the setting, or its output is dead (``dead-output``)."""
        began = time.perf_counter()
        session, grown = self._session(turn.batch)
        if turn.scenario is None:
            return self._canary(session, turn.seconds, grown)
        scenario, key, logits = turn.scenario, (turn.batch, turn.scenario), None
        if key not in self._warm:
            logits = self._logits(session, turn)
            self._warm[key] = self._warm_up(session, turn.batch, scenario)
        else:
            _until(self._query(session, scenario, self._size(scenario, turn.batch)), AGAIN_S, 1)
        size = self._size(scenario, turn.batch, self._warm[key], turn.seconds)
        took = _until(self._query(session, scenario, size), turn.seconds, 1 if scenario == OFFLINE else QUERIES)
        found = rate(took, size)
        self._warm[key] = 1 / found
        whole, best = time.perf_counter() - began, size / min(took)
        return Turned(rate=found, best=best, queries=len(took), seconds=whole, grown=grown, logits=logits)

    def _session(self, batch: int) -> tuple[Session, int | None]:
        if batch in self._open:
            return self._open[batch], None
        before = psutil.Process().memory_info().rss
        options = SessionOptions(threads=self._job.threads, streams=self._job.streams, batch=batch)
        session = open_session(self._manifest, self._job.file, options)
        self._many(session, self._job.streams * batch)()
        self._open[batch] = session
        return session, max(0, psutil.Process().memory_info().rss - before)

    def _warm_up(self, session: Session, batch: int, scenario: str) -> float:
        """Seconds a sample, once they have settled."""
        size = self._size(scenario, batch)
        ask = self._query(session, scenario, size)
        if any(warm == batch for warm, _ in self._warm):
            return statistics.median(_until(ask, ANOTHER_S, 1)) / size
        return settle(lambda: time_once(ask), SETTLE_S).typical_s / size

    def _canary(self, session: Session, bearable_s: float, grown: int | None) -> Turned:
        ask = self._query(session, SINGLE_STREAM, 1)
        took = time_once(ask)
        if took < HOPELESS * bearable_s:  # the first one allocates, and makes kernels
            took = time_once(ask)
        return Turned(rate=1 / took, best=1 / took, queries=1, seconds=took, grown=grown)

    def _size(self, scenario: str, batch: int, sample_s: float | None = None, seconds: float = 0.0) -> int:
        """Samples of a query. Offline: a call a stream; with ``sample_s`` known, some, and a third of ``seconds``."""
        if scenario != OFFLINE:
            return 1 if scenario == SINGLE_STREAM else QUERY
        at_once = self._job.streams * batch
        calls = 1 if sample_s is None else max(CALLS, math.ceil(seconds / 3 / sample_s / at_once))
        return calls * at_once

    def _query(self, session: Session, scenario: str, size: int) -> Callable[[], None]:
        """Asks as the scenario does; each query takes the samples that follow those of the last one."""
        if scenario != SINGLE_STREAM:
            return self._many(session, size)

        logits = np.empty((1, session.classes), np.float32)
        calls = [session.bind(self._resident[at : at + 1], logits) for at in range(RESIDENT)]

        def one() -> None:
            at = self._next = (self._next + 1) % RESIDENT
            calls[at]()

        return one

    def _many(self, session: Session, size: int) -> Callable[[], None]:
        def many() -> None:
            first, self._next = self._next, (self._next + size) % RESIDENT
            session.infer_many([self._resident[(first + i) % RESIDENT] for i in range(size)], lambda *_: None)

        return many

    def _logits(self, session: Session, turn: Turn) -> Path:
        """Those of the reference samples, as often as it takes to fill every row of every stream's batch."""
        count = max(self._references, self._job.streams * turn.batch)
        samples = [self._resident[index % RESIDENT] for index in range(count)]
        found = one_by_one(session, np.stack(samples)) if turn.scenario == SINGLE_STREAM else collect(session, samples)
        alive(found)
        setting = Setting(threads=self._job.threads, streams=self._job.streams, batch=turn.batch)
        path = self._job.folder / f"{turn.scenario} {setting.words()}.npy"
        np.save(path, found)
        return path


def _until(ask: Callable[[], None], wanted_s: float, least: int) -> list[float]:
    """Times of queries, until ``wanted_s`` have passed and ``least`` are done; fewer of long ones."""
    took = [time_once(ask)]
    while (spent := sum(took)) < wanted_s or (len(took) < least and spent + took[-1] < LONG_S):
        took.append(time_once(ask))
    return took


def _work(job: TuneJob) -> None:
    """Emits ``ready``, then for each line of standard input ``turned`` or ``refused``."""
    sessions = Sessions(job)
    emit("ready")
    for line in sys.stdin:
        try:
            found = sessions.turn(Turn.model_validate_json(line))
        except EdgeqError as error:
            emit("refused", **Note.of(error).model_dump())
        else:
            emit("turned", **found.model_dump(mode="json"))


def main(argv: Sequence[str]) -> int:
    return serve(argv, TuneJob, _work)


if __name__ == "__main__":
    leave(main(sys.argv))
