"""Lines of ``edgeq.host.sampler`` → what the device did while a cell was measured."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from edgeq.host.energy import joules
from edgeq.host.firmware import in_order

Line = dict[str, Any]

#: Samples within the run below which nothing is said of its clock: a governor takes a moment to notice the load.
_FEWEST = 3

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)


class Extent(BaseModel):
    """The least and the most of a reading."""

    model_config = _STRICT
    min: float
    max: float


class Clocks(BaseModel):
    """MHz, over all cores and samples."""

    model_config = _STRICT
    min: float
    median: float
    max: float


class During(BaseModel):
    """What a sampler saw, once a second, from just before LoadGen's run to just after; None where the device does not tell.

    Frequencies and energy are of the time in which queries were answered, the rest of the whole span.
    """

    model_config = _STRICT
    samples: int = Field(ge=1)
    """Lines."""
    span_s: float = Field(ge=0)
    """From the first to the last."""
    temperature_c: dict[str, Extent] | None = None
    """By sensor."""
    frequency_mhz: Clocks | None = None
    clock: float | None = None
    """The fastest core's frequency as a share of what it holds under load, in the median of the samples: the base frequency
    of CPUs with a turbo, which may be exceeded, else the highest. Of cores of several kinds the fastest kind."""
    governors: list[str] = Field(default_factory=list)
    throttled: list[str] | None = None
    """Bits of a Raspberry Pi's firmware that were set at any time, in words; None on other devices."""
    available_mb: float | None = None
    """The least memory that could be had without swapping, in 10^6 bytes."""
    swap_mb: float | None = None
    """The most swap in use on the device."""
    swapped_mb: float | None = None
    """What went to swap or came back from it meanwhile, of whichever process."""
    energy_j: float | None = None
    """Of the CPU's packages while queries were answered: ``watts`` times that time."""
    watts: float | None = None
    """Mean power of the packages as a whole, what they take when idle and what other processes use included."""
    joules_per_sample: float | None = None
    """``energy_j`` over the samples inferred: of the whole package, idle power included."""


def read_lines(path: Path) -> list[Line]:
    """The lines of a sampler's file, in order; none where there is no file."""
    try:
        return parse_lines(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return []


def parse_lines(text: str) -> list[Line]:
    """The lines of ``text``; one that is not whole, as its writer was killed, is left out."""
    found = []
    for each in text.splitlines():
        try:
            line = json.loads(each)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("t"), float):
            found.append(line)
    return found


def summarise(lines: Sequence[Line], begin: float, end: float, samples: int) -> During | None:
    """What ``lines`` tell of a run; None without any.

    Args:
        begin: When the first query was issued, in seconds of CLOCK_MONOTONIC.
        end: When the last one was answered.
        samples: How many samples were inferred in between.
    """
    if not lines:
        return None
    inside = [line for line in lines if begin <= line["t"] <= end]
    about = lines[0].get("about", {})
    available, swap = _all(lines, "available_mb"), _all(lines, "swap_mb")
    return During(
        samples=len(lines),
        span_s=lines[-1]["t"] - lines[0]["t"],
        temperature_c=_temperatures(_all(lines, "temperature_c")),
        frequency_mhz=_clocks([mhz for cores in _all(inside or lines, "mhz") for mhz in cores]),
        clock=_clock(_all(inside, "mhz"), about.get("full_mhz")),
        governors=list(dict.fromkeys(_all(lines, "governor"))),
        throttled=_throttled(lines),
        available_mb=min(available, default=None),
        swap_mb=max(swap, default=None),
        swapped_mb=_swapped_mb(_all(lines, "swapped_pages"), about.get("page_bytes")),
        **_energy(inside, about.get("energy_range_uj", {}), end - begin, samples),
    )


def _all(lines: Iterable[Line], key: str) -> list[Any]:
    return [line[key] for line in lines if key in line]


def _temperatures(found: Sequence[dict[str, float]]) -> dict[str, Extent] | None:
    by: dict[str, list[float]] = {}
    for each in found:
        for sensor, value in each.items():
            by.setdefault(sensor, []).append(value)
    return {sensor: Extent(min=min(values), max=max(values)) for sensor, values in by.items()} or None


def _clocks(found: Sequence[float]) -> Clocks | None:
    return Clocks(min=min(found), median=statistics.median(found), max=max(found)) if found else None


def _clock(found: Sequence[Sequence[float]], full: Sequence[float | None] | None) -> float | None:
    """Whatever the other cores do, one that works is the fastest: where even that is slow, so was what was timed."""
    if not full or None in full:
        return None
    best = max(value for value in full if value is not None)
    fastest = [
        max(mhz for mhz, most in zip(cores, full, strict=True) if most == best) / best
        for cores in found
        if len(cores) == len(full)
    ]
    return statistics.median(fastest) if len(fastest) >= _FEWEST and best > 0 else None


def _throttled(lines: Sequence[Line]) -> list[str] | None:
    """Set in any sample, or, by the end, since boot and not so at first: what came and went between two samples."""
    seen, kept = _all(lines, "throttled"), _all(lines, "since_boot")
    if not seen:
        return None
    between = set(kept[-1]) - set(kept[0]) if kept else set()
    return in_order([*between, *(name for names in seen for name in names)])


def _swapped_mb(pages: Sequence[int], page_bytes: int | None) -> float | None:
    return (pages[-1] - pages[0]) * page_bytes / 1e6 if len(pages) > 1 and page_bytes else None


def _energy(inside: Sequence[Line], ranges: dict[str, int | None], duration_s: float, samples: int) -> dict[str, float]:
    """The fields of ``During`` about energy.

    The power is the mean between the first and the last reading *within* the run, and is taken to hold for the second at
    each of its ends that they do not cover: readings from outside would mix in the power of a device that waits. Where
    the readings cover less than half of the run, nothing is said.
    """
    read = [(line["t"], line["energy_uj"]) for line in inside if "energy_uj" in line]
    steps = [joules(before, after, ranges) for (_, before), (_, after) in pairwise(read)]
    known = [step for step in steps if step is not None]
    if not known or len(known) < len(steps) or duration_s <= 0 or read[-1][0] - read[0][0] < duration_s / 2:
        return {}
    watts = sum(known) / (read[-1][0] - read[0][0])
    energy = watts * duration_s
    return {"watts": watts, "energy_j": energy} | ({"joules_per_sample": energy / samples} if samples else {})


def together(found: Sequence[During]) -> During | None:
    """One of several rounds': extremes are extremes, power and a sample's energy medians, and what adds up is added up."""
    if len(found) < 2:
        return found[0] if found else None
    heat = [(sensor, extent) for each in found for sensor, extent in (each.temperature_c or {}).items()]
    clocks = _known(found, "frequency_mhz")
    bits = _known(found, "throttled")
    return During(
        samples=sum(each.samples for each in found),
        span_s=sum(each.span_s for each in found),
        temperature_c=_temperatures([{sensor: end} for sensor, each in heat for end in (each.min, each.max)]),
        frequency_mhz=Clocks(
            min=min(each.min for each in clocks),
            median=statistics.median(each.median for each in clocks),
            max=max(each.max for each in clocks),
        )
        if clocks
        else None,
        governors=list(dict.fromkeys(name for each in found for name in each.governors)),
        throttled=in_order(name for each in bits for name in each) if bits else None,
        **{
            name: _over(_known(found, name), make)
            for names, make in _TOGETHER.items()
            for name in names
        },
    )  # fmt: skip


_TOGETHER: dict[tuple[str, ...], Callable[[Sequence[float]], float]] = {
    ("clock", "watts", "joules_per_sample"): statistics.median,
    ("available_mb",): min,
    ("swap_mb",): max,
    ("swapped_mb", "energy_j"): sum,
}


def _known(found: Sequence[During], name: str) -> list[Any]:
    return [value for each in found if (value := getattr(each, name)) is not None]


def _over(values: Sequence[float], make: Callable[[Sequence[float]], float]) -> float | None:
    return make(values) if values else None
