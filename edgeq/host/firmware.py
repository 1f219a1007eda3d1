"""What a Raspberry Pi's firmware says of its power and heat: under-voltage, a capped clock, throttling.

Three sources, the best first. ``vcgencmd get_throttled`` is the firmware's own word. The sysfs file ``get_throttled``
holds what the kernel's driver was told when it last asked, every two seconds, and the driver has the bits of "since boot"
cleared each time, so that they mean "since the poll before" there; it is deprecated, and the first look at it leaves a
warning in the kernel's log (raspberrypi/linux: drivers/firmware/raspberrypi.c and drivers/hwmon/raspberrypi-hwmon.c). The
driver's alarm, ``in0_lcrit_alarm`` of the hwmon device ``rpi_volt``, is all that other kernels have: whether there was
under-voltage within those two seconds.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeq.host.reading import ROOT, number, text

#: Bits of the firmware's word: now; and 16 bits further up, since boot. Source: the documentation of ``vcgencmd``.
BITS = {0: "under-voltage", 1: "frequency capped", 2: "throttled", 3: "soft temperature limit"}
UNDER_VOLTAGE = BITS[0]

#: Below the SoC's node, whose name has its address on a Pi 5, or at the top.
_SYSFS = ("sys/devices/platform/soc*/*firmware/get_throttled", "sys/devices/platform/*firmware/get_throttled")

Ask = Callable[[], str | None]


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


def parse_throttled(found: str) -> int | None:
    """``throttled=0x50005`` (vcgencmd) or ``50005`` (sysfs, hexadecimal without a prefix) as a number, else None."""
    match = re.fullmatch(r"(?:throttled=)?(?:0x)?([0-9a-fA-F]{1,8})", found.strip())
    return int(match[1], 16) if match else None


def in_order(names: Iterable[str]) -> list[str]:
    """The names of ``BITS`` that are among ``names``, in the order of the bits."""
    found = set(names)
    return [name for name in BITS.values() if name in found]


@dataclass(frozen=True)
class Reading:
    """What one look at the sources gave."""

    source: str
    """``vcgencmd``, ``sysfs`` or ``rpi_volt``."""
    word: int | None
    """The firmware's; None from ``rpi_volt`` alone."""
    alarm: bool
    """Whether ``rpi_volt`` tells of under-voltage within the last two seconds; False, too, where there is no such device."""

    @property
    def now(self) -> list[str]:
        """What is so now, in words; the alarm's and the sysfs file's "now" is the last two seconds."""
        word = self.word or 0
        if self.source == "sysfs":
            word |= word >> 16
        return in_order([*_words(word), *([UNDER_VOLTAGE] if self.alarm else [])])

    @property
    def since_boot(self) -> list[str]:
        """What is known to have been since boot; only ``vcgencmd`` knows all of it."""
        return in_order([*_words((self.word or 0) >> 16), *self.now])


def _words(word: int) -> list[str]:
    return [name for bit, name in BITS.items() if word >> bit & 1]


class Firmware:
    """The sources of one device, looked for once, so that a reading opens only what is there."""

    def __init__(self, root: Path = ROOT, ask: Ask | None = None) -> None:
        """``ask`` stands in for ``vcgencmd``, which is this machine's own and is never asked of another tree."""
        self._ask = ask or (vcgencmd if root == ROOT and shutil.which("vcgencmd") else None)
        files = (path for pattern in _SYSFS for path in sorted(root.glob(pattern)))
        self._file = next(files, None)  # not read before it is needed: see the module
        sensors = (name.parent for name in sorted(root.glob("sys/class/hwmon/hwmon*/name")) if text(name) == "rpi_volt")
        self._alarm = next((path for each in sensors if number(path := each / "in0_lcrit_alarm") is not None), None)

    def read(self) -> Reading | None:
        """None on a device that has none of the sources, or where none of them answers."""
        alarm = number(self._alarm) if self._alarm else None
        answer = self._ask() if self._ask else None
        if (word := parse_throttled(answer or "")) is not None:
            return Reading("vcgencmd", word, bool(alarm))
        if self._file and (word := parse_throttled(text(self._file) or "")) is not None:
            return Reading("sysfs", word, bool(alarm))
        return None if alarm is None else Reading("rpi_volt", None, bool(alarm))


def throttled(root: Path = ROOT, ask: Ask | None = None) -> dict[str, Any] | None:
    """What the firmware says, as JSON values; None on other devices.

    ``source`` (see the module), ``raw`` (the source's own word), ``now`` (words of ``BITS``, such as ``under-voltage``), and
    ``since_boot``: what is known to have been since boot, of which only ``vcgencmd`` knows all.
    """
    found = Firmware(root, ask).read()
    if found is None:
        return None
    raw = f"in0_lcrit_alarm={int(found.alarm)}" if found.word is None else hex(found.word)
    return {"source": found.source, "raw": raw, "now": found.now, "since_boot": found.since_boot}
