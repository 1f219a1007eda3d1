"""The device at one moment: what moves figures between two runs of the same cell."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edgeq.host.cpu import cpuinfo
from edgeq.host.reading import ROOT, integer, number, text

#: Bits of the Raspberry Pi firmware's ``get_throttled``: now, and (16 bits further up) since boot.
#: Share of CPU time that the hypervisor gave to others, from which on a figure is not to be trusted.
MAX_STEAL = 0.05
#: Other processes' part of all CPUs: beyond a tenth they take more than their share of caches and memory as well.
MAX_NEIGHBOUR = 0.1

_THROTTLE_BITS = {0: "under-voltage", 1: "frequency capped", 2: "throttled", 3: "soft temperature limit"}
#: Clock ticks of all CPUs, 10 ms each on Linux, below which a share of them is too coarse: half a second on two CPUs.
_FEWEST_TICKS = 100
_FIRMWARE = "sys/devices/platform/soc*/*firmware/get_throttled"


def vcgencmd() -> str | None:
    """What ``vcgencmd get_throttled`` prints, or None where there is no such tool or it gives no answer."""
    tool = shutil.which("vcgencmd")
    if tool is None:
        return None
    try:
        done = subprocess.run([tool, "get_throttled"], capture_output=True, text=True, timeout=2, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def snapshot(root: Path = ROOT, firmware: Callable[[], str | None] = vcgencmd) -> dict[str, Any]:
    """What the device is doing now, as JSON values; a field is None where the device does not tell.

    ``frequency_mhz`` (one a core), ``governor``, ``temperature_c`` (by sensor), ``load`` (1, 5, 15 minutes),
    ``cpu_ticks`` (``total``, ``idle`` and ``steal`` since boot, of ``cpus`` CPUs: see ``steal_share`` and ``used_cpus``),
    ``throttled`` (Raspberry Pi firmware: ``raw``, ``now``, ``since_boot``), ``throttle_count`` (x86: thermal throttling
    events of all cores since boot).
    """
    return {
        "frequency_mhz": frequencies(root),
        "governor": governor(root),
        "temperature_c": temperatures(root),
        "load": _load(root),
        "cpu_ticks": _ticks(root),
        "throttled": throttled(root, firmware),
        "throttle_count": _throttle_count(root),
    }


def frequencies(root: Path = ROOT) -> list[float] | None:
    """MHz of each core: the governor's own figure, else ``/proc/cpuinfo``'s."""
    found = [value / 1000 for cpu in _cpus(root) if (value := number(cpu / "cpufreq/scaling_cur_freq")) is not None]
    if not found:
        texts = (block.get("cpu MHz", "") for block in cpuinfo(root))
        found = [float(each) for each in texts if re.fullmatch(r"\d+(\.\d+)?", each)]
    return found or None


def governor(root: Path = ROOT) -> str | None:
    """The frequency governor, such as ``ondemand``; several joined by ``+`` where cores differ."""
    names = {name for cpu in _cpus(root) if (name := text(cpu / "cpufreq/scaling_governor"))}
    return "+".join(sorted(names)) or None


def temperatures(root: Path = ROOT) -> dict[str, float] | None:
    """°C by thermal zone (``cpu-thermal``, ``x86_pkg_temp``); zones of one name keep the hottest."""
    found: dict[str, float] = {}
    for zone in sorted(root.glob("sys/class/thermal/thermal_zone*")):
        value = number(zone / "temp")
        if value is not None:
            name = text(zone / "type") or zone.name
            found[name] = max(found.get(name, -273.15), value / 1000)
    return found or None


def throttled(root: Path = ROOT, firmware: Callable[[], str | None] = vcgencmd) -> dict[str, Any] | None:
    """The Raspberry Pi firmware's word, decoded; None on other devices. Source: the ``vcgencmd`` documentation."""
    found = next((value for path in sorted(root.glob(_FIRMWARE)) if (value := text(path))), None)
    raw = parse_throttled(found) if found else parse_throttled(firmware() or "")
    if raw is None:
        return None
    now = [name for bit, name in _THROTTLE_BITS.items() if raw >> bit & 1]
    since_boot = [name for bit, name in _THROTTLE_BITS.items() if raw >> (bit + 16) & 1]
    return {"raw": hex(raw), "now": now, "since_boot": since_boot}


def parse_throttled(found: str) -> int | None:
    """``throttled=0x50005`` (vcgencmd) or ``50005`` (sysfs, hexadecimal without a prefix) as a number, else None."""
    match = re.fullmatch(r"(?:throttled=)?(?:0x)?([0-9a-fA-F]{1,8})", found.strip())
    return int(match[1], 16) if match else None


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


def _cpus(root: Path) -> list[Path]:
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
    counts = [count for cpu in _cpus(root)
              if (count := number(cpu / "thermal_throttle/core_throttle_count")) is not None]  # fmt: skip
    return sum(counts) if counts else None
