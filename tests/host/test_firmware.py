from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.host import firmware
from tests.host import trees

ALARM = "sys/class/hwmon/hwmon1/in0_lcrit_alarm"


def test_vcgencmd_is_asked_first_as_it_alone_knows_what_was_since_boot(tmp_path: Path) -> None:
    found = firmware.throttled(trees.pi5_fine(tmp_path), lambda: "throttled=0x20000\n")
    assert found == {"source": "vcgencmd", "raw": "0x20000", "now": [], "since_boot": ["frequency capped"]}


@pytest.mark.parametrize(
    "answer", [None, "", "VCHI initialization failed\n", 'error=1 error_msg="Command not registered"']
)
def test_sysfs_is_read_where_vcgencmd_has_no_answer(tmp_path: Path, answer: str | None) -> None:
    found = firmware.throttled(trees.pi4_throttled(tmp_path), lambda: answer)
    assert found == {"source": "sysfs", "raw": "0x50005", "now": ["under-voltage", "throttled"],
                     "since_boot": ["under-voltage", "throttled"]}  # fmt: skip


def test_the_upper_bits_of_sysfs_are_of_the_last_seconds(tmp_path: Path) -> None:
    """The kernel's driver has the firmware clear them each time it asks, every two seconds."""
    trees.pi5_fine(tmp_path)
    (file,) = tmp_path.glob("sys/devices/platform/soc*/*/get_throttled")
    file.write_text("50000\n")
    found = firmware.throttled(tmp_path)
    assert found is not None
    assert found["now"] == ["under-voltage", "throttled"]


def test_a_fine_pi_5_says_so(tmp_path: Path) -> None:
    assert firmware.throttled(trees.pi5_fine(tmp_path)) == {
        "source": "sysfs",
        "raw": "0x0",
        "now": [],
        "since_boot": [],
    }


@pytest.mark.parametrize(("alarm", "now"), [("1\n", ["under-voltage"]), ("0\n", [])])
def test_other_kernels_have_the_alarm_alone(tmp_path: Path, alarm: str, now: list[str]) -> None:
    trees.write(tmp_path, {"sys/class/hwmon/hwmon1/name": "rpi_volt\n", ALARM: alarm})
    found = firmware.throttled(tmp_path)
    assert found is not None
    assert (found["source"], found["raw"], found["now"]) == ("rpi_volt", f"in0_lcrit_alarm={alarm.strip()}", now)


def test_the_alarm_adds_a_dip_that_the_word_no_longer_shows(tmp_path: Path) -> None:
    found = firmware.throttled(trees.pi4_throttled(tmp_path), lambda: "throttled=0x4\n")
    assert found is not None
    assert (found["source"], found["now"]) == ("vcgencmd", ["under-voltage", "throttled"])


def test_another_sensor_s_alarm_is_no_under_voltage(tmp_path: Path) -> None:
    trees.write(tmp_path, {"sys/class/hwmon/hwmon1/name": "nct6775\n", ALARM: "1\n"})
    assert firmware.throttled(tmp_path) is None


@pytest.mark.parametrize("make", [trees.sapphire_rapids, trees.epyc, trees.x86_with_rapl, lambda root: root])
def test_other_devices_have_no_such_firmware(tmp_path: Path, make: object) -> None:
    assert callable(make)
    assert firmware.throttled(make(tmp_path)) is None


def test_this_machine_s_vcgencmd_is_not_asked_of_another_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tool(tmp_path, monkeypatch, "echo throttled=0x1")
    assert firmware.vcgencmd() == "throttled=0x1\n"
    found = firmware.throttled(trees.pi5_fine(tmp_path))
    assert found is not None
    assert found["source"] == "sysfs"


@pytest.mark.parametrize("script", ["echo throttled=0x1; exit 1", "exit 127"])
def test_a_vcgencmd_that_fails_gives_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    _tool(tmp_path, monkeypatch, script)
    assert firmware.vcgencmd() is None


def _tool(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    tool = folder / "bin/vcgencmd"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")


@given(st.integers(min_value=0, max_value=2**32 - 1))
def test_words_come_back(word: int) -> None:
    assert firmware.parse_throttled(f"throttled={word:#x}\n") == word
    assert firmware.parse_throttled(f"{word:x}\n") == word


@given(st.text())
def test_the_parser_takes_any_text(found: str) -> None:
    word = firmware.parse_throttled(found)
    assert word is None or 0 <= word < 2**32


@given(st.sampled_from(["vcgencmd", "sysfs"]), st.integers(min_value=0, max_value=2**20 - 1), st.booleans())
def test_what_is_now_has_been_since_boot_and_no_bit_is_made_up(source: str, word: int, alarm: bool) -> None:
    found = firmware.Reading(source, word, alarm)
    assert set(found.now) <= set(found.since_boot) <= set(firmware.BITS.values())
    either = {name for bit, name in firmware.BITS.items() if (word | word >> 16) >> bit & 1}
    assert set(found.since_boot) == either | ({"under-voltage"} if alarm else set())
