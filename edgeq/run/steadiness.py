"""What the device's state, and the queries themselves, say about how far a figure can be trusted: warnings with codes.

Each limit is set where a reader would come to another conclusion, not where a statistic first notices something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeq.host.state import MAX_NEIGHBOUR, MAX_STEAL, steal_share, used_cpus
from edgeq.loadgen.times import Times
from edgeq.run.intervals import block_rates
from edgeq.run.record import Interval
from edgeq.spec.note import Note

Series = npt.NDArray[np.float64]

#: CPU time over wall time below this share of the threads: somebody else had the cores, or threads had nothing to do.
MIN_BUSY = 0.6
#: And above this one: more threads ran than were asked for.
MAX_BUSY = 1.25

#: A query is an outlier beyond the median + 5 robust standard deviations (1.4826 MAD; Leys et al. 2013 take 2.5 to 3 for
#: data without a tail; latencies have one: with 5, an exponential distribution shows 1.4 % of its queries), and if it
#: took a fifth longer than the median, lest microseconds count.
OUTLIER_DEVIATIONS, OUTLIER_EXCESS = 5.0, 1.2
#: More of them than this share, and at least so many, are told: from 2 % on, p99 is their figure and not the model's.
MAX_OUTLIERS, FEWEST_OUTLIERS = 0.02, 3

#: Two modes: each has a tenth of the queries or more, their medians lie a fifth apart, and between them lie at most half as
#: many queries as around the weaker one, by more than chance: three standard deviations of the difference of two counts.
MODE_SHARE, MODE_RATIO, VALLEY, VALLEY_DEVIATIONS = 0.1, 1.2, 0.5, 3.0
FEWEST_FOR_MODES = 50

#: A trend over the run: of the medians of 10 parts, in Mann and Kendall's test at 1 % (|S| ≥ 29 for n = 10), and a change
#: from the first part to the last of more than a tenth: twice what ends the warm-up.
PARTS, TREND_S, MAX_DRIFT = 10, 29, 0.10

#: Rounds whose figures lie further apart than this, where their own intervals do not overlap either, were not runs of the
#: same conditions: a tenth is the least difference between frameworks that is worth a choice.
MAX_ROUNDS_RATIO = 1.10

_QUIET = "run the cell again on a quiet machine"
_ROUNDS = "run the cell again on a quiet machine; --rounds 5 shows whether the figure holds"


def host_notes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Note]:
    """``unsteady`` where the hypervisor stole time, ``throttled`` where the device slowed itself down."""
    notes = []
    steal = steal_share(before, after)
    if steal is not None and steal > MAX_STEAL:
        text = f"the hypervisor gave {steal:.0%} of the CPU time to others during the measurement"
        notes.append(Note(code="unsteady", text=text, hint=_QUIET))
    first_bits, last_bits = before.get("throttled") or {}, after.get("throttled") or {}
    # The firmware keeps what has been since boot: a bit set in between came and went during the measurement.
    between = [name for name in last_bits.get("since_boot", []) if name not in first_bits.get("since_boot", [])]
    bits = last_bits.get("now") or first_bits.get("now") or between
    if bits:
        text = f"the firmware reports: {', '.join(bits)}"
        notes.append(Note(code="throttled", text=text, hint="mend cooling or power supply, then run the cell again"))
    first, last = before.get("throttle_count"), after.get("throttle_count")
    if first is not None and last is not None and last > first:
        text = f"the CPU throttled {last - first} times for heat during the measurement"
        notes.append(Note(code="throttled", text=text, hint="mend the cooling, then run the cell again"))
    return notes


def neighbour_notes(before: Mapping[str, Any], after: Mapping[str, Any], own_cpus: float) -> list[Note]:
    """``busy-neighbour`` where other processes computed meanwhile.

    Args:
        before: ``edgeq.host.state.snapshot()`` at the beginning of a span.
        after: The same at its end.
        own_cpus: CPU seconds a second that this process used in the span.
    """
    used = used_cpus(before, after)
    if used is None:
        return []
    cpus, others = after["cpu_ticks"]["cpus"], used - own_cpus
    if others <= MAX_NEIGHBOUR * cpus:
        return []
    text = f"other processes kept {others:.1f} of the device's {cpus} CPUs busy during the measurement"
    return [Note(code="busy-neighbour", text=text, hint="end them, or wait, then run the cell again")]


def cpu_notes(cpu_per_wall: float, threads: int) -> list[Note]:
    """``cpu-time`` where CPU time over wall time belies the number of threads."""
    if MIN_BUSY * threads <= cpu_per_wall <= MAX_BUSY * threads:
        return []
    text = f"{cpu_per_wall:.1f} CPU seconds a second were used, with {threads} threads asked for"
    hint = "a busy neighbour, or a model too small for so many threads; compare with --threads 1"
    return [Note(code="cpu-time", text=text, hint=hint)]


def query_notes(times: Times, scenario: str) -> list[Note]:
    """What a run's own times say: ``outliers``, ``bimodal`` and ``drift``; in offline, whose blocks queue, ``drift``."""
    if scenario == "offline":
        rates = block_rates(times, PARTS)
        return drift_notes(1e3 / rates, "a sample") if len(rates) == PARTS else []
    latencies = times.latencies_ms
    parts = np.array_split(latencies, PARTS) if len(latencies) >= 5 * PARTS else []
    return [
        *outlier_notes(latencies),
        *bimodal_notes(latencies),
        *drift_notes(np.array([np.median(part) for part in parts]), "a query"),
    ]


def outlier_notes(latencies_ms: Series) -> list[Note]:
    """``outliers``: a share of the queries ``[n]`` took far longer than is usual among them."""
    if not len(latencies_ms):
        return []
    middle = float(np.median(latencies_ms))
    deviation = 1.4826 * float(np.median(np.abs(latencies_ms - middle)))
    limit = max(middle + OUTLIER_DEVIATIONS * deviation, OUTLIER_EXCESS * middle)
    beyond = latencies_ms[latencies_ms > limit]
    if len(beyond) < FEWEST_OUTLIERS or len(beyond) <= MAX_OUTLIERS * len(latencies_ms):
        return []
    share = len(beyond) / len(latencies_ms)
    text = (
        f"{share:.1%} of the queries took more than {limit:.3g} ms, up to {float(beyond.max()):.3g} ms, where the median "
        f"is {middle:.3g} ms"
    )
    return [Note(code="outliers", text=text, hint=f"something interrupts the runs: {_QUIET}")]


def bimodal_notes(latencies_ms: Series) -> list[Note]:
    """``bimodal``: the queries ``[n]`` are of two kinds, a fast one and a slow one, with few in between.

    The cut is Otsu's (1979), the one which leaves the least variance within both parts, of logarithms. Then the valley
    decides: in a density with one mode, the middle of three bands of one width is never below both of its neighbours,
    however skewed it is, so that a long tail alone is no second mode.
    """
    values = np.sort(latencies_ms[latencies_ms > 0])
    if len(values) < FEWEST_FOR_MODES:
        return []
    cut = _otsu(np.log(values))
    fast, slow = float(np.median(values[:cut])), float(np.median(values[cut:]))
    share = float(np.mean(values > (fast + slow) / 2))
    if slow < MODE_RATIO * fast or not MODE_SHARE <= share <= 1 - MODE_SHARE or not _valley(values, fast, slow):
        return []
    text = f"the queries are of two kinds: {1 - share:.0%} take about {fast:.3g} ms, {share:.0%} about {slow:.3g} ms"
    hint = "percentiles between the two jump from run to run; a busy neighbour or a changing clock does that"
    return [Note(code="bimodal", text=text, hint=hint)]


def _otsu(ordered: Series) -> int:
    """How many of the ``ordered`` values go to the lower part; each part gets ``MODE_SHARE`` of them or more."""
    n = len(ordered)
    below = np.arange(1, n)
    sums = np.cumsum(ordered)
    gap = sums[:-1] / below - (sums[-1] - sums[:-1]) / (n - below)
    gain = below * (n - below) * gap**2
    least = int(np.ceil(MODE_SHARE * n))
    return int(np.argmax(gain[least - 1 : n - least])) + least


def _valley(ordered: Series, fast: float, slow: float) -> bool:
    half = (slow - fast) / 6
    centres = np.array([fast, (fast + slow) / 2, slow])
    first = np.searchsorted(ordered, centres - half, side="left")
    last = np.searchsorted(ordered, centres + half, side="right")
    left, between, right = (int(count) for count in last - first)
    weaker = min(left, right)
    return between <= VALLEY * weaker and weaker - between >= VALLEY_DEVIATIONS * (weaker + between) ** 0.5


def drift_notes(parts: Series, unit: str) -> list[Note]:
    """``drift``: a trend over ``PARTS`` parts of a run, each with its typical milliseconds a query or a sample."""
    if len(parts) != PARTS:
        return []
    pairs = [(parts[later] - parts[earlier], later - earlier) for later in range(PARTS) for earlier in range(later)]
    score = sum(int(np.sign(change)) for change, _ in pairs)
    # Sen's slope (1968): the median of the slopes between all pairs, deaf to a single disturbed part.
    slope = float(np.median([change / distance for change, distance in pairs]))
    middle = float(np.median(parts))
    change = slope * (PARTS - 1) / middle if middle > 0 else 0.0
    if abs(score) < TREND_S or abs(change) <= MAX_DRIFT:
        return []
    direction = "slower" if change > 0 else "faster"
    text = f"the run got {direction}: the time of {unit} changed by {abs(change):.0%} from its beginning to its end"
    hint = "a device that heats up, or a clock or a neighbour that changes: let it cool, then run a longer profile"
    return [Note(code="drift", text=text, hint=hint)]


def rounds_notes(figures: Mapping[int, float], within: Mapping[int, Interval]) -> list[Note]:
    """``rounds-differ``: rounds lie further apart than chance within each of them explains.

    Args:
        figures: The figure that the cell is judged by, by round.
        within: The figure's interval from within a round, by round, where it has one.
    """
    if len(figures) < 2:
        return []
    low, high = min(figures, key=figures.__getitem__), max(figures, key=figures.__getitem__)
    if figures[low] <= 0 or figures[high] <= MAX_ROUNDS_RATIO * figures[low]:
        return []
    if low in within and high in within and within[low].high >= within[high].low:
        return []
    text = (
        f"round {high} gave {figures[high] / figures[low]:.2f} times the figure of round {low}, more than the spread "
        "within them explains"
    )
    return [Note(code="rounds-differ", text=text, hint=_ROUNDS)]


def codes(notes: Sequence[Note]) -> list[str]:
    """The codes of ``notes``, each once, in order."""
    return list(dict.fromkeys(note.code for note in notes))
