"""``python -m benchmarks.harness_child JOB``: bare loop, LoadGen, bare loop over one session. LoadGen runs once a process."""

from __future__ import annotations

import random
import statistics
import sys
import time
from array import array
from collections.abc import Sequence

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
from edgeq.run.canary import time_queries
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import SINGLE_STREAM

#: Seconds that warming up may take.
WARM_UP_S = 5.0


def loop_ms(session: Session, batches: Sequence[Array], seconds: float) -> list[float]:
    """Milliseconds of each ``session.infer``, called for ``seconds`` in turn on ``batches``, each ``[1, *shape]``.

    The samples come in random order, as LoadGen's do: what the caches hold is the same.
    """
    order = random.Random(0).choices(batches, k=4096)
    now, infer = time.perf_counter_ns, session.infer
    found: list[int] = []
    until = now() + round(seconds * 1e9)
    while (began := now()) < until or len(found) < 20:
        infer(order[len(found) % len(order)])
        found.append(now() - began)
    return [took / 1e6 for took in found]


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
    before = loop_ms(session, batches, job.loop_s)
    # By the fastest of them: on a disturbed machine LoadGen must not run out of queries where the disturbance ends.
    wanted, fastest_s = profile(job.loadgen_s, library.count), min(before) / 1e3
    plan = plan_run(wanted, SINGLE_STREAM, fastest_s, library.count).plan
    watched = Watched(session)
    outcome = drive(watched, library, plan, job.log_dir, layout, shape)
    if not outcome.valid:
        raise EdgeqError(
            "LoadGen calls the run invalid", "; ".join(outcome.reasons), "try again", code="loadgen-invalid"
        )
    after = loop_ms(session, batches, job.loop_s)
    loops = [statistics.median(before), statistics.median(after)]
    assert outcome.times is not None
    # ``drive`` itself infers a sample before the run and one after it.
    beside = outcome.times.latencies_ms - np.array(watched.took_ms)[1:-1]
    emit(
        "result", loops_ms=loops, loadgen_ms=outcome.latency_ms["p50"], beside_us=float(np.median(beside)) * 1e3,
        queries=outcome.queries,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(serve(sys.argv, Job, _work))
