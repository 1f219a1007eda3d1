"""What the control groups (version 1, version 2, or both at once) allow this process."""

from __future__ import annotations

from pathlib import Path

from edgeq.host.reading import ROOT, number, pairs, text

_NO_LIMIT = 1 << 60
"""Version 1 writes "no limit" as the largest multiple of a page; no machine has as much."""


def folders(controller: str, root: Path = ROOT) -> list[Path]:
    """The folders whose limits bear on this process, from its own group up to the mount's root.

    A limit may stand at any level, so that all of them count. Inside a container ``/proc/self/cgroup`` may name a path
    of the host's, which is not there; what remains then is the mount's root, the container's own group.
    """
    found: list[Path] = []
    for line in (text(root / "proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3 and (parts[1] == "" or controller in parts[1].split(",")):
            for mount in _mounts(controller if parts[1] else "", root):
                found += _upwards(mount, parts[2])
    return list(dict.fromkeys(found))


def _mounts(controller: str, root: Path) -> list[Path]:
    base = root / "sys/fs/cgroup"
    if not controller:
        return [base / "unified", base]
    if not base.is_dir():
        return []
    return sorted(entry for entry in base.iterdir() if controller in entry.name.split(","))


def _upwards(mount: Path, path: str) -> list[Path]:
    names = [name for name in path.split("/") if name not in ("", "..")]
    levels = [mount.joinpath(*names[:depth]) for depth in range(len(names), -1, -1)]
    return [level for level in levels if level.is_dir()]


def cpu_quota(root: Path = ROOT) -> float | None:
    """CPUs' worth of time a period that the tightest group allows, such as 1.5; None where nothing limits it."""
    quotas = [quota for folder in folders("cpu", root) if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


def _quota(folder: Path) -> float | None:
    words = (text(folder / "cpu.max") or "").split()
    if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
        return int(words[0]) / int(words[1])
    quota, period = number(folder / "cpu.cfs_quota_us"), number(folder / "cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 and period > 0 else None


def memory_limit(root: Path = ROOT) -> int | None:
    """Bytes that the tightest group allows, or None where nothing limits them."""
    return min((limit for _, limit in memory_limits(root)), default=None)


def memory_left(root: Path = ROOT) -> int | None:
    """Bytes below the tightest limit, counting page cache that can be dropped as free; None where nothing limits."""
    return left_of(memory_limits(root))


def memory_limits(root: Path = ROOT) -> list[tuple[Path, int]]:
    """The folder of each group whose memory is limited, and the limit in bytes."""
    found = []
    for folder in folders("memory", root):
        limit = _first(folder, "memory.max", "memory.limit_in_bytes")
        if limit is not None and limit < _NO_LIMIT:
            found.append((folder, limit))
    return found


def left_of(limits: list[tuple[Path, int]]) -> int | None:
    """``memory_left`` of ``memory_limits()``, for one who asks often."""
    return min((max(0, limit - _in_use(folder)) for folder, limit in limits), default=None)


def _in_use(folder: Path) -> int:
    """Bytes that can't just be dropped."""
    stat = pairs(text(folder / "memory.stat"))
    cache = stat.get("inactive_file", stat.get("total_inactive_file", 0))
    return (_first(folder, "memory.current", "memory.usage_in_bytes") or 0) - cache


def oom_kills(root: Path = ROOT) -> int | None:
    """Processes of this process's own group that the kernel killed for lack of memory; None where it does not count."""
    for folder in folders("memory", root):
        for name in ("memory.events", "memory.oom_control"):
            counted = pairs(text(folder / name)).get("oom_kill")
            if counted is not None:
                return counted
    return None


def _first(folder: Path, *names: str) -> int | None:
    return next((value for name in names if (value := number(folder / name)) is not None), None)
