"""Warm-up: infer until the time of an inference has settled, not a fixed number of times.

Inferences are taken in windows. The warm-up has ended when the median of the last window differs from that of the window
before by no more than ``STEADY_SHARE``, up or down. Georges, Buytaert and Eeckhout (OOPSLA 2007) look for the steady state
in the same way, but at the spread of a window of iterations; medians of neighbouring windows are compared here, as
pyperf does with halves of a run, because on a shared machine single inferences stay spread out long after the model is
warm. The first inference (allocation, lazily made kernels) belongs to no window.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from edgeq.spec.note import Note

#: A window is at least so many inferences, and so many seconds of them: the median of five is robust against two
#: disturbed ones, and a clock that rises or falls takes tens of milliseconds to do so.
WINDOW_INFERENCES, WINDOW_S = 5, 0.25
#: Medians of two windows that differ by less are the same: half of what pyperf tolerates between halves of a warm-up.
STEADY_SHARE = 0.05
#: Where it has not settled after so long, in seconds or in windows, it won't: it is measured as it is, with a warning.
CAP_S, CAP_WINDOWS = 10.0, 40


@dataclass(frozen=True)
class Settled:
    """How the warm-up went. Times in seconds."""

    first_s: float
    """The first call, which is part of no window."""
    typical_s: float
    """Median of the last window; of the first call where there was no time for more."""
    last: int
    """How many inferences that window held."""
    total: int
    """All inferences, the first one included."""
    change: float | None
    """By what share the last window's median differs from the one before; None where there were not two windows."""

    @property
    def steady(self) -> bool:
        return self.change is not None and abs(self.change) <= STEADY_SHARE

    def notes(self) -> list[Note]:
        """``not-steady`` where the warm-up ended by its cap."""
        if self.steady:
            return []
        if self.change is None:
            text = f"{self.total} inferences were all that there was time for, too few to see whether they had settled"
        else:
            direction = "rising" if self.change > 0 else "falling"
            text = (
                f"after {self.total} inferences their time was still {direction}, by {abs(self.change):.0%} from one "
                "window to the next"
            )
        hint = "run on a quiet machine; with --rounds 5 the interval shows how far the figure can be trusted"
        return [Note(code="not-steady", text=f"the model had not warmed up: {text}", hint=hint)]


def settle(infer: Callable[[], float], budget_s: float) -> Settled:
    """Calls ``infer`` (one query; returns the seconds that it took) until its time has settled, or a cap is reached.

    Args:
        infer: Called at least once.
        budget_s: What warming up may cost. ``CAP_S`` applies as well, but not before two windows are full.
    """
    first = infer()
    spent, total, windows = first, 1, 0
    before: float | None = None
    change: float | None = None
    typical, last = first, 1
    # A model so slow that the budget does not hold another inference is judged by its first one.
    while spent + typical <= budget_s and windows < CAP_WINDOWS and (spent < CAP_S or windows < 2):
        window = _window(infer, budget_s - spent)
        spent, total = spent + sum(window), total + len(window)
        typical, last = statistics.median(window), len(window)
        if len(window) < WINDOW_INFERENCES:
            change = None if windows < 2 else change
            break
        windows += 1
        change = None if before is None else typical / before - 1 if before > 0 else 0.0
        before = typical
        if change is not None and abs(change) <= STEADY_SHARE:
            break
    return Settled(first, typical, last, total, change)


def time_once(ask: Callable[[], None]) -> float:
    """Seconds that ``ask`` takes."""
    began = time.perf_counter()
    ask()
    return time.perf_counter() - began


def _window(infer: Callable[[], float], left_s: float) -> list[float]:
    """One window; shorter where the time left is over before it is full."""
    window: list[float] = []
    spent = 0.0
    while (len(window) < WINDOW_INFERENCES or spent < WINDOW_S) and (not window or spent + window[-1] <= left_s):
        window.append(infer())
        spent += window[-1]
    return window
