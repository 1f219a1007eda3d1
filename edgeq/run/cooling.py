"""``edgeq run --cool-to``: lets a device cool that held itself back, so that the turn can be measured once more."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from edgeq.host import state
from edgeq.run.record import Record
from edgeq.spec.errors import RequestError
from edgeq.spec.note import Note

#: Seconds to wait at most, and between two looks.
MOST_S, LOOK_S = 900.0, 2.0

#: Sensors of CPUs, by the kernel's names of thermal zones and hwmon drivers: cpu-thermal, x86_pkg_temp, soc-thermal, k10temp.
_CPU = re.compile(r"cpu|pkg|soc|core|k10temp|zenpower", re.IGNORECASE)

#: °C of the hottest sensor of the CPU; None where the device has none.
Reader = Callable[[], float | None]


def hottest() -> float | None:
    """°C of the hottest sensor of the CPU; of any sensor where none is known to be the CPU's; None without one."""
    found = state.temperatures() or {}
    cpus = [value for name, value in found.items() if _CPU.search(name)]
    return max(cpus or found.values(), default=None)


def check(to_c: float | None, read: Reader = hottest) -> None:
    """Nothing is to be cooled (None), or there is a sensor to cool by.

    Raises:
        RequestError: there is none (code ``no-sensor``).
    """
    if to_c is not None and read() is None:
        raise RequestError(
            f"cannot cool to {to_c:g} °C",
            "this device tells no temperature (no thermal zone in /sys/class/thermal, no CPU's sensor in /sys/class/hwmon)",
            "leave out --cool-to",
            code="no-sensor",
        )


@dataclass(frozen=True)
class Cooled:
    """A wait that is over."""

    seconds: float
    start_c: float | None
    end_c: float | None
    reached: bool
    """Whether it ended at or below the temperature asked for."""


def cool(
    to_c: float,
    watch: Callable[[float | None], None],
    read: Reader = hottest,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Cooled:
    """Waits until the CPU is at ``to_c`` °C or below, at most ``MOST_S`` seconds.

    Args:
        watch: Told of each reading before the next wait.
    """
    began, start = clock(), read()
    now = start
    while (now is None or now > to_c) and clock() - began < MOST_S:
        watch(now)
        sleep(LOOK_S)
        now = read()
    return Cooled(clock() - began, start, now, now is not None and now <= to_c)


def notes(first: Record, kept: str, to_c: float, cooled: Cooled) -> list[Note]:
    """What the second record of a turn tells: ``measured-again``, and ``not-cooled`` where the wait was given up.

    Args:
        first: The first record.
        kept: The name under which it is kept.
    """
    end = "an unknown temperature" if cooled.end_c is None else f"{cooled.end_c:.1f} °C"
    text = (
        f"measured again after {cooled.seconds:.0f} s of cooling, at {end}: the first try was slowed down "
        f"({', '.join(first.host.slowed_by)}), and is kept as {kept}"
    )
    found = [Note(code="measured-again", text=text)]
    if not cooled.reached:
        text = f"after {cooled.seconds:.0f} s of waiting the CPU was at {end}, not at the {to_c:g} °C asked for (--cool-to)"
        hint = "give it a heat sink or a fan, or ask for a temperature that it comes down to when idle"
        found.append(Note(code="not-cooled", text=text, hint=hint))
    return found
