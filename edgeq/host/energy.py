"""Energy that the CPU's packages have used, by RAPL (Intel's, and AMD's since Linux 5.8), through Linux's powercap.

A package is cores, caches, memory controller and graphics, busy or idle; the memory itself, the board and the power supply's
losses are not in it. Source: the kernel's Documentation/power/powercap/powercap.rst.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeq.host.reading import ROOT, number, text

#: Names of the domains that are whole packages (``package-0``, ``package-0-die-1``): ``core``, ``uncore`` and ``dram`` are
#: parts or neighbours of one, ``psys`` is the platform, which few machines have.
_PACKAGE = re.compile(r"package-\d+(-die-\d+)?")


@dataclass(frozen=True)
class Package:
    """One package's counter."""

    name: str
    counter: Path
    """A file with microjoules, from an arbitrary start."""
    range_uj: int | None
    """Where the counter begins again at 0; None where it is not told."""


def packages(root: Path = ROOT) -> list[Package]:
    """The packages that have a counter, readable or not; empty on a device without RAPL."""
    found = []
    for zone in sorted(root.glob("sys/class/powercap/intel-rapl:*")):
        name = text(zone / "name") or ""
        if _PACKAGE.fullmatch(name) and (zone / "energy_uj").exists():
            found.append(Package(name, zone / "energy_uj", number(zone / "max_energy_range_uj")))
    return found


def readable(root: Path = ROOT) -> bool | None:
    """Whether this user may read the energy of all packages; None where there is no RAPL.

    Since CVE-2020-8694 (an attack that reads secrets off the power used) kernels let root alone read it.
    """
    found = packages(root)
    return all(number(each.counter) is not None for each in found) if found else None


def mend(root: Path = ROOT) -> str:
    """The command that makes the counters readable until the next boot; for this user and all others of the machine."""
    return f"sudo chmod a+r {' '.join(f'/{each.counter.relative_to(root)}' for each in packages(root))}"


def read(found: Sequence[Package]) -> dict[str, int] | None:
    """Microjoules by package; None where there is none, or one of them can't be read."""
    values = {each.name: number(each.counter) for each in found}
    known = {name: value for name, value in values.items() if value is not None}
    return known if known and len(known) == len(values) else None


def joules(before: Mapping[str, int], after: Mapping[str, int], ranges: Mapping[str, int | None]) -> float | None:
    """Energy of all packages together between two readings; a counter may have begun again at 0 once between them.

    None where the readings are not of the same packages, or a counter went back and its range is not known.

    Args:
        before: ``read()``.
        after: The same, later.
        ranges: ``Package.range_uj`` by name.
    """
    if not before or before.keys() != after.keys():
        return None
    total = 0
    for name, start in before.items():
        used, turn = after[name] - start, ranges.get(name)
        if used < 0:
            if turn is None or used + turn < 0:
                return None
            used += turn
        total += used
    return total / 1e6
