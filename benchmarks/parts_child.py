"""``python -m benchmarks.parts_child JOB``: where a single-stream query's time goes, seen from inside edgeq's process.

A run of its own, beside the measured one: looking at the clock between the steps takes time, too.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cells import profile
from benchmarks.harness import Job
from benchmarks.harness_child import WARM_UP_S, Watched
from edgeq.artifact import read_manifest
from edgeq.backends import open_session, preload
from edgeq.backends.session import Array, Call, Session, SessionOptions
from edgeq.data.samples import open_samples
from edgeq.events import emit, serve
from edgeq.loadgen.drive import drive
from edgeq.loadgen.plan import plan_run
from edgeq.run.canary import time_queries
from edgeq.spec.names import SINGLE_STREAM

#: Steps that a session's framework can be seen to take: name → milliseconds of each query.
Steps = defaultdict[str, list[float]]

COPY_IN, COPY_OUT, COMPUTE = "set_tensor, the sample's copy", "get_tensor, the logits' copy", "invoke"
REQUEST = "the request itself, as C++ times it"


class _TimedInterpreter:
    """A TFLite interpreter whose calls are timed."""

    def __init__(self, interpreter: Any, steps: Steps) -> None:
        self._interpreter = interpreter
        self.set_tensor = _timed(interpreter.set_tensor, steps[COPY_IN])
        self.invoke = _timed(interpreter.invoke, steps[COMPUTE])
        self.get_tensor = _timed(interpreter.get_tensor, steps[COPY_OUT])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._interpreter, name)


def _timed(call: Callable[..., Any], took: list[float]) -> Callable[..., Any]:
    def timed(*args: Any) -> Any:
        began = time.perf_counter_ns()
        found = call(*args)
        took.append((time.perf_counter_ns() - began) / 1e6)
        return found

    return timed


class _Requested(Watched):
    """Notes what the request itself took, too, once the clock has been looked at."""

    def __init__(self, session: Session, request: Any, took: list[float]) -> None:
        super().__init__(session)
        self._request, self._took = request, took

    def bind(self, batch: Array, logits: Array) -> Call:
        call = super().bind(batch, logits)

        def noted() -> None:
            call()
            self._took.append(self._request.latency)

        return noted


def _watch(session: Any, backend: str, steps: Steps) -> Watched:
    if backend == "tflite":
        session._interpreters[0] = _TimedInterpreter(session._interpreters[0], steps)
    if backend == "openvino":
        return _Requested(session, session._requests[0], steps[REQUEST])
    return Watched(session)


def _work(job: Job) -> None:
    manifest, library = read_manifest(job.manifest), open_samples(job.samples)
    preload(manifest.backend)
    session = open_session(manifest, job.file, SessionOptions(threads=job.threads))
    layout, shape = session.input.layout, session.input.shape
    query_s = time_queries(session, list(library.load([0], layout)), WARM_UP_S).typical_s
    steps: Steps = defaultdict(list)
    watched = _watch(session, manifest.backend, steps)
    plan = plan_run(profile(job.seconds, library.count), SINGLE_STREAM, query_s, library.count).plan
    outcome = drive(watched, library, plan, job.log_dir, layout, shape)
    assert outcome.times is not None
    queries = outcome.times.latencies_ms
    # drive itself infers one sample before the run, not by a bound call, and one after it.
    infers = np.array(watched.took_ms)[: len(queries)]
    inside = {name: np.array(took)[-len(queries) - 1 : -1] for name, took in steps.items()}
    parts = {name: float(np.median(took)) for name, took in inside.items()}
    parts["the session's call around that"] = float(np.median(infers - sum(inside.values())))
    parts["edgeq's callback around that"] = float(np.median(queries - infers))
    parts["LoadGen around that"] = outcome.latency_ms["p50"] - float(np.median(queries))
    emit("result", where_ms=parts, loadgen_p50_ms=outcome.latency_ms["p50"])


if __name__ == "__main__":
    sys.exit(serve(sys.argv, Job, _work))
