"""When each query, or each block of an offline query, was answered: kept by the SUT at a cost of some 0.3 µs each."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeq.loadgen.plan import Plan

Nanoseconds = npt.NDArray[np.int64]

#: LoadGen generates queries for twice the minimum duration at the expected rate; no run issues more of them.
_GENERATED = 2.0


class Clock:
    """Where the SUT writes its times (``time.perf_counter_ns``); made before the run, so that no query waits for memory.

    Attributes:
        blocks: End and number of samples of each block answered, in turn; None where blocks are not kept.
    """

    def __init__(self, capacity: int = 0, *, blocks: bool = False) -> None:
        """``capacity`` queries find their place ready; those beyond it grow the arrays."""
        self._begins, self._ends = array("q", bytes(8 * capacity)), array("q", bytes(8 * capacity))
        self._capacity, self._count = capacity, 0
        self.blocks = array("q") if blocks else None

    @classmethod
    def for_run(cls, plan: Plan) -> Clock:
        """With room for every query that LoadGen may issue by ``plan``; offline, with its blocks."""
        if plan.scenario == "offline":
            return cls(1, blocks=True)
        expected = _GENERATED * plan.min_duration_s * 1e3 / plan.expected_latency_ms if plan.expected_latency_ms else 0
        return cls(plan.min_queries + math.ceil(expected))

    def query(self, begin: int, end: int) -> None:
        """A query was issued at ``begin`` and answered at ``end``."""
        position = self._count
        if position < self._capacity:
            self._begins[position] = begin
            self._ends[position] = end
        else:
            self._begins.append(begin)
            self._ends.append(end)
        self._count = position + 1

    def times(self) -> Times:
        """What was kept, in the order in which it came."""
        begins = np.array(self._begins, np.int64)[: self._count]
        if self.blocks is None:
            return Times(begins, np.array(self._ends, np.int64)[: self._count], np.ones(self._count, np.int64))
        pairs = np.array(self.blocks, np.int64).reshape(-1, 2)
        return Times(begins, pairs[:, 0].copy(), pairs[:, 1].copy())


@dataclass(frozen=True, eq=False)
class Times:
    """The times of one run, in nanoseconds of ``time.perf_counter_ns``, in the order of the answers."""

    begins: Nanoseconds
    """``[queries]``; in offline ``[1]``."""
    ends: Nanoseconds
    """``[queries]``, in offline ``[blocks]``: when LoadGen had the answer."""
    sizes: Nanoseconds
    """Samples answered with each end; 1 a query in single- and multi-stream."""

    @property
    def latencies_ms(self) -> npt.NDArray[np.float64]:
        """Milliseconds of each query, ``[queries]``; not for offline."""
        found: npt.NDArray[np.float64] = (self.ends - self.begins) / 1e6
        return found
