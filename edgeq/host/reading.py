"""Reading ``/proc`` and ``/sys``: what is not there is None, because every kernel and board lacks something."""

from __future__ import annotations

from pathlib import Path

#: Where ``/proc``, ``/sys`` and ``/etc`` are read; tests give a recorded tree instead.
ROOT = Path("/")


def text(path: Path) -> str | None:
    """The file's text without surrounding white space and NULs, or None where it is absent or can't be read."""
    try:
        return path.read_bytes().decode("utf-8", errors="replace").strip("\0 \t\r\n")
    except OSError:
        return None


def number(path: Path) -> int | None:
    """The file's whole content as an integer, or None where it is absent or says something else."""
    return integer(text(path))


def integer(found: str | None) -> int | None:
    """``found`` as an integer in any of Python's notations (``12``, ``0x1f``), or None."""
    try:
        return int(found, 0) if found else None
    except ValueError:
        return None


def pairs(found: str | None) -> dict[str, int]:
    """Lines of ``key value`` or ``Key:  123 kB`` (``memory.events``, ``/proc/meminfo``); other lines are left out."""
    result: dict[str, int] = {}
    for line in (found or "").splitlines():
        words = line.split()
        value = integer(words[1].lstrip("0") or "0") if len(words) > 1 else None
        if value is not None:
            result[words[0].rstrip(":")] = value
    return result


def cpu_list(found: str | None) -> set[int]:
    """The kernel's list notation, ``0-3,8,10-11``, as a set; parts that are not numbers are left out."""
    cpus: set[int] = set()
    for part in (found or "").split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (last.isdecimal() or not last):
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus
