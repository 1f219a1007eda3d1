"""What the emulated board shows of itself, and how commands reach it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeq.host import cpu
from edgeq.spec.profile import load_profile
from tests.arm64.root import CORES, MIDR, Board
from tests.arm64.steps import StepFailed, _predictions


@pytest.mark.parametrize(("played", "name"), [("cortex-a72", "Cortex-A72"), ("cortex-a76", "Cortex-A76")])
def test_the_played_files_name_the_core(tmp_path: Path, played: str, name: str) -> None:
    for each in MIDR:  # one root for all boards, which may run at the same time
        Board(tmp_path, each).play_sysfs()
    seen = tmp_path / "board"
    seen.mkdir()
    (seen / "sys").symlink_to(Board(tmp_path, played).sysfs)
    assert cpu.cpu_name(seen, "aarch64") == name
    assert cpu.physical_cores(seen, set(range(CORES))) == CORES


@pytest.mark.parametrize("played", MIDR)
def test_a_command_runs_in_the_root_with_the_cores_name_for_qemu(tmp_path: Path, played: str) -> None:
    words = Board(tmp_path, played).command(["./run.sh", "doctor"], "/root/board", {"PIP_NO_INDEX": "1"})
    assert words[-3:] == ["/root/board", "./run.sh", "doctor"]
    assert f"QEMU_CPU={played}" in words
    assert "PIP_NO_INDEX=1" in words
    assert words.index("chroot") > words.index(f"QEMU_CPU={played}")


def test_the_profile_of_few_queries_is_one_that_edgeq_takes() -> None:
    profile = load_profile(Path(__file__).parent / "scenarios", "few")
    assert "emulated" in profile.title
    assert not profile.mlperf_rules


def test_a_run_that_left_no_predictions_is_a_failed_step_and_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="tflite/fp32: 0 files of predictions"):
        _predictions(tmp_path, "tflite", "fp32")
