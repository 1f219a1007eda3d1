"""``edgeq doctor``: probes in children only, kept for the next call, and left out where asked."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from edgeq.backends import REGISTRY, installed, probes
from edgeq.cli import doctor
from edgeq.host.device import describe
from edgeq.run.diagnosis import diagnose
from tests.host import trees


def _doctor(repo: Path, *args: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys\n"
        "from edgeq.cli.main import cli\n"
        "cli.main(['doctor', *sys.argv[1:]], standalone_mode=False)\n"
        "heavy = {'torch', 'onnxruntime', 'openvino', 'ai_edge_litert', 'onnx', 'nncf', 'numpy'} & set(sys.modules)\n"
        "print(f'loaded: {sorted(heavy)}', file=sys.stderr)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *args], env={**os.environ, "PYTHONPATH": str(repo), "COLUMNS": "160"},
        capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip


def test_the_table_has_every_recipe_and_the_parent_loads_no_framework(repo: Path) -> None:
    done = _doctor(repo, "--json")
    assert "loaded: []" in done.stderr
    found = json.loads(done.stdout)["probes"]
    assert set(found) == {backend for backend in REGISTRY if installed(backend)}
    for backend, result in found.items():
        assert [each["name"] for each in result["found"]] == list(probes.PROBES[backend])
        assert all(each["computes"] for each in result["found"]), result
    shown = _doctor(repo)
    assert "loaded: []" in shown.stderr, "the kept results take no more to read"
    for backend in found:
        for known in probes.PROBES[backend].values():
            assert known.words in shown.stdout
    assert "exact" in shown.stdout


def test_no_probe_starts_nothing(repo: Path) -> None:
    done = _doctor(repo, "--json", "--no-probe")
    assert json.loads(done.stdout)["probes"] == {}
    assert "known answer" not in _doctor(repo, "--no-probe").stdout


def _shown(root: Path, machine: str, cpus: int) -> str:
    """What a user of that device would read."""
    found = diagnose(probe=False, root=root, device=describe(root, machine, {}, set(range(cpus))))
    shown = io.StringIO()
    doctor.show(found, Console(file=shown, width=200))
    return shown.getvalue()


def test_a_throttled_pi_4_as_its_user_sees_it(tmp_path: Path) -> None:
    shown = _shown(trees.pi4_throttled(tmp_path), "aarch64", 4)
    for line in (
        "Raspberry Pi 4 Model B Rev 1.4  Cortex-A72, 4 cores for edgeq, Debian GNU/Linux 12 (bookworm)",
        "ISA: neon; INT8 target: aarch64",
        "now: 82 °C (cpu-thermal); 1000 MHz; governor ondemand; firmware: under-voltage, throttled",
        "; 3200 of 3976 MB of memory free; ",
        "wrong: the firmware says that there is now: under-voltage, throttled (0x50005)",
        "  try: use the board's own power supply",
        "note: 82 °C (cpu-thermal): the clock is lowered at about this temperature",
        "note: CPU governor ondemand: figures will be unsteady",
        "  try: run: echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        "note: no dot-product instructions here (Cortex-A72): INT8 gains are small",
    ):
        assert line in shown
    assert "nothing is wrong" not in shown


def test_json_has_all_that_is_shown(tmp_path: Path) -> None:
    root = trees.pi4_throttled(tmp_path)
    found = diagnose(probe=False, root=root, device=describe(root, "aarch64", {}, {0, 1, 2, 3})).as_json()
    json.dumps(found, allow_nan=False)
    assert found["condition"]["state"]["throttled"]["now"] == ["under-voltage", "throttled"]
    assert found["condition"]["disk_mb"]["free"] > 0
    assert {finding["code"] for finding in found["findings"] if finding["wrong"]} >= {"throttled"}
