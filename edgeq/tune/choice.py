"""Rounds of several settings → which of them go on, and whether one is better than the default. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgeq.setting import Setting
from edgeq.student import Ratio, paired_ratio

#: After the first look, settings so far behind the fastest are dropped.
BEHIND = 0.10
#: At most so many go on besides the default.
MOST = 4
#: The least gain that is worth leaving the default for.
MIN_GAIN = 1.03


@dataclass(frozen=True)
class Choice:
    """A setting, and its speed over the default's. ``ratio`` is None where the default stays, or of a single round."""

    setting: Setting
    ratio: Ratio | None


def survivors(first_look: Mapping[Setting, float], default: Setting) -> list[Setting]:
    """The default, and those within ``BEHIND`` of the fastest, the fastest first.

    Args:
        first_look: Samples a second of each one's fastest query, ``default`` among them: other work on the machine makes
            queries slower, and so hides in the few of a short turn what a setting can do.
    """
    ordered = sorted(first_look, key=lambda each: first_look[each], reverse=True)
    near = [each for each in ordered if first_look[each] >= (1 - BEHIND) * first_look[ordered[0]] and each != default]
    return [default, *near[:MOST]]


def choose(rounds: Mapping[Setting, Sequence[float]], default: Setting) -> Choice:
    """The fastest of those that are better than the default beyond noise; else the default.

    Args:
        rounds: Samples a second of each setting in each round, as many for each, ``default`` among them. The look by which
            settings were dropped is not to be among the rounds: its luck is what the others were chosen by.
    """
    best = Choice(default, None)
    for setting, rates in rounds.items():
        ratio = paired_ratio(rates, rounds[default]) if setting != default else None
        if ratio is None or not better(rates, rounds[default]):
            continue
        if best.ratio is None or ratio.middle > best.ratio.middle:
            best = Choice(setting, ratio)
    return best


def better(rates: Sequence[float], default: Sequence[float]) -> bool:
    """Whether ``rates`` beat ``default``'s, paired by round: ``MIN_GAIN`` on average, and an interval that leaves out 1.

    Not so of a single round. Of three, a gain shows that is 2.5 times as large as rounds differ; of five, 1.2 times.
    """
    ratio = paired_ratio(rates, default)
    return ratio is not None and ratio.middle >= MIN_GAIN and ratio.low > 1


def rate(seconds: Sequence[float], samples: int) -> float:
    """Samples a second of queries of ``samples`` samples each that took ``seconds``, by their median.

    The median, where profiles judge latency at a high percentile: what is looked for is the setting that computes fastest,
    and in the few queries of a turn the slow ones show the neighbours.
    """
    return samples / statistics.median(seconds)
