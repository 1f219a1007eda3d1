"""pytorch/pytorch#193951 (float16 on a reference kernel) and #144434 (PT2E without fused kernels): minutes an inference.

Trap 18 is met by the same: whatever the reason, a few inferences tell before LoadGen starts.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import numpy as np
import pytest

from edgeq.backends.session import Array
from edgeq.data.layout import to_layout
from edgeq.data.samples import synthetic
from tests.data.pictures import small_spec
from tests.traps.cells import trial
from tests.traps.conftest import Artifact

MINUTE_S = 72.672
"""What one sample of VGG-19 took."""


@pytest.mark.parametrize("scenario", ["single-stream", "multi-stream", "offline"])
@pytest.mark.parametrize("mode", ["performance", "accuracy"])
def test_a_cell_that_cannot_finish_is_skipped_with_its_figure(
    artifact: Artifact, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str, mode: str
) -> None:
    made = artifact("pytorch", "fp16")
    found = trial(made, repo, tmp_path, scenario=scenario, mode=mode)  # type: ignore[arg-type]
    session = found.load()
    asked = itertools.count()
    infer = session.infer

    def slow(batch: Array) -> Array:
        next(asked)
        return infer(batch)

    monkeypatch.setattr(session, "infer", slow)
    # A clock on which each inference takes a minute: nothing here waits.
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks) * MINUTE_S)
    ticks = itertools.count()
    samples = synthetic(small_spec(), 8, 0)
    reference, _ = found.first(session, samples)
    planning = found.plan(found.canary(session, reference), samples)
    reason = found.too_slow(planning, found.job.profile.cell_budget_s, "cell_budget_s")
    session.close()
    assert reason is not None
    assert reason.code == "too-slow"
    # One sample is timed, and the streams are believed to share the work: the estimate is at least not too high.
    assert f"{72672 / found.setting.streams:.0f} ms a sample" in reason.text
    assert "cell_budget_s" in reason.hint
    assert next(asked) <= 2
    assert np.isfinite(to_layout(reference, "NCHW")).all()
