"""A bundle's way to a device and its records' way back, over a real sshd."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from edgeq.deploy.pack import Bundle
from edgeq.host import device
from tests.deploy.sshd import ADDRESS, Sshd


def edgeq(project: Path, *args: str) -> subprocess.CompletedProcess[str]:
    repo = Path(__file__).resolve().parents[2]
    return subprocess.run(
        [sys.executable, "-m", "edgeq", *args], cwd=project, env={**os.environ, "PYTHONPATH": str(repo)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_deploy_and_run_on_a_device(sshd: Sshd, bundle: Bundle, tmp_path: Path) -> None:
    where = ["--device", ADDRESS, "--ssh", sshd.ssh(), "--device-dir", f"{tmp_path}/board"]
    done = edgeq(tmp_path, "deploy", *where, "--bundle", str(bundle.path), "--python", sys.executable)
    assert done.returncode == 0, done.stderr
    print(done.stderr)
    done = edgeq(tmp_path, "run", *where, "--profile", "blink", "--backend", "tflite", "--scheme", "int8-static", "--scenario", "offline")
    print(done.stderr)
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "results" / device.describe()["slug"]).glob("*/tiny/tflite/int8-static/offline/record.json")
    assert json.loads(path.read_text())["status"] == "ok"
