from __future__ import annotations

import io

from rich.console import Console

from edgeq.cli.display import RunDisplay


def _shown(*temperatures: float | None) -> str:
    display = RunDisplay(as_json=False)
    display.console = Console(file=io.StringIO(), width=200)
    for now_c in temperatures:
        display.cooling("m/tflite/fp32/offline", now_c, 60)
    assert isinstance(display.console.file, io.StringIO)
    return display.console.file.getvalue()


def test_a_wait_for_the_device_to_cool_is_said_once_where_there_is_no_bar() -> None:
    shown = _shown(82.0, None, 71.5)
    assert (
        shown == "  m/tflite/fp32/offline was slowed down: waiting until the CPU is at 60 °C, to measure it once more\n"
    )
