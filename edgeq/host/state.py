"""The device at one moment: what moves figures between two runs of the same cell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgeq.host import firmware
from edgeq.host.cpu import cpuinfo
from edgeq.host.reading import ROOT, integer, number, text

#: Share of CPU time that the hypervisor gave to others, from which on a figure is not to be trusted.
MAX_STEAL = 0.05
#: Other processes' part of all CPUs: beyond a tenth they take more than their share of caches and memory as well.
MAX_NEIGHBOUR = 0.1

#: Clock ticks of all CPUs, 10 ms each on Linux, below which a share of them is too coarse: half a second on two CPUs.
_FEWEST_TICKS = 100
#: hwmon drivers of CPUs that show in no thermal zone, such as AMD's; their first input is the package.
_CPU_SENSORS = ("coretemp", "k10temp", "zenpower")


def snapshot(root: Path = ROOT, ask: firmware.Ask | None = None) -> dict[str, Any]:
    """What the device is doing now, as JSON values; a field is None where the device does not tell.

    ``frequency_mhz`` (one a core), ``governor``, ``temperature_c`` (by sensor), ``load`` (1, 5, 15 minutes),
    ``cpu_ticks`` (``total``, ``idle`` and ``steal`` since boot, of ``cpus`` CPUs: see ``steal_share`` and ``used_cpus``),
    ``throttled`` (``edgeq.host.firmware.throttled``; ``ask`` stands in for ``vcgencmd``), ``throttle_count`` (x86: thermal
    throttling events of all cores since boot).
    """
    return {
        "frequency_mhz": frequencies(root),
        "governor": governor(root),
        "temperature_c": temperatures(root),
        "load": _load(root),
        "cpu_ticks": _ticks(root),
        "throttled": firmware.throttled(root, ask),
        "throttle_count": _throttle_count(root),
    }


def frequencies(root: Path = ROOT) -> list[float] | None:
    """MHz of each core: the governor's own figure, else ``/proc/cpuinfo``'s."""
    found = [value / 1000 for cpu in cpus(root) if (value := number(cpu / "cpufreq/scaling_cur_freq")) is not None]
    if not found:
        texts = (block.get("cpu MHz", "") for block in cpuinfo(root))
        found = [float(each) for each in texts if re.fullmatch(r"\d+(\.\d+)?", each)]
    return found or None


def governor(root: Path = ROOT) -> str | None:
    """The frequency governor, such as ``ondemand``; several joined by ``+`` where cores differ."""
    names = {name for cpu in cpus(root) if (name := text(cpu / "cpufreq/scaling_governor"))}
    return "+".join(sorted(names)) or None


def temperatures(root: Path = ROOT) -> dict[str, float] | None:
    """°C by sensor (``cpu-thermal``, ``x86_pkg_temp``, ``k10temp``); of sensors of one name the hottest."""
    return hottest_of(sensors(root))


def sensors(root: Path = ROOT) -> list[tuple[str, Path]]:
    """Name and file (millidegrees Celsius) of each temperature sensor that answers: thermal zones, and CPUs' hwmon."""
    zones = sorted(root.glob("sys/class/thermal/thermal_zone*"))
    found = [(text(zone / "type") or zone.name, zone / "temp") for zone in zones]
    for chip in sorted(root.glob("sys/class/hwmon/hwmon*")):
        if (name := text(chip / "name")) in _CPU_SENSORS:
            found.append((name, chip / "temp1_input"))
    return [(name, path) for name, path in found if number(path) is not None]


def hottest_of(found: list[tuple[str, Path]]) -> dict[str, float] | None:
    """°C by name of ``sensors()``; None where none answers."""
    hottest: dict[str, float] = {}
    for name, path in found:
        if (value := number(path)) is not None:
            hottest[name] = max(hottest.get(name, -273.15), value / 1000)
    return hottest or None


def steal_share(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Share of CPU time between two snapshots that the hypervisor gave to others; None where it can't be told."""
    first, last = before.get("cpu_ticks"), after.get("cpu_ticks")
    if not first or not last or last["total"] <= first["total"]:
        return None
    return float(max(0, last["steal"] - first["steal"]) / (last["total"] - first["total"]))


def used_cpus(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """How many of the device's CPUs all processes together kept busy between two snapshots, time stolen left out.

    None where it can't be told: no ``/proc/stat``, or fewer than ``_FEWEST_TICKS`` between them, which are too coarse.
    """
    first, last = before.get("cpu_ticks"), after.get("cpu_ticks")
    if not first or not last or "idle" not in first or last["total"] - first["total"] < _FEWEST_TICKS:
        return None
    total = last["total"] - first["total"]
    busy = total - (last["idle"] - first["idle"]) - (last["steal"] - first["steal"])
    return float(last["cpus"] * min(max(busy / total, 0.0), 1.0))


def cpus(root: Path = ROOT) -> list[Path]:
    """The folders of the logical CPUs, by number."""
    found = root.glob("sys/devices/system/cpu/cpu[0-9]*")
    return sorted((cpu for cpu in found if cpu.name[3:].isdecimal()), key=lambda cpu: int(cpu.name[3:]))


def _load(root: Path) -> list[float] | None:
    words = (text(root / "proc/loadavg") or "").split()[:3]
    if len(words) < 3 or not all(re.fullmatch(r"\d+(\.\d+)?", word) for word in words):
        return None
    return [float(word) for word in words]


def _ticks(root: Path) -> dict[str, int] | None:
    """``total``, ``idle`` (with waiting for disks) and ``steal`` of ``/proc/stat``, and how many CPUs they are of.

    Guest time (fields 9 and 10) is part of user time already.
    """
    lines = [line.split() for line in (text(root / "proc/stat") or "").splitlines()]
    words = next((line for line in lines if line[:1] == ["cpu"]), [])
    ticks = [integer(word) for word in words[1:9]]
    known = [tick for tick in ticks if tick is not None]
    if len(known) != 8:
        return None
    cpus = sum(bool(re.fullmatch(r"cpu\d+", line[0])) for line in lines if line)
    return {"total": sum(known), "idle": known[3] + known[4], "steal": known[7], "cpus": max(1, cpus)}


def _throttle_count(root: Path) -> int | None:
    counts = [count for cpu in cpus(root)
              if (count := number(cpu / "thermal_throttle/core_throttle_count")) is not None]  # fmt: skip
    return sum(counts) if counts else None
