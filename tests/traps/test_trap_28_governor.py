"""tenstorrent/tt-metal#5281: the ondemand governor makes figures unsteady."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeq.host.device import describe
from edgeq.host.state import snapshot
from edgeq.run import diagnosis
from tests.host import trees


@pytest.mark.parametrize(("governor", "told"), [("ondemand", True), ("performance", False)])
def test_governor_and_frequency_are_recorded_and_doctor_warns(tmp_path: Path, governor: str, told: bool) -> None:
    root = trees.pi4(tmp_path)
    for cpu in range(4):
        (root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor").write_text(f"{governor}\n")
    state = snapshot(root, lambda: None)
    assert (state["governor"], state["frequency_mhz"]) == (governor, [1500.0] * 4)
    device = describe(root, "aarch64", {}, {0, 1, 2, 3})
    assert device["governor"] == governor
    diagnosed = diagnosis.diagnose(probe=False, root=root, device=device)
    found = {finding.note.code: finding.note for finding in diagnosed.findings}
    assert ("governor" in found) is told
    if told:
        assert "echo performance | sudo tee" in found["governor"].hint
