"""``python -m edgeq.host.sampler FILE``: what the device does while something else is timed, a line of JSON a second.

A process of its own, at the lowest priority: it looks for its sources once, and then reads a few small files a second (on a
Raspberry Pi it also runs ``vcgencmd``). It says ``ready`` on standard output when the first line is written, and ends, with
a last line, when its standard input does: also where whoever started it is killed. Imports neither numpy nor pydantic.

Each line has ``t`` (CLOCK_MONOTONIC, seconds) and whatever the device tells of: ``temperature_c`` (by sensor), ``mhz`` (one
a core), ``governor``, ``throttled`` (the firmware's bits in words) and ``since_boot``, ``available_mb``, ``swap_mb`` (in
use), ``swapped_pages`` (in and out since boot), ``energy_uj`` (by package). The first line has ``about`` besides: what does
not change.
"""

from __future__ import annotations

import json
import os
import resource
import select
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgeq.host import cgroup, energy, state
from edgeq.host.firmware import Ask, Firmware
from edgeq.host.reading import ROOT, number, pairs, text

PERIOD_S = 1.0
READY = b"ready\n"

#: cpufreq drivers whose ``cpuinfo_max_freq`` is a turbo frequency, which no CPU holds with all cores busy.
_TURBO = ("intel_pstate", "intel_cpufreq", "amd-pstate", "amd-pstate-epp", "amd_pstate", "amd_pstate_epp")


class Sensors:
    """The sources of one device, looked for once."""

    def __init__(self, root: Path = ROOT, ask: Ask | None = None) -> None:
        """``ask`` stands in for ``vcgencmd``."""
        self._root, self._firmware = root, Firmware(root, ask)
        self._temperatures = state.sensors(root)
        self._clocks = _clocks(root)
        # Cores that share a policy share its file, which need not be read for each of them.
        self._governors = sorted({(cpu / "cpufreq/scaling_governor").resolve() for cpu in state.cpus(root)})
        self._memory = cgroup.memory_limits(root)
        self._packages = energy.packages(root) if energy.readable(root) else []

    def about(self) -> dict[str, Any]:
        """``full_mhz`` (one a core: the most that it holds under load; None where that is not told), ``energy_range_uj``,
        ``page_bytes``."""
        found = {
            "full_mhz": [_full_mhz(cpu) for cpu in state.cpus(self._root)] if self._clocks else None,
            "energy_range_uj": {each.name: each.range_uj for each in self._packages} or None,
            "page_bytes": resource.getpagesize(),
        }
        return _told(found)

    def sample(self) -> dict[str, Any]:
        """One line."""
        meminfo = pairs(text(self._root / "proc/meminfo"))
        moved = pairs(text(self._root / "proc/vmstat"))
        firmware = self._firmware.read()
        left = [each for each in (_bytes(meminfo, "MemAvailable"), cgroup.left_of(self._memory)) if each is not None]
        swap, free = _bytes(meminfo, "SwapTotal"), _bytes(meminfo, "SwapFree")
        found = {
            "t": round(time.monotonic(), 6),
            "temperature_c": state.hottest_of(self._temperatures),
            "mhz": self._mhz(),
            "governor": "+".join(sorted({name for path in self._governors if (name := text(path))})) or None,
            "throttled": firmware and firmware.now,
            "since_boot": firmware and firmware.since_boot,
            "available_mb": min(left) / 1e6 if left else None,
            "swap_mb": None if swap is None or free is None else (swap - free) / 1e6,
            "swapped_pages": moved["pswpin"] + moved["pswpout"] if {"pswpin", "pswpout"} <= moved.keys() else None,
            "energy_uj": energy.read(self._packages),
        }
        return _told(found)

    def _mhz(self) -> list[float] | None:
        if not self._clocks:
            return state.frequencies(self._root)  # of /proc/cpuinfo: without cpufreq, as in most virtual machines
        read = {path: number(path) for path in dict.fromkeys(self._clocks)}
        return [value / 1000 for path in self._clocks if (value := read[path]) is not None] or None


def _clocks(root: Path) -> list[Path]:
    """For each core the file with its frequency in kHz, the same one for cores that share a clock."""
    files = [(cpu / "cpufreq/scaling_cur_freq").resolve() for cpu in state.cpus(root)]
    return [path for path in files if number(path) is not None]


def _full_mhz(cpu: Path) -> float | None:
    """MHz that a core keeps up with all others busy, where something tells: the base frequency of CPUs with a turbo
    (intel_pstate's, or ACPI CPPC's nominal one), else the highest."""
    if (base := number(cpu / "cpufreq/base_frequency")) is not None:
        return base / 1000
    if nominal := number(cpu / "acpi_cppc/nominal_freq"):
        return float(nominal)
    highest = number(cpu / "cpufreq/cpuinfo_max_freq")
    if highest is None or text(cpu / "cpufreq/scaling_driver") in _TURBO:
        return None
    return highest / 1000


def _bytes(meminfo: Mapping[str, int], key: str) -> int | None:
    return meminfo[key] * 1024 if key in meminfo else None


def _told(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if value is not None}


def main(argv: Sequence[str]) -> int:
    """Samples into the file ``argv[1]`` until standard input ends."""
    os.nice(19)
    sensors = Sensors()
    with Path(argv[1]).open("w", encoding="utf-8", buffering=1) as lines:
        lines.write(json.dumps({**sensors.sample(), "about": sensors.about()}) + "\n")
        os.write(sys.stdout.fileno(), READY)
        due = time.monotonic() + PERIOD_S
        while not _ended(due - time.monotonic()):
            lines.write(json.dumps(sensors.sample()) + "\n")
            due = max(due + PERIOD_S, time.monotonic())
        lines.write(json.dumps({**sensors.sample(), "end": True}) + "\n")
    return 0


def _ended(within_s: float) -> bool:
    """Waits at most so long for the end of standard input."""
    ready, _, _ = select.select([sys.stdin.fileno()], [], [], max(0.0, within_s))
    return bool(ready) and not os.read(sys.stdin.fileno(), 64)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
