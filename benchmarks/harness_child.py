"""``python -m benchmarks.harness_child JOB``: LoadGen (it runs once a process) and a bare loop over one session, in turn."""

from __future__ import annotations

import math
import random
import statistics
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.cells import profile
from benchmarks.harness import Job
from edgeq.artifact import read_manifest
from edgeq.backends import open_session, preload
from edgeq.backends.session import Array, Call, Session, SessionOptions
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

Milliseconds = npt.NDArray[np.float64]


class Loop:
    """A bare loop that takes turns with LoadGen, in its thread: a slice after each ``every`` of its answers.

    It begins where LoadGen has been given an answer and has not asked again, which is in no query's time. The samples come
    in random order, as LoadGen's do: what the caches hold is the same.

    Attributes:
        took_ms: Milliseconds of each call.
        marks: Where each slice began: how many of LoadGen's queries had been answered, and how many calls made.
    """

    def __init__(self, calls: Sequence[Call], slice_s: float, every: int) -> None:
        """``calls`` are of the session (``Session.bind``), one a sample."""
        self._slice_s, self._every, self._left = slice_s, every, every
        self._order = random.Random(0).choices(calls, k=4096)
        self.took_ms, self._answers = array("d"), 0
        self.marks: list[tuple[int, int]] = []

    def after(self, complete: Callable[[list[Any]], None]) -> Callable[[list[Any]], None]:
        """LoadGen's ``QuerySamplesComplete``, with a slice behind each ``every``-th call."""

        def answered(responses: list[Any]) -> None:
            complete(responses)
            self._answers += 1
            self._left -= 1
            if not self._left:
                self._left = self._every
                self.take()

        return answered

    def take(self) -> None:
        """One slice."""
        self.marks.append((self._answers, len(self.took_ms)))
        now, order, found = time.perf_counter_ns, self._order, self.took_ms
        until = now() + round(self._slice_s * 1e9)
        while (began := now()) < until:
            order[len(found) % len(order)]()
            found.append((now() - began) / 1e6)


class Watched:
    """A ``System`` that notes what each bound call takes, in milliseconds."""

    def __init__(self, session: Session) -> None:
        self._session, self.classes, self.took_ms = session, session.classes, array("d")
        self.infer, self.infer_many = session.infer, session.infer_many

    def bind(self, batch: Array, logits: Array) -> Call:
        """``System.bind``."""
        call, now, found = self._session.bind(batch, logits), time.perf_counter_ns, self.took_ms

        def timed() -> None:
            began = now()
            call()
            found.append((now() - began) / 1e6)

        return timed


def apart_ms(queries: Milliseconds, calls: Milliseconds, marks: Sequence[tuple[int, int]]) -> float:
    """How much longer a query takes than a call in the slices before and after it: the median over stretches of queries.

    A machine that is slow in one second and fast in the next moves both alike, and not their difference.

    Args:
        queries: Of each query, in order, ``[queries]``; NaN where it is not to count.
        calls: Of each call of the loop, in order, ``[calls]``.
        marks: For each slice of the loop, in order: how many queries and how many calls were before it.

    Raises:
        EdgeqError: there are fewer than two slices with queries between them (code ``no-figure``).
    """
    beyond, begins = [], [*(begin for _, begin in marks), len(calls)]
    slices = [float(np.median(calls[begin:end])) for begin, end in pairwise(begins)]
    for index, ((answered, _), (until, _)) in enumerate(pairwise(marks)):
        if np.isfinite(queries[answered:until]).any():
            beside = (slices[index] + slices[index + 1]) / 2
            beyond.append(np.nanmedian(queries[answered:until]) - beside)
    if not beyond:
        raise EdgeqError(
            "there is nothing to compare", "LoadGen ended within two slices", "try again", code="no-figure"
        )
    return float(np.median(beyond))


def _work(job: Job) -> None:
    manifest, library = read_manifest(job.manifest), open_samples(job.samples)
    preload(manifest.backend)
    session = open_session(manifest, job.file, SessionOptions(threads=job.threads))
    layout, shape = session.input.layout, session.input.shape
    block = np.empty((library.count, *shape), np.float32)
    library.load_into(block, range(library.count), layout)
    time_queries(session, [block[0]], WARM_UP_S)
    logits = np.zeros((1, session.classes), np.float32)
    bound = [session.bind(block[index : index + 1], logits) for index in range(len(block))]
    alone = Loop(bound, job.slice_s, 1)
    alone.take()
    # By the fastest of them: on a disturbed machine LoadGen must not run out of queries where the disturbance ends.
    fastest_s = min(alone.took_ms) / 1e3
    plan = plan_run(profile(job.seconds, library.count), SINGLE_STREAM, fastest_s, library.count).plan
    watched = Watched(session)
    lg: Any = loadgen_module()
    loop = Loop(bound, job.slice_s, math.ceil(job.slice_s / fastest_s))
    lg.QuerySamplesComplete = loop.after(lg.QuerySamplesComplete)
    outcome = drive(watched, library, plan, job.log_dir, layout, shape)
    if not outcome.valid:
        raise EdgeqError(
            "LoadGen calls the run invalid", "; ".join(outcome.reasons), "try again", code="loadgen-invalid"
        )
    assert outcome.times is not None
    infers = np.array(watched.took_ms)[: outcome.queries]  # drive itself infers a sample after the run
    queries = outcome.times.latencies_ms
    queries[[answered - 1 for answered, _ in loop.marks]] = np.nan  # a slice was in their callback
    calls, loop_ms = np.array(loop.took_ms), statistics.median(loop.took_ms)
    # LoadGen's figure is of its whole run. What lies between its calls is the same in each slice.
    around = outcome.latency_ms["p50"] - float(np.nanmedian(queries))
    where = {
        "the call itself, between LoadGen's queries": apart_ms(infers, calls, loop.marks),
        "edgeq's callback beside it": float(np.nanmedian(queries - infers)),
        "LoadGen around the callback": around,
    }
    emit(
        "result", loop_ms=loop_ms, ours_ms=loop_ms + apart_ms(queries, calls, loop.marks) + around, where_ms=where,
        loadgen_p50_ms=outcome.latency_ms["p50"], calls=len(calls), queries=outcome.queries, slices=len(loop.marks),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(serve(sys.argv, Job, _work))
