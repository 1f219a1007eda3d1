"""The callbacks that answer LoadGen's queries, in the thread that LoadGen calls.

Every callback takes ``(ids, sample indices)`` and answers each id exactly once before it returns, whatever happens:
an id left open hangs LoadGen for ever, an exception or a late answer crashes it.

The payload of an answer: in performance mode the sample's row of raw float32 logits; in accuracy mode its five best
classes, best first, as int32 (20 bytes; -1 where there are fewer classes), from which top-1 and top-5 follow.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeq.loadgen.protocols import Array, System
from edgeq.loadgen.resident import Failure, Resident
from edgeq.loadgen.times import Clock
from edgeq.logits import bad_output

TOP = 5

Issue = Callable[[list[int], list[int]], None]


def best_classes(logits: Array) -> npt.NDArray[np.int32]:
    """The indices of the five largest logits of each row, largest first, ties by lower index.

    Args:
        logits: ``[n, classes]``.

    Returns:
        int32 ``[n, 5]``, filled up with -1 where there are fewer than five classes.

    Raises:
        EdgeqError: a logit is not finite (code ``bad-output``).
    """
    if not np.isfinite(logits).all():
        raise bad_output("a logit is not a finite number")
    best = np.full((len(logits), TOP), -1, np.int32)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :TOP]
    best[:, : order.shape[1]] = order
    return best


def single_stream(
    lg: ModuleType, system: System, resident: Resident, failure: Failure, clock: Clock, accuracy: bool
) -> Issue:
    """Answers a query of one sample from one buffer that outlives the run, by a call that was bound to it before."""
    logits = np.zeros((1, system.classes), np.float32)
    classes = np.zeros((1, TOP), np.int32)
    answer: npt.NDArray[Any] = classes if accuracy else logits
    resident.bind(system, logits)
    calls, address, size = resident.calls, answer.ctypes.data, answer.nbytes
    complete, response = lg.QuerySamplesComplete, lg.QuerySampleResponse
    now, keep_times = time.perf_counter_ns, clock.query

    def issue(ids: list[int], indices: list[int]) -> None:
        begin = now()
        if failure.error is None:
            try:
                if accuracy:
                    logits.fill(np.nan)  # what a call leaves as it is must not pass for this sample's
                    calls[indices[0]]()
                    np.copyto(classes, best_classes(logits))
                else:
                    calls[indices[0]]()
            except BaseException as error:
                failure.remember(error)
        complete([response(ids[0], address, size)])
        keep_times(begin, now())  # after the answer: of the cost, LoadGen's latency holds one look at the clock

    return issue


def many(lg: ModuleType, system: System, resident: Resident, failure: Failure, clock: Clock, accuracy: bool) -> Issue:
    """Answers a query of many samples (multi-stream, offline), each as soon as the system has done with it."""

    now, keep_times = time.perf_counter_ns, clock.query

    def issue(ids: list[int], indices: list[int]) -> None:
        begin = now()
        query = _Query(lg, ids, system.classes, failure, clock, accuracy)
        if failure.error is None:
            try:
                samples = resident.samples
                system.infer_many([samples[index] for index in indices], query.done)
            except BaseException as error:
                failure.remember(error)
        query.close()
        keep_times(begin, now())

    return issue


class _Stopped(Exception):
    """Raised to the system where the run has failed elsewhere already."""


class _Query:
    """One query's ids, and which of them are answered."""

    def __init__(
        self, lg: ModuleType, ids: list[int], classes: int, failure: Failure, clock: Clock, accuracy: bool
    ) -> None:
        self._complete, self._response = lg.QuerySamplesComplete, lg.QuerySampleResponse
        self._ids, self._classes, self._failure, self._accuracy = ids, classes, failure, accuracy
        self._blocks = clock.blocks
        self._answered = bytearray(len(ids))
        self._closed = False
        # Held while answering, so that no answer is under way, or still to come, once the query is closed.
        self._lock = threading.Lock()

    def done(self, first: int, logits: Array) -> None:
        """Answers the samples at ``first`` and following from ``logits`` ``[k, classes]``; raises where it can't."""
        with self._lock:
            try:
                if self._closed or self._failure.error is not None:
                    raise _Stopped("the run was stopped")
                self._check(first, logits)
                rows = best_classes(logits) if self._accuracy else np.ascontiguousarray(logits, np.float32)
                size = rows.nbytes // len(rows)
                span = slice(first, first + len(rows))
                addresses = range(rows.ctypes.data, rows.ctypes.data + rows.nbytes, size)
                answers = [self._response(i, at, size) for i, at in zip(self._ids[span], addresses, strict=True)]
                self._answered[span] = b"\1" * len(rows)
                self._complete(answers)  # reads the memory of ``rows``, which lives until it returns
                if self._blocks is not None:
                    self._blocks.append(time.perf_counter_ns())
                    self._blocks.append(len(rows))
            except BaseException as error:
                # Remembered as well as raised: a framework may lose what its own threads raise.
                self._failure.remember(error)
                raise

    def close(self) -> None:
        """Answers what is open, so that LoadGen ends; open samples are a failure of the run."""
        with self._lock:
            self._closed = True
            missing = [position for position, answered in enumerate(self._answered) if not answered]
            if missing:
                self._failure.remember(bad_output(f"{len(missing)} of {len(self._ids)} samples were not answered"))
                blank = np.zeros(TOP if self._accuracy else self._classes, np.float32)
                address, size = blank.ctypes.data, blank.nbytes
                self._complete([self._response(self._ids[position], address, size) for position in missing])

    def _check(self, first: int, logits: Array) -> None:
        if logits.ndim != 2 or logits.shape[1] != self._classes or not len(logits):
            raise bad_output(f"logits have shape {logits.shape}, not [k, {self._classes}]")
        if first < 0 or first + len(logits) > len(self._ids):
            raise bad_output(f"samples {first} to {first + len(logits) - 1} of {len(self._ids)} answered")
        if any(self._answered[first : first + len(logits)]):
            raise bad_output(f"a sample from {first} on was answered twice")


def answer_cost(lg: ModuleType) -> float:
    """Seconds that making one answer takes in Python here, the best of 20 tries: for ``plan_run``."""
    ids, count = list(range(1 << 32, (1 << 32) + 1000)), 1000
    best = math.inf
    for _ in range(20):
        start = time.perf_counter()
        [lg.QuerySampleResponse(i, at, 4) for i, at in zip(ids, range(0, 4 * count, 4), strict=True)]
        best = min(best, (time.perf_counter() - start) / count)
    return best
