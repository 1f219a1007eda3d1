"""What a comparison is measured against, and whether that is reached. Pure: numbers in, a verdict out.

A row holds two figures a round: edgeq's (``ours``) and what it is compared with (``theirs``: another tool's, measured in
the same round, or a limit). Its ratio is the median over rounds of ours / theirs, with the interval of
``edgeq.student.median_ratio``: on a shared machine a round in which a neighbour wakes up is off by half, and would be all
that a mean tells. A bar is met where that ratio reaches it; where the 95 % interval reaches over the bar, on whichever side
the ratio lies, the verdict says ``not certain``: with as many rounds again it might have come out otherwise.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from edgeq.spec.note import Note
from edgeq.student import Ratio, median_ratio

Side = Literal["at least", "at most"]
Verdict = Literal["met", "met, not certain", "not met", "not met, not certain", "failed", "no bar"]
MET: tuple[Verdict, ...] = ("met", "met, not certain")


@dataclass(frozen=True)
class Bar:
    """``ours / theirs`` is to be at least, or at most, ``ratio``."""

    side: Side
    ratio: float
    slack: float | None = None
    """Only with ``at most``: it is met too where ours exceeds theirs by no more than this, in the row's unit."""

    def __post_init__(self) -> None:
        if self.ratio <= 0 or (self.slack is not None and (self.side != "at most" or self.slack < 0)):
            raise ValueError(f"{self} is no bar")

    def beside(self, theirs: float) -> float:
        """The ratio that counts where theirs is typically ``theirs`` (positive)."""
        return self.ratio if self.slack is None else max(self.ratio, 1 + self.slack / theirs)

    def reached(self, ratio: float, theirs: float) -> bool:
        """Whether ``ratio`` is on the right side, the bar itself included."""
        bar = self.beside(theirs)
        return ratio >= bar if self.side == "at least" else ratio <= bar


@dataclass(frozen=True)
class Claim:
    """A row before it is measured."""

    name: str
    """``group/what/…``, such as ``harness/tflite/fp32``; unique."""
    text: str
    """What is compared with what, in a few words."""
    unit: str
    """Of both figures, such as ``ms`` or ``samples/s``."""
    bar: Bar | None = None
    """None for a row that only informs."""


@dataclass(frozen=True)
class Measured:
    """One round of a claim, both positive and in its unit."""

    ours: float
    theirs: float
    detail: dict[str, Any] = field(default_factory=dict)
    """JSON values for the results' file: settings that were in force, further figures, and by ``where_ms`` (a name and
    milliseconds each) where the time goes."""

    def __post_init__(self) -> None:
        if not (0 < self.ours < float("inf") and 0 < self.theirs < float("inf")):
            raise ValueError(f"{self.ours} against {self.theirs}: both must be positive and finite")


@dataclass(frozen=True)
class Row:
    """A claim with its rounds."""

    claim: Claim
    rounds: tuple[Measured, ...]
    failures: tuple[Note, ...] = ()
    """Why rounds are missing."""
    given_up: bool = False
    """Whether it failed so often, or altogether, that the bar is not met whatever the rounds that are there say."""

    @property
    def ratio(self) -> Ratio | None:
        """Of the rounds; of a single round without an interval (``low`` 0, ``high`` infinite). None without any."""
        if not self.rounds:
            return None
        paired = median_ratio([one.ours for one in self.rounds], [one.theirs for one in self.rounds])
        return paired or Ratio(self.rounds[0].ours / self.rounds[0].theirs, 0.0, float("inf"), 1)

    @property
    def theirs(self) -> float:
        """Median over rounds."""
        return statistics.median(one.theirs for one in self.rounds)

    @property
    def ours(self) -> float:
        """Median over rounds."""
        return statistics.median(one.ours for one in self.rounds)

    @property
    def where_ms(self) -> dict[str, float]:
        """Parts of ours, or of the difference, in milliseconds: medians over the rounds that tell them (``where_ms``)."""
        told = [one.detail["where_ms"] for one in self.rounds if "where_ms" in one.detail]
        names = dict.fromkeys(name for parts in told for name in parts)
        return {name: statistics.median(parts[name] for parts in told if name in parts) for name in names}

    @property
    def verdict(self) -> Verdict:
        """Whether the bar is met, by the rule of this module."""
        bar, ratio = self.claim.bar, self.ratio
        if self.given_up or ratio is None:
            return "failed"
        if bar is None:
            return "no bar"
        reached = bar.reached(ratio.middle, self.theirs)
        if all(bar.reached(end, self.theirs) == reached for end in (ratio.low, ratio.high)):
            return "met" if reached else "not met"
        return "met, not certain" if reached else "not met, not certain"

    @property
    def counts(self) -> bool:
        """Whether it is one of the M bars."""
        return self.claim.bar is not None

    def as_json(self) -> dict[str, Any]:
        """JSON values: the claim, each round, and what follows from them."""
        ratio, bar = self.ratio, self.claim.bar
        several = ratio is not None and ratio.n > 1
        return {
            "name": self.claim.name,
            "text": self.claim.text,
            "unit": self.claim.unit,
            "bar": bar and {"side": bar.side, "ratio": bar.ratio, "slack": bar.slack},
            "bar_in_force": bar.beside(self.theirs) if bar and self.rounds else None,
            "rounds": [{"ours": one.ours, "theirs": one.theirs, **one.detail} for one in self.rounds],
            "ratio": ratio and ratio.middle,
            "interval": [ratio.low, ratio.high] if ratio and several else None,
            "where_ms": self.where_ms,
            "verdict": self.verdict,
            "failures": [note.model_dump() for note in self.failures],
        }


def summary(rows: Sequence[Row]) -> tuple[int, int]:
    """How many bars are met, of how many."""
    counted = [row for row in rows if row.counts]
    return sum(row.verdict in MET for row in counted), len(counted)
