"""pytorch/pytorch#132032, #146792, #176993 and microsoft/onnxruntime#24112: wheels that die with SIGILL on a Pi 4."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from edgeq.events import cause_of_death


def test_the_signal_is_told_as_what_it_means(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    with log.open("w") as stream:
        code = "import os, signal; print('importing torch', flush=True); os.kill(os.getpid(), signal.SIGILL)"
        done = subprocess.run([sys.executable, "-c", code], stdout=stream, check=False, timeout=60)
    assert done.returncode == -signal.SIGILL
    cause, text = cause_of_death(done.returncode, log, False)
    assert cause == "illegal-instruction"
    assert "an instruction this CPU lacks" in text
    assert "importing torch" in text


def test_no_framework_is_loaded_by_the_parent(repo: Path) -> None:
    """Doctor, export and run survive a framework that kills its process: they never import one."""
    code = (
        "import sys; import edgeq.cli.main, edgeq.run.runner, edgeq.run.diagnosis, edgeq.export.job; "
        "print([name for name in ('torch', 'onnxruntime', 'openvino', 'ai_edge_litert') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=repo, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
