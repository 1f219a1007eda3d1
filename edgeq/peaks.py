"""How many multiply-adds a second this machine can do at most, as measured, and how near to that a cell comes.

Light: imports no framework.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from edgeq.spec.note import Note

#: Precision → those that hold every one of its numbers. A kernel may widen its operands and multiply them there, so that no
#: machine's limit in a precision lies below that in a wider one.
_WIDER: Mapping[str, tuple[str, ...]] = {"int8": ("fp16", "fp32"), "fp16": ("fp32",)}

#: Any of these (``edgeq.host.cpu.isa_flags``) is arithmetic in half precision; without it fp16 is computed in fp32, or by
#: conversions that are no kernel of the machine's.
_HALF = frozenset({"fp16", "avx512_fp16", "amx_fp16"})

#: The order to tell them in.
_PRECISIONS = ("fp32", "fp16", "int8")


class Peak(BaseModel):
    """The fastest that any library was seen to compute in a precision: a maximum over short windows, not a mean."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)
    macs_per_s: float = Field(gt=0)
    """Multiply-adds a second, of all threads together."""
    library: str
    """Such as ``tflite``, or ``numpy (scipy-openblas)``."""
    computed: str
    """The precision that it was measured in: a wider one where nothing was faster (see ``best``)."""


class Peaks(BaseModel):
    """The machine's limits with ``threads`` threads."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    by: dict[str, Peak] = Field(default_factory=dict)
    """By precision: ``fp32``, ``fp16``, ``int8``."""
    threads: int = Field(ge=1)
    notes: list[Note] = Field(default_factory=list)
    """What could not be measured, or was disturbed."""

    def words(self) -> str:
        """Such as ``fp32 112 GMAC/s (tflite), int8 443 GMAC/s (onnxruntime), 2 threads``."""
        parts = [f"{name} {_giga(self.by[name].macs_per_s)} GMAC/s ({self.library(name)})" for name in self.by]
        return ", ".join([*parts, "1 thread" if self.threads == 1 else f"{self.threads} threads"])

    def library(self, precision: str) -> str:
        """Which library gave the peak of ``precision``, and in what: ``tflite``, ``tflite in fp32``."""
        peak = self.by[precision]
        return peak.library if peak.computed == precision else f"{peak.library} in {peak.computed}"


def _giga(macs_per_s: float) -> str:
    value = macs_per_s / 1e9
    return f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"


class Rate(NamedTuple):
    """One library's figure."""

    precision: str
    """What really ran."""
    library: str
    macs_per_s: float


def best(rates: Iterable[Rate], threads: int, isa: Set[str] = frozenset(), notes: Iterable[Note] = ()) -> Peaks:
    """The machine's peaks, of every library's figures.

    A precision counts as no slower than a wider one, in which its products can be had as well: where no library is faster
    in it, the wider one's figure stands, and says so. fp16 takes fp32's where the CPU is known to have no arithmetic in
    half precision, measured or not. A precision that nothing was measured in has no peak otherwise.

    Args:
        isa: ``edgeq.host.cpu.isa_flags``; empty where nothing is known of it.
    """
    own: dict[str, Peak] = {}
    for rate in rates:
        if rate.precision not in own or rate.macs_per_s > own[rate.precision].macs_per_s:
            own[rate.precision] = Peak(macs_per_s=rate.macs_per_s, library=rate.library, computed=rate.precision)
    found = {}
    for precision in dict.fromkeys((*_PRECISIONS, *own)):
        known = precision in own or (precision == "fp16" and lacks_half(isa))
        wider = [own[each] for each in _WIDER.get(precision, ()) if each in own]
        candidates = [own[precision], *wider] if precision in own else wider
        if known and candidates:
            found[precision] = max(candidates, key=lambda peak: peak.macs_per_s)
    return Peaks(by=found, threads=threads, notes=list(notes))


def lacks_half(isa: Set[str]) -> bool:
    """Whether the CPU is known to have no arithmetic in half precision."""
    return bool(isa) and not isa & _HALF


@dataclass(frozen=True)
class Efficiency:
    """What a cell achieved of the machine's peak."""

    macs_per_s: float
    """Multiply-adds a second, of the network's own count."""
    share: float
    """Of the limit; above 1 where the peak was measured too low, or the kernel does fewer multiply-adds than are counted."""
    library: str
    """Whose peaks it is a share of: ``tflite``; ``int8: onnxruntime, fp32: tflite`` where several precisions ran."""


def efficiency(
    shares: Mapping[str, float], macs_per_sample: int, samples_per_second: float, peaks: Peaks
) -> Efficiency | None:
    """How near to the machine's limit a cell comes.

    The limit is the time that a sample would take with every precision's multiply-adds at that precision's peak; the share
    is that time over the time it took. With one precision it is the achieved rate over the peak.

    Args:
        shares: Precision → share of the multiply-adds that were executed in it (``effective.macs``).
        macs_per_sample: The network's multiply-adds for one sample (``artifact.macs``).

    Returns:
        None where nothing is known of what ran, or a precision that ran has no measured peak.
    """
    ran = {name: part for name, part in shares.items() if part > 0}
    if not ran or macs_per_sample <= 0 or samples_per_second <= 0 or not ran.keys() <= peaks.by.keys():
        return None
    ideal_s = sum(part * macs_per_sample / peaks.by[name].macs_per_s for name, part in ran.items())
    libraries = {name: peaks.library(name) for name in sorted(ran, key=lambda name: -ran[name])}
    alone = set(libraries.values())
    return Efficiency(
        macs_per_s=macs_per_sample * samples_per_second,
        share=ideal_s * samples_per_second,
        library=alone.pop() if len(alone) == 1 else ", ".join(f"{name}: {lib}" for name, lib in libraries.items()),
    )
