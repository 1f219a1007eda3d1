from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeq.loadgen.times import Clock
from tests.loadgen.runs import SCENARIOS, plan, run


def test_times_come_back_in_order_whatever_room_there_was() -> None:
    for capacity in (0, 2, 9):
        clock = Clock(capacity)
        for query in range(5):
            clock.query(10 * query, 10 * query + query)
        times = clock.times()
        assert times.begins.tolist() == [0, 10, 20, 30, 40]
        assert times.latencies_ms.tolist() == [0, 1e-6, 2e-6, 3e-6, 4e-6]
        assert times.sizes.tolist() == [1] * 5


def test_without_a_query_there_is_nothing() -> None:
    assert len(Clock(3).times().begins) == len(Clock(1, blocks=True).times().ends) == 0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_there_is_room_for_all_that_loadgen_generates(scenario: str) -> None:
    planned = plan(scenario, canary_s=1e-3, min_duration_s=1.0)
    assert planned.scenario == "offline" or Clock.for_run(planned)._capacity >= 2000
    assert (Clock.for_run(planned).blocks is not None) == (scenario == "offline")


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("system", ["Classifier", "Threaded"])
def test_every_query_of_a_run_has_its_times(scenario: str, system: str, tmp_path: Path) -> None:
    done = run(system, plan(scenario), tmp_path / "log")
    begins, ends, sizes = (np.array(done.reply["times"][name]) for name in ("begins", "ends", "sizes"))
    assert sizes.sum() == (done.outcome["samples"] if scenario == "offline" else done.outcome["queries"])
    assert (np.diff(ends) >= 0).all()
    assert ends[0] > begins[0]
    if scenario == "offline":
        assert len(begins) == 1
        assert (ends[-1] - begins[0]) / 1e9 == pytest.approx(done.outcome["duration_s"], rel=0.1, abs=0.01)
        return
    assert (ends > begins).all()
    assert (begins[1:] >= ends[:-1]).all(), "one query after the other"
    # The SUT's own clock and LoadGen's are of the same spans, but for what the binding takes to call.
    latencies = (ends - begins) / 1e6
    assert np.median(latencies) == pytest.approx(done.outcome["latency_ms"]["p50"], rel=0.5, abs=0.02)
