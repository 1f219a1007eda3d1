from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeq.host import state
from tests.host import trees


def _silent() -> str | None:
    return None


def test_pi4_tells_all(tmp_path: Path) -> None:
    found = state.snapshot(trees.pi4(tmp_path), _silent)
    assert found["frequency_mhz"] == [1500.0] * 4
    assert found["governor"] == "ondemand"
    assert found["temperature_c"] == {"cpu-thermal": 48.686}
    assert found["throttled"] == {
        "source": "sysfs", "raw": "0x50005",
        "now": ["under-voltage", "throttled"], "since_boot": ["under-voltage", "throttled"],
    }  # fmt: skip


def test_an_amd_cpu_shows_in_no_thermal_zone_and_still_has_a_temperature(tmp_path: Path) -> None:
    trees.write(tmp_path, {
        "sys/class/hwmon/hwmon0/name": "nvme\n", "sys/class/hwmon/hwmon0/temp1_input": "38000\n",
        "sys/class/hwmon/hwmon3/name": "k10temp\n", "sys/class/hwmon/hwmon3/temp1_input": "61250\n",
        "sys/class/thermal/thermal_zone0/type": "iwlwifi_1\n", "sys/class/thermal/thermal_zone0/temp": "",
    })  # fmt: skip
    assert state.temperatures(tmp_path) == {"k10temp": 61.25}


def test_a_virtual_machine_tells_little(tmp_path: Path) -> None:
    found = state.snapshot(trees.sapphire_rapids(tmp_path), _silent)
    assert found["frequency_mhz"] == [2100.0, 2100.0]
    assert found["load"] == [1.38, 0.98, 0.51]
    assert found["cpu_ticks"] == {"total": 1000, "idle": 810, "steal": 20, "cpus": 1}
    assert [found[key] for key in ("governor", "temperature_c", "throttled", "throttle_count")] == [None] * 4


def test_x86_throttle_counts_are_summed(tmp_path: Path) -> None:
    trees.write(
        tmp_path, {f"sys/devices/system/cpu/cpu{n}/thermal_throttle/core_throttle_count": f"{n}" for n in (1, 2)}
    )
    assert state.snapshot(tmp_path, _silent)["throttle_count"] == 3


def test_nothing_there_is_none_throughout(tmp_path: Path) -> None:
    assert set(state.snapshot(tmp_path, _silent).values()) == {None}


def test_this_machine_answers_in_json() -> None:
    assert json.loads(json.dumps(state.snapshot(), allow_nan=False)).keys() == state.snapshot().keys()


def test_steal_is_a_share_of_the_time_between() -> None:
    before, after = {"cpu_ticks": {"total": 1000, "steal": 20}}, {"cpu_ticks": {"total": 1200, "steal": 70}}
    assert state.steal_share(before, after) == pytest.approx(0.25)
    assert state.steal_share(before, before) is None
    assert state.steal_share({"cpu_ticks": None}, after) is None
    assert state.steal_share({}, {}) is None


def test_used_cpus_are_what_was_neither_idle_nor_stolen() -> None:
    before = {"cpu_ticks": {"total": 1000, "idle": 500, "steal": 20, "cpus": 4}}
    after = {"cpu_ticks": {"total": 1400, "idle": 700, "steal": 120, "cpus": 4}}
    assert state.used_cpus(before, after) == pytest.approx(4 * 100 / 400)
    assert state.used_cpus(before, before) is None
    assert state.used_cpus({"cpu_ticks": {"total": 0, "steal": 0}}, after) is None, "a record of an older edgeq"
    assert state.used_cpus({"cpu_ticks": None}, after) is None
    few = {"cpu_ticks": {"total": 1020, "idle": 500, "steal": 20, "cpus": 4}}
    assert state.used_cpus(before, few) is None, "two ticks in ten are no share"
