"""What the device's state, and the queries themselves, say about how far a figure can be trusted: warnings with codes.

Each limit is set where a reader would come to another conclusion, not where a statistic first notices something.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeq.host.firmware import UNDER_VOLTAGE, in_order
from edgeq.host.state import MAX_NEIGHBOUR, MAX_STEAL, steal_share, used_cpus
from edgeq.loadgen.times import Times
from edgeq.run.during import During
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

#: The share of what the CPU's clock can hold below which it is told: a tenth, as between rounds. Heat and under-voltage take
#: a fifth or more at once (a Raspberry Pi 4 goes from 1.8 to 1.5 GHz and below), a governor of powersave more than half.
MIN_CLOCK = 0.9

#: 10^6 bytes to or from swap in a run beyond which it is told: what an SD card moves in a tenth of a second (about 40 MB/s).
#: Less is other processes' idle pages.
MAX_SWAPPED_MB = 4.0

#: What ``slowed_by`` calls x86's throttling events.
THERMAL = "thermal throttling"

_QUIET = "run the cell again on a quiet machine"
_COOLING = (
    "mend the cooling (heat sink, fan), then run the cell again; edgeq run --cool-to 60 lets it cool and does so once"
)
_POWER = "mend the power supply (the board's own, with its cable), then run the cell again"
_CLOCK = "a governor (performance lets it run), heat, or a limit set for it; compare only with cells that ran alike"
_ROUNDS = "run the cell again on a quiet machine; --rounds 5 shows whether the figure holds"


def host_notes(before: Mapping[str, Any], after: Mapping[str, Any], during: During | None = None) -> list[Note]:
    """``unsteady`` where the hypervisor stole time, or the device held itself back, before, during or after."""
    notes = []
    steal = steal_share(before, after)
    if steal is not None and steal > MAX_STEAL:
        text = f"the hypervisor gave {steal:.0%} of the CPU time to others during the measurement"
        notes.append(Note(code="unsteady", text=text, hint=_QUIET))
    when = _firmware(before, after, during)
    if when:
        said = ", ".join(f"{bit} ({', '.join(moments)})" for bit, moments in when.items())
        text = f"the board's firmware reports, before, during or after the measurement: {said}"
        notes.append(Note(code="unsteady", text=text, hint=_POWER if UNDER_VOLTAGE in when else _COOLING))
    count = _throttle_events(before, after)
    if count:
        text = f"the CPU throttled {count} times for heat during the measurement"
        notes.append(Note(code="unsteady", text=text, hint=_COOLING))
    return notes


def slowed_by(before: Mapping[str, Any], after: Mapping[str, Any], during: During | None = None) -> list[str]:
    """``HostStates.slowed_by``: why the device held itself back before, during or after a measurement."""
    heat = [THERMAL] if _throttle_events(before, after) else []
    return [*_firmware(before, after, during), *heat]


def _firmware(before: Mapping[str, Any], after: Mapping[str, Any], during: During | None) -> dict[str, list[str]]:
    """Bit in words → when it was set: ``before``, ``during``, ``after``."""
    first, last = before.get("throttled") or {}, after.get("throttled") or {}
    # The firmware keeps what has been since boot: a bit set in between came and went during the measurement.
    between = set(last.get("since_boot") or []) - {*(first.get("since_boot") or []), *(last.get("now") or [])}
    moments: dict[str, Collection[str]] = {
        "before": first.get("now") or [],
        "during": {*between, *((during and during.throttled) or [])},
        "after": last.get("now") or [],
    }
    return {
        bit: [moment for moment, bits in moments.items() if bit in bits]
        for bit in in_order(bit for bits in moments.values() for bit in bits)
    }


def _throttle_events(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    first, last = before.get("throttle_count"), after.get("throttle_count")
    return 0 if first is None or last is None else max(0, last - first)


def during_notes(during: During | None) -> list[Note]:
    """``slow-clock`` where the CPU ran well below what it can hold, ``swapped`` where memory went to swap or came back."""
    notes = []
    if during is not None and during.clock is not None and during.clock < MIN_CLOCK:
        text = (
            f"the CPU ran at {during.clock:.0%} of the frequency that it can hold "
            f"(governor: {', '.join(during.governors) or 'unknown'}): in the median of the samples its fastest core did"
        )
        notes.append(Note(code="slow-clock", text=text, hint=_CLOCK))
    if during is not None and during.swapped_mb is not None and during.swapped_mb > MAX_SWAPPED_MB:
        text = f"{during.swapped_mb:.0f} MB went to swap or came back from it during the measurement"
        notes.append(Note(code="swapped", text=text, hint="end other programs, then run the cell again"))
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
