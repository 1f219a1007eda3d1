"""What state the device is in: what would make figures unsteady, or keep a run from its end, and what mends it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgeq.host import energy, memory, state
from edgeq.host.reading import ROOT
from edgeq.run.disk import needed
from edgeq.spec.note import Note

#: °C from which a Raspberry Pi's firmware lowers the clock (its ``temp_soft_limit`` is 60 on some boards, 80 to 85 on most),
#: and other CPUs are near it.
HOT_C = 80.0
#: Below this much a worker with a small model on the lightest framework does not fit (MobileNetV2 on TFLite: 190 MB).
LITTLE_MEMORY = 250_000_000


def condition(root: Path = ROOT, folder: Path | None = None) -> dict[str, Any]:
    """What the device does now, as JSON values; None where it does not tell.

    ``state`` (``edgeq.host.state.snapshot``), ``energy`` (whether RAPL is ``readable``, None without it, and the command that
    would ``mend`` it), ``memory_mb`` {``total``, ``available``} and ``disk_mb`` {``free``, ``folder``}.

    Args:
        folder: Where results will be written.
    """
    folder = folder or Path.cwd()
    free = shutil.disk_usage(folder).free
    return {
        "state": state.snapshot(root),
        "energy": {"readable": energy.readable(root), "mend": energy.mend(root)},
        "memory_mb": {"total": _mb(memory.total(root)), "available": _mb(memory.available(root))},
        "disk_mb": {"free": _mb(free), "folder": str(folder)},
    }


def _mb(count: int | None) -> int | None:
    return None if count is None else round(count / 1e6)


def complaints(found: Mapping[str, Any]) -> list[tuple[Note, bool]]:
    """Verdicts on ``condition()``; True where a figure measured now would be wrong, or none could be had."""
    now = found["state"]
    notes = _throttling(now["throttled"])
    hottest = max((now["temperature_c"] or {}).items(), key=lambda each: each[1], default=("", 0.0))
    if hottest[1] >= HOT_C:
        text = f"{hottest[1]:.0f} °C ({hottest[0]}): the clock is lowered at about this temperature"
        notes.append(
            (Note(code="hot", text=text, hint="give it a heat sink or a fan; then: edgeq run --cool-to 60"), False)
        )
    if now["governor"] not in (None, "performance"):
        text = f"CPU governor {now['governor']}: figures will be unsteady"
        hint = "run: echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
        notes.append((Note(code="governor", text=text, hint=hint), False))
    if found["energy"]["readable"] is False:
        text = "the CPU's energy counters (RAPL) are for root alone: records will have no joules"
        notes.append((Note(code="no-energy", text=text, hint=f"run: {found['energy']['mend']}"), False))
    left = found["memory_mb"]["available"]
    if left is not None and left * 1e6 < LITTLE_MEMORY:
        text = f"{left} MB of memory can be had without swapping: not even a small model fits"
        notes.append((Note(code="little-memory", text=text, hint="end other programs: top -o %MEM shows which"), True))
    disk = found["disk_mb"]
    if disk["free"] * 1e6 < needed():
        text = f"{disk['free']} MB are free in {disk['folder']}: no cell is started below {needed() / 1e6:.0f} MB"
        notes.append((Note(code="disk-full", text=text, hint="run: sudo apt clean; du -xh . | sort -h | tail"), True))
    return notes


def _throttling(throttled: Mapping[str, Any] | None) -> list[tuple[Note, bool]]:
    """What the Raspberry Pi's firmware says: now, and since boot where that is more."""
    if throttled is None:
        return []
    now, before = throttled["now"], [bit for bit in throttled["since_boot"] if bit not in throttled["now"]]
    found = []
    if now:
        text = f"the firmware says that there is now: {', '.join(now)} ({throttled['raw']}): figures would be too slow"
        found.append((Note(code="throttled", text=text, hint=_cure(now)), True))
    if before:
        text = f"the firmware says that there has been since boot: {', '.join(before)} ({throttled['raw']})"
        hint = f"{_cure(before)}; the bits stay until: sudo reboot"
        found.append((Note(code="was-throttled", text=text, hint=hint), False))
    return found


def _cure(bits: list[str]) -> str:
    if "under-voltage" in bits:  # raspberrypi/firmware#615: throttled at 39 °C, because of it
        return "use the board's own power supply and cable (5.1 V; Pi 4: 3 A, Pi 5: 5 A), then: vcgencmd get_throttled"
    return "let it cool, or give it a heat sink or a fan; then: edgeq run --cool-to 60"
