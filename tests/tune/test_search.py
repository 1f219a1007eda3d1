"""The search itself, with processes that answer by heart: what is tried, in which order, and what a loss costs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeq.setting import Setting, default_setting
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import STUDY_SCENARIOS
from edgeq.tune import search as module
from edgeq.tune.child import Turned
from edgeq.tune.search import Limits, Search, difference, least_s
from edgeq.tune.workers import Workers
from tests.manifests import manifest

Speed = Callable[[str, Setting], float]
OFFLINE, MULTI = default_setting("offline", 2), default_setting("multi-stream", 2)
BATCH = Setting(threads=2, streams=2, batch=8)


class ByHeart(Workers):
    """Answers with ``speed``; the logits of all settings are those of ``logits``; notes what it was asked."""

    def __init__(self, folder: Path, speed: Speed, *, sample_s: float = 0.01, turn_s: float = 0.1) -> None:
        self.folder, self.speed, self.sample_s, self.turn_s = folder, speed, sample_s, turn_s
        self.asked: list[tuple[str, Setting]] = []
        self.logits: dict[Setting, float] = {}
        self.closed = 0

    def turn(self, setting: Setting, scenario: str | None, seconds: float, *, must: bool = False) -> Turned:
        if scenario is None:
            return Turned(rate=1 / self.sample_s, best=1 / self.sample_s, queries=1, seconds=self.sample_s)
        first = (scenario, setting) not in self.asked
        self.asked.append((scenario, setting))
        rate = self.speed(scenario, setting)
        path = self.folder / f"{len(self.asked)}.npy"
        if first:
            np.save(path, np.array([[1.0, 2.0, 3.0 + self.logits.get(setting, 0.0)]], np.float32))
        return Turned(rate=rate, best=rate, queries=9, seconds=self.turn_s, logits=path if first else None)

    def close(self) -> None:
        self.closed += 1

    def times(self, scenario: str, setting: Setting) -> int:
        return self.asked.count((scenario, setting))


def searched(workers: Workers, limits: Limits | None = None, seed: int = 0, **made: Any) -> Search:
    return Search(
        workers, manifest(**made), STUDY_SCENARIOS, 2, limits or Limits(), lambda _: None, random.Random(seed)
    )


def batches_are_fast(scenario: str, setting: Setting) -> float:
    return 130.0 if scenario == "offline" and setting == BATCH else 125.0 if setting.batch == 16 else 100.0


def test_the_fastest_is_chosen_and_the_others_keep_their_default(tmp_path: Path) -> None:
    workers = ByHeart(tmp_path, batches_are_fast)
    search = searched(workers)
    found = search.run()
    assert found["offline"].setting == BATCH
    assert found["offline"].ratio is not None
    assert found["offline"].ratio.middle == pytest.approx(1.3)
    assert found["multi-stream"].setting == MULTI
    assert found["single-stream"].setting == Setting(threads=2)
    assert workers.closed
    stored = search.tuned("offline", found["offline"], "k")
    assert (stored.setting, stored.default, stored.gain) == (BATCH, OFFLINE, pytest.approx(1.3))
    assert stored.gain_low == stored.gain_high == pytest.approx(1.3)
    rounds = {each.setting: len(each.samples_per_second) for each in stored.candidates}
    assert len(rounds) == 10, "all that was tried is told"
    assert rounds[BATCH] == rounds[OFFLINE] == 1 + 5
    assert rounds[Setting(threads=2, batch=4)] == 1, "what lies behind has no further turn"
    kept = search.tuned("multi-stream", found["multi-stream"], "k")
    assert (kept.setting, kept.gain, kept.gain_low) == (MULTI, 1.0, None)


def test_settings_take_turns_in_each_round_in_another_order(tmp_path: Path) -> None:
    workers = ByHeart(tmp_path, lambda *_: 100.0)
    searched(workers, Limits(rounds=4)).run()
    looks = 2 + 4 + 10
    later = workers.asked[looks:]
    size = len(later) // 4
    rounds = [later[n * size : (n + 1) * size] for n in range(4)]
    assert all(sorted(each, key=str) == sorted(rounds[0], key=str) for each in rounds), "each once a round"
    assert len({str(each) for each in rounds}) > 1
    for each in rounds:
        pairs = [(setting.threads, setting.streams) for _, setting in each]
        changes = sum(one != other for one, other in itertools.pairwise(pairs))
        assert changes == len(set(pairs)) - 1, "a process's turns come together"
    again = ByHeart(tmp_path, lambda *_: 100.0)
    searched(again, Limits(rounds=4)).run()
    assert again.asked == workers.asked, "the order is drawn from the seed"


def test_luck_in_the_first_look_is_no_gain(tmp_path: Path) -> None:
    def lucky(scenario: str, setting: Setting) -> float:
        return 200.0 if setting == BATCH and workers.times(scenario, setting) == 1 else 100.0

    workers = ByHeart(tmp_path, lucky)
    assert searched(workers).run()["offline"].setting == OFFLINE


def test_other_logits_are_refused_however_fast(tmp_path: Path) -> None:
    workers = ByHeart(tmp_path, batches_are_fast)
    workers.logits = {BATCH: 0.1, Setting(threads=2, batch=16): 1e-5}
    search = searched(workers)
    found = search.run()
    assert found["offline"].setting == Setting(threads=2, batch=16)
    note = search.lost["offline", BATCH]
    assert note.code == "other-output"
    assert "3.3 %" in note.text or "3.3%" in note.text
    assert workers.times("offline", BATCH) == 1


def test_int8_may_round_to_the_other_side(tmp_path: Path) -> None:
    workers = ByHeart(tmp_path, batches_are_fast)
    workers.logits = {BATCH: 0.015}
    assert searched(workers, scheme="int8-static").run()["offline"].setting == BATCH
    workers = ByHeart(tmp_path, batches_are_fast)
    workers.logits = {BATCH: 0.015}
    assert searched(workers).run()["offline"].setting != BATCH, "not in float32"


def test_a_lost_turn_costs_its_candidate_alone(tmp_path: Path) -> None:
    def dying(scenario: str, setting: Setting) -> float:
        if setting == BATCH and workers.times(scenario, setting) == 3:
            raise EdgeqError("lost", "the worker was killed", "", code="killed")
        return batches_are_fast(scenario, setting)

    workers = ByHeart(tmp_path, dying)
    search = searched(workers)
    found = search.run()
    assert found["offline"].setting.batch == 16
    told = {each.setting: each.note for each in search.tuned("offline", found["offline"], "k").candidates}
    note = told[BATCH]
    assert note is not None
    assert note.code == "killed"
    assert set(found) == set(STUDY_SCENARIOS)


def test_a_default_is_tried_twice_then_its_scenario_has_no_choice(tmp_path: Path) -> None:
    def dying(scenario: str, setting: Setting) -> float:
        if (scenario, setting) == ("offline", OFFLINE):
            raise EdgeqError("lost", "the kernel killed it", "", code="out-of-memory")
        return 100.0

    workers = ByHeart(tmp_path, dying)
    search = searched(workers)
    assert set(search.run()) == {"single-stream", "multi-stream"}
    assert search.why_lost("offline").code == "out-of-memory"
    assert workers.times("offline", OFFLINE) == 2
    once = ByHeart(tmp_path, lambda s, c: dying(s, c) if once.times(s, c) == 1 else 100.0)
    assert set(searched(once).run()) == set(STUDY_SCENARIOS)


def test_a_full_disk_ends_it(tmp_path: Path) -> None:
    def full(*_: Any) -> float:
        raise EdgeqError("cannot write", "the disk is full", "", code="disk-full")

    with pytest.raises(EdgeqError, match="full"):
        searched(ByHeart(tmp_path, full)).run()


def test_a_network_without_a_batch_has_none_tried(tmp_path: Path) -> None:
    workers = ByHeart(tmp_path, lambda *_: 100.0)
    searched(workers, backend="onnxruntime", scheme="int8-dynamic").run()
    assert {setting.batch for _, setting in workers.asked} == {1}


def test_a_hopeless_model_keeps_the_defaults(tmp_path: Path) -> None:
    with pytest.raises(EdgeqError) as caught:
        searched(ByHeart(tmp_path, lambda *_: 1.0, sample_s=9.0)).run()
    assert caught.value.code == "too-slow"
    assert "9.0 s a sample" in caught.value.why


def test_a_slow_model_has_no_large_batches_tried(tmp_path: Path) -> None:
    workers = ByHeart(tmp_path, lambda *_: 3.0, sample_s=0.3)
    search = searched(workers)
    search.run()
    lost = {setting for (scenario, setting), note in search.lost.items() if note.code == "too-slow"}
    assert Setting(threads=2, streams=2, batch=32) in lost
    assert {setting for _, setting in workers.asked}.isdisjoint(lost)
    assert ("multi-stream", MULTI) in workers.asked


def test_long_turns_mean_fewer_rounds_and_that_is_told(tmp_path: Path) -> None:
    workers = ByHeart(tmp_path, lambda *_: 100.0, turn_s=2.0)
    search = searched(workers, Limits(rounds=9, budget_s=100))
    search.run()
    (note,) = [note for note in search.notes if note.code == "few-rounds"]
    assert note.text.startswith("4 rounds instead of 9")
    assert workers.times("offline", OFFLINE) == 1 + 4


def test_when_time_is_up_only_the_defaults_are_still_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])

    def slow(scenario: str, setting: Setting) -> float:
        clock[0] += 30.0
        return 100.0

    workers = ByHeart(tmp_path, slow, turn_s=30.0)
    search = searched(workers)
    assert set(search.run()) == set(STUDY_SCENARIOS)
    assert {note.code for note in search.lost.values()} == {"no-time"}
    for scenario in STUDY_SCENARIOS:
        assert workers.times(scenario, default_setting(scenario, 2)) >= 1


def beside(monkeypatch: pytest.MonkeyPatch, busy: float) -> None:
    """Two snapshots, ten seconds of two CPUs apart, of which ``busy`` CPUs' worth was used (by others: nothing runs here)."""
    ticks = [
        {"total": total, "idle": idle, "steal": 0, "cpus": 2} for total, idle in ((0, 0), (2000, 2000 - 1000 * busy))
    ]
    states = iter([{"cpu_ticks": each} for each in ticks])
    monkeypatch.setattr(module, "snapshot", lambda: next(states))


def test_a_busy_device_is_not_tuned_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside(monkeypatch, 0.8)
    workers = ByHeart(tmp_path, batches_are_fast)
    with pytest.raises(EdgeqError) as caught:
        searched(workers).run()
    assert caught.value.code == "too-busy"
    assert "0.8 of the device's 2 CPUs" in caught.value.why
    assert workers.closed


def test_some_other_work_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside(monkeypatch, 0.4)
    search = searched(ByHeart(tmp_path, batches_are_fast))
    found = search.run()
    (note,) = search.tuned("offline", found["offline"], "k").notes
    assert note.code == "busy-neighbour"
    assert "--again" in note.hint
    beside(monkeypatch, 0.1)
    search = searched(ByHeart(tmp_path, batches_are_fast))
    search.run()
    assert search.notes == []


def test_differences_are_of_the_samples_that_both_have() -> None:
    one, other = np.eye(4, 3, dtype=np.float32), np.eye(2, 3, dtype=np.float32)
    assert difference(one, other) == 0
    assert difference(one, other + np.float32(0.1)) == pytest.approx(0.1 / 1.1)


def test_the_least_that_a_turn_takes() -> None:
    assert least_s("single-stream", Setting(threads=2), 0.1) < least_s("multi-stream", MULTI, 0.1)
    assert least_s("multi-stream", MULTI, 0.1) == least_s("multi-stream", Setting(threads=2, batch=8), 0.1)
    assert least_s("offline", BATCH, 0.1) == 2 * least_s("offline", Setting(threads=2, batch=8), 0.1)
