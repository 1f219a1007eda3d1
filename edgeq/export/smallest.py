"""Which layers to keep in float: a measured search on a list ranked worst first. Knows no framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Layers = tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """``drop`` is that of the set ``layers``, in the unit of the limit."""

    layers: Layers
    drop: float
    reached: bool
    trials: int
    """Sets that were tried, the empty one included."""
    spent: bool
    """The search ended because its trials were spent."""


class _Spent(Exception):
    pass


class _Trials:
    def __init__(self, judge: Callable[[Layers], float], budget: int) -> None:
        self._judge, self._budget = judge, budget
        self.drops: dict[Layers, float] = {}

    def __call__(self, layers: Layers) -> float:
        if layers not in self.drops:
            if len(self.drops) >= self._budget:
                raise _Spent
            self.drops[layers] = self._judge(layers)
        return self.drops[layers]


def smallest(ranked: Sequence[str], judge: Callable[[Layers], float], limit: float, budget: int) -> Found:
    """The fewest of ``ranked`` (worst first) with which ``judge`` gives at most ``limit``.

    The number of layers taken from the top grows by doubling until the limit holds, then shrinks by bisection; then each
    layer is left out in turn, the least bad first, where the limit still holds without it. The drop need not fall with
    every layer, so what is found is a set that was measured to do, not a proven minimum.

    Args:
        judge: The drop with these layers in float; called once a set, the empty one first.
        budget: Most calls of ``judge``, at least 1.

    Returns:
        The smallest set that holds the limit; where none does, the one with the least drop.
    """
    trials, spent = _Trials(judge, max(1, budget)), False
    try:
        if trials(()) > limit and ranked:
            _narrow(_shortest(tuple(ranked), trials, limit), trials, limit)
    except _Spent:
        spent = True
    held = [layers for layers, drop in trials.drops.items() if drop <= limit]
    best = min(held or trials.drops, key=lambda layers: (len(layers) if held else 0, trials.drops[layers], len(layers)))
    return Found(best, trials.drops[best], bool(held), len(trials.drops), spent)


def _shortest(ranked: Layers, trials: _Trials, limit: float) -> Layers:
    """The shortest beginning of ``ranked`` that holds the limit; empty where not even all do."""
    fails, holds = 0, 1
    while trials(ranked[:holds]) > limit:
        if holds == len(ranked):
            return ()
        fails, holds = holds, min(2 * holds, len(ranked))
    while holds - fails > 1:
        middle = (fails + holds) // 2
        if trials(ranked[:middle]) > limit:
            fails = middle
        else:
            holds = middle
    return ranked[:holds]


def _narrow(layers: Layers, trials: _Trials, limit: float) -> None:
    """Leaves out what is not needed. The last one is: without it the limit did not hold."""
    for name in reversed(layers[:-1]):
        fewer = tuple(other for other in layers if other != name)
        if trials(fewer) <= limit:
            layers = fewer
