"""What the device's state before and after a measurement says about the figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgeq.host.state import steal_share
from edgeq.spec.note import Note

#: Share of CPU time that the hypervisor gave to others, from which on a figure is not to be trusted.
MAX_STEAL = 0.05
#: CPU time over wall time below this share of the threads: somebody else had the cores, or threads had nothing to do.
MIN_BUSY = 0.6
#: And above this one: more threads ran than were asked for.
MAX_BUSY = 1.25


def host_notes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Note]:
    """``unsteady`` where the hypervisor stole time, ``throttled`` where the device slowed itself down."""
    notes = []
    steal = steal_share(before, after)
    if steal is not None and steal > MAX_STEAL:
        text = f"the hypervisor gave {steal:.0%} of the CPU time to others during the measurement"
        notes.append(Note(code="unsteady", text=text, hint="run the cell again on a quiet machine"))
    bits = (after.get("throttled") or {}).get("now") or (before.get("throttled") or {}).get("now")
    if bits:
        text = f"the firmware reports: {', '.join(bits)}"
        notes.append(Note(code="throttled", text=text, hint="mend cooling or power supply, then run the cell again"))
    first, last = before.get("throttle_count"), after.get("throttle_count")
    if first is not None and last is not None and last > first:
        text = f"the CPU throttled {last - first} times for heat during the measurement"
        notes.append(Note(code="throttled", text=text, hint="mend the cooling, then run the cell again"))
    return notes


def cpu_notes(cpu_per_wall: float, threads: int) -> list[Note]:
    """``cpu-time`` where CPU time over wall time belies the number of threads."""
    if MIN_BUSY * threads <= cpu_per_wall <= MAX_BUSY * threads:
        return []
    text = f"{cpu_per_wall:.1f} CPU seconds a second were used, with {threads} threads asked for"
    hint = "a busy neighbour, or a model too small for so many threads; compare with --threads 1"
    return [Note(code="cpu-time", text=text, hint=hint)]
