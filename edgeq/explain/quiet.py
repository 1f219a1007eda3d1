"""Whether anybody else computed while explain's own processes did: what makes its figures unsteady."""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping
from typing import Any

from edgeq.host.state import MAX_NEIGHBOUR, MAX_STEAL, snapshot, steal_share, used_cpus
from edgeq.spec.note import Note


class Watch:
    """From its making on: the device's CPU time, and that of this process and of the children that have ended."""

    def __init__(self) -> None:
        self._state, self._own_s, self._began = snapshot(), _own_s(), time.monotonic()

    def notes(self) -> list[Note]:
        """``unsteady`` and ``busy-neighbour``, where it was so up to now."""
        own = (_own_s() - self._own_s) / max(time.monotonic() - self._began, 1e-9)
        return disturbed(self._state, snapshot(), own)


def disturbed(before: Mapping[str, Any], after: Mapping[str, Any], own_cpus: float) -> list[Note]:
    """The notes of a span between two of ``edgeq.host.state.snapshot()``.

    Args:
        own_cpus: CPU seconds a second that explain and its children used in between.
    """
    notes = []
    steal, used = steal_share(before, after), used_cpus(before, after)
    if steal is not None and steal > MAX_STEAL:
        text = f"the hypervisor gave {steal:.0%} of the CPU time to others meanwhile"
        notes.append(Note(code="unsteady", text=text, hint="explain it again on a quiet machine"))
    cpus = after["cpu_ticks"]["cpus"] if used is not None else 0
    if used is not None and used - own_cpus > MAX_NEIGHBOUR * cpus:
        text = f"other processes kept {used - own_cpus:.1f} of the device's {cpus} CPUs busy meanwhile"
        notes.append(Note(code="busy-neighbour", text=text, hint="end them, or wait, then explain it again"))
    return notes


def _own_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
