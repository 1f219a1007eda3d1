"""``python -m benchmarks.harness_child JOB``: LoadGen (it runs once a process) and a bare loop over one session, in turn."""

from __future__ import annotations

import math
import random
import statistics
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.cells import profile
from benchmarks.harness import Job
from edgeq.artifact import read_manifest
from edgeq.backends import open_session, preload
from edgeq.backends.session import Array, Session, SessionOptions
from edgeq.data.samples import open_samples
from edgeq.events import emit, serve
from edgeq.loadgen.drive import drive
from edgeq.loadgen.plan import plan_run
from edgeq.loadgen.settings import loadgen_module
from edgeq.run.canary import time_queries
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import SINGLE_STREAM

#: Seconds that warming up may take.
WARM_UP_S = 5.0


class Loop:
    """A bare loop that takes turns with LoadGen, in its thread: a slice after each ``every`` of its answers.

    It begins where LoadGen has been given an answer and has not asked again, which is in no query's time. The samples come
    in random order, as LoadGen's do: what the caches hold is the same.

    Attributes:
        took_ms: Milliseconds of each call.
        slices: How many there were.
    """

    def __init__(self, session: Session, batches: Sequence[Array], slice_s: float, every: int) -> None:
        """``batches`` are ``[1, *shape]``."""
        self._infer, self._slice_s, self._every, self._left = session.infer, slice_s, every, every
        self._order = random.Random(0).choices(batches, k=4096)
        self.took_ms, self.slices = array("d"), 0

    def after(self, complete: Callable[[list[Any]], None]) -> Callable[[list[Any]], None]:
        """LoadGen's ``QuerySamplesComplete``, with a slice behind each ``every``-th call."""

        def answered(responses: list[Any]) -> None:
            complete(responses)
            self._left -= 1
            if not self._left:
                self._left = self._every
                self.take()

        return answered

    def take(self) -> None:
        """One slice."""
        self.slices += 1
        now, infer, order, found = time.perf_counter_ns, self._infer, self._order, self.took_ms
        until = now() + round(self._slice_s * 1e9)
        while (began := now()) < until:
            infer(order[len(found) % len(order)])
            found.append((now() - began) / 1e6)


class Watched:
    """A ``System`` that notes what each ``infer`` takes, in milliseconds."""

    def __init__(self, session: Session) -> None:
        self._session, self.classes, self.took_ms = session, session.classes, array("d")
        self.infer_many = session.infer_many

    def infer(self, batch: Array) -> Array:
        """``System.infer``."""
        began = time.perf_counter_ns()
        logits = self._session.infer(batch)
        self.took_ms.append((time.perf_counter_ns() - began) / 1e6)
        return logits


def _work(job: Job) -> None:
    manifest, library = read_manifest(job.manifest), open_samples(job.samples)
    preload(manifest.backend)
    session = open_session(manifest, job.file, SessionOptions(threads=job.threads))
    layout, shape = session.input.layout, session.input.shape
    block = np.empty((library.count, *shape), np.float32)
    library.load_into(block, range(library.count), layout)
    time_queries(session, [block[0]], WARM_UP_S)
    batches = [block[index : index + 1] for index in range(len(block))]
    alone = Loop(session, batches, job.slice_s, 1)
    alone.take()
    # By the fastest of them: on a disturbed machine LoadGen must not run out of queries where the disturbance ends.
    fastest_s = min(alone.took_ms) / 1e3
    plan = plan_run(profile(job.seconds, library.count), SINGLE_STREAM, fastest_s, library.count).plan
    watched = Watched(session)
    lg: Any = loadgen_module()
    loop = Loop(session, batches, job.slice_s, math.ceil(job.slice_s / fastest_s))
    lg.QuerySamplesComplete = loop.after(lg.QuerySamplesComplete)
    outcome = drive(watched, library, plan, job.log_dir, layout, shape)
    if not outcome.valid:
        raise EdgeqError(
            "LoadGen calls the run invalid", "; ".join(outcome.reasons), "try again", code="loadgen-invalid"
        )
    assert outcome.times is not None
    # ``drive`` itself infers a sample before the run and one after it. A slice of the loop is in one of many.
    beside = outcome.times.latencies_ms - np.array(watched.took_ms)[1:-1]
    emit(
        "result", loop_ms=statistics.median(loop.took_ms), loadgen_ms=outcome.latency_ms["p50"], calls=len(loop.took_ms),
        beside_us=float(np.median(beside)) * 1e3, queries=outcome.queries, slices=loop.slices,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(serve(sys.argv, Job, _work))
