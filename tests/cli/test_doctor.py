"""``edgeq doctor``: probes in children only, kept for the next call, and left out where asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from edgeq.backends import REGISTRY, installed, probes


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
