"""Memory of the machine, of the control group, and of one process. All in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgeq.host import cgroup
from edgeq.host.reading import ROOT, pairs, text


@dataclass(frozen=True)
class OomKills:
    """How often the kernel has killed for lack of memory, so far; None where it does not count."""

    group: int | None
    machine: int | None

    def since(self, earlier: OomKills) -> bool:
        """Whether any counter that both know has gone up."""
        pairs = ((self.group, earlier.group), (self.machine, earlier.machine))
        return any(now > then for now, then in pairs if now is not None and then is not None)


def total(root: Path = ROOT) -> int | None:
    """The machine's memory, whatever a control group allows of it."""
    return _kilobytes(root / "proc/meminfo", "MemTotal")


def limit(root: Path = ROOT) -> int | None:
    """What a control group allows, or None where nothing limits it."""
    return cgroup.memory_limit(root)


def available(root: Path = ROOT) -> int | None:
    """What can be had without swapping: the kernel's estimate, or what a control group's limit leaves, if less."""
    both = (_kilobytes(root / "proc/meminfo", "MemAvailable"), cgroup.memory_left(root))
    return min((value for value in both if value is not None), default=None)


def peak_rss(root: Path = ROOT, pid: int | str = "self") -> int | None:
    """The largest resident set that a process has had (VmHWM); None where the process is gone.

    Not ``getrusage``: its ``ru_maxrss`` outlives ``exec``, so that a small worker shows the peak of the large parent it
    was forked from.
    """
    return _kilobytes(root / f"proc/{pid}/status", "VmHWM")


def oom_kills(root: Path = ROOT) -> OomKills:
    """Counters to compare before and after a child died of SIGKILL: did the kernel kill for lack of memory between?"""
    return OomKills(cgroup.oom_kills(root), pairs(text(root / "proc/vmstat")).get("oom_kill"))


def _kilobytes(path: Path, key: str) -> int | None:
    value = pairs(text(path)).get(key)
    return None if value is None else value * 1024
