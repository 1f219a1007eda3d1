from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from edgeq.host.sampler import READY, Sensors
from tests.host import trees


def _sample(root: Path, answer: str | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    sensors = Sensors(root, lambda: answer)
    found = {"about": sensors.about(), **sensors.sample()}
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found.pop("about"), found


def test_a_throttled_pi_4(tmp_path: Path) -> None:
    about, found = _sample(trees.pi4_throttled(tmp_path), "throttled=0xd0005\n")
    assert found.pop("t") > 0
    assert found == {
        "temperature_c": {"cpu-thermal": 82.277}, "mhz": [1000.0] * 4, "governor": "ondemand",
        "throttled": ["under-voltage", "throttled"],
        "since_boot": ["under-voltage", "throttled", "soft temperature limit"],
        "available_mb": 3199.54944, "swap_mb": 0.0, "swapped_pages": 0,
    }  # fmt: skip
    assert about["full_mhz"] == [1800.0] * 4


def test_a_fine_pi_5(tmp_path: Path) -> None:
    about, found = _sample(trees.pi5_fine(tmp_path))
    assert (found["throttled"], found["mhz"], about["full_mhz"]) == ([], [2400.0] * 4, [2400.0] * 4)


def test_x86_with_rapl(tmp_path: Path) -> None:
    about, found = _sample(trees.x86_with_rapl(tmp_path))
    assert found["energy_uj"] == {"package-0": 1_000_000}
    assert about["energy_range_uj"] == {"package-0": 262_143_328_850}
    assert found["temperature_c"] == {"x86_pkg_temp": 67.0}
    assert (found["mhz"], about["full_mhz"]) == ([2900.0, 800.0], [2800.0, 2800.0]), "not the turbo's"
    assert (found["swap_mb"], found["swapped_pages"]) == (10.24, 3000)
    assert "throttled" not in found


def test_energy_that_may_not_be_read_is_left_out(tmp_path: Path) -> None:
    counter = trees.x86_with_rapl(tmp_path) / "sys/class/powercap/intel-rapl:0/energy_uj"
    counter.unlink()
    counter.mkdir()
    about, found = _sample(tmp_path)
    assert "energy_uj" not in found
    assert "energy_range_uj" not in about


def test_a_turbo_s_highest_frequency_is_none_that_is_held(tmp_path: Path) -> None:
    trees.x86_with_rapl(tmp_path)
    for cpu in tmp_path.glob("sys/devices/system/cpu/cpu*"):
        (cpu / "cpufreq/base_frequency").unlink()
    assert _sample(tmp_path)[0]["full_mhz"] == [None, None]
    trees.write(tmp_path, {f"sys/devices/system/cpu/cpu{n}/acpi_cppc/nominal_freq": "3400\n" for n in range(2)})
    assert _sample(tmp_path)[0]["full_mhz"] == [3400.0, 3400.0]


def test_a_virtual_machine_tells_little(tmp_path: Path) -> None:
    about, found = _sample(trees.sapphire_rapids(tmp_path))
    assert found.keys() == {"t", "mhz", "available_mb"}
    assert "full_mhz" not in about


def test_an_empty_tree_has_the_time_alone(tmp_path: Path) -> None:
    assert _sample(tmp_path)[1].keys() == {"t"}


def test_cores_that_share_a_clock_share_its_file(tmp_path: Path) -> None:
    policy = "sys/devices/system/cpu/cpufreq/policy0"
    trees.write(tmp_path, {f"{policy}/scaling_cur_freq": "600000\n", f"{policy}/scaling_governor": "ondemand\n"})
    for cpu in range(2):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}"
        folder.mkdir()
        (folder / "cpufreq").symlink_to(tmp_path / policy)
    assert _sample(tmp_path)[1]["mhz"] == [600.0, 600.0]


def test_a_group_s_limit_is_less_than_the_machine_s_memory(tmp_path: Path) -> None:
    trees.pi5_fine(tmp_path)
    trees.write(tmp_path, {
        "proc/self/cgroup": "0::/small\n", "sys/fs/cgroup/small/memory.max": "300000000\n",
        "sys/fs/cgroup/small/memory.current": "120000000\n", "sys/fs/cgroup/small/memory.stat": "inactive_file 20000000\n",
    })  # fmt: skip
    assert _sample(tmp_path)[1]["available_mb"] == 200.0


@pytest.fixture
def sampler(tmp_path: Path, repo: Path) -> Any:
    process = subprocess.Popen(
        [sys.executable, "-m", "edgeq.host.sampler", str(tmp_path / "host.jsonl")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=repo,
    )  # fmt: skip
    yield process
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def test_it_is_nice_and_ends_with_whoever_started_it(sampler: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert sampler.stdout is not None
    assert sampler.stdin is not None
    assert sampler.stdout.readline() == READY
    assert psutil.Process(sampler.pid).nice() == 19
    sampler.stdin.close()
    assert sampler.wait(30) == 0
    lines = [json.loads(line) for line in (tmp_path / "host.jsonl").read_text().splitlines()]
    assert len(lines) >= 2, "one at the start, one at the end"
    assert "about" in lines[0]
    assert lines[-1]["end"] is True
    assert lines[0]["t"] < lines[-1]["t"]


def test_it_imports_nothing_heavy() -> None:
    code = (
        "import sys, edgeq.host.sampler\n"
        "print([name for name in ('numpy', 'pydantic', 'psutil', 'rich', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
