"""How long a model is warmed up: by its budget where it is then timed, and hardly where nothing is, or times mean nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeq.backends.null import open_null
from edgeq.backends.session import SessionOptions
from edgeq.loadgen.plan import Mode
from edgeq.run import trial
from edgeq.run.job import WorkerJob
from edgeq.run.record import RunInfo
from edgeq.run.steady import Settled
from edgeq.setting import Setting
from edgeq.spec.names import Cell
from edgeq.spec.profile import load_profile

FIRST_MS = 300.0


@pytest.mark.parametrize(
    ("mode", "device", "warming_s", "samples"),
    [
        ("performance", {"emulated": False}, 20.0, 8),
        ("performance", {"emulated": True}, trial.ESTIMATE_S, 1),
        ("accuracy", {"emulated": False}, trial.ESTIMATE_S, 1),
    ],
)
def test_a_canary_takes_no_longer_than_its_figure_is_worth(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, device: dict[str, Any], warming_s: float,
    samples: int,
) -> None:  # fmt: skip
    asked = []

    def settled(session: object, query: Sequence[object], budget_s: float) -> Settled:
        asked.append((budget_s, len(query)))
        return Settled(first_s=1.0, typical_s=1.0, last=1, total=1, change=None)

    monkeypatch.setattr(trial, "time_queries", settled)
    profile = load_profile(repo / "scenarios", "quick").model_copy(update={"cell_budget_s": 80})
    job = WorkerJob(
        mode=mode, cell=Cell("m", "tflite", "fp32", "multi-stream"), manifest=None, artifact_key="k", target="x86_64",
        threads=1, setting=Setting(threads=1), profile=profile, samples={}, dataset=None, folder=tmp_path,
        run=RunInfo(id="r", profile="quick", title="t", started="now", order=0), device=device,
    )  # fmt: skip
    found = trial.Trial(job)
    found.known["first_inference_ms"] = FIRST_MS
    found.canary(open_null(SessionOptions(threads=1), (3, 8, 8), 10), np.zeros((1, 3, 8, 8), np.float32))
    assert asked == [(warming_s, samples)]
