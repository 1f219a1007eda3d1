"""What is stored beside an artifact is used for what it was found for, and for nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.artifact import Layer
from edgeq.backends.session import ONE_AT_A_TIME
from edgeq.setting import (
    Setting,
    Tuned,
    default_setting,
    read_tuned,
    setting_for,
    store_tuned,
    stored,
    tuned_path,
    tuning_key,
)
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import BACKENDS, SCENARIOS, SCHEMES
from tests.manifests import manifest

DEVICE: dict[str, Any] = {
    "slug": "board", "machine": "aarch64", "cpu": "Cortex-A72", "isa": ["neon"], "cores": 4, "emulated": False,
}  # fmt: skip
VERSIONS = {"ai-edge-litert": "2.3.0", "edgeq": "0.1"}
MADE = manifest()


def key(**changes: Any) -> str:
    fields: dict[str, Any] = {"manifest": MADE, "device": DEVICE, "versions": VERSIONS, "threads": 4}
    return tuning_key(**{**fields, **changes})


def tuned(scenario: str = "offline", **changes: Any) -> Tuned:
    fields: dict[str, Any] = {
        "scenario": scenario, "key": key(), "setting": Setting(threads=4, streams=2, batch=8),
        "default": default_setting(scenario, 4, MADE), "gain": 1.2, "gain_low": 1.1, "gain_high": 1.3, "when": "2026-01-02",
    }  # fmt: skip
    return Tuned(**{**fields, **changes})


def found(path: Path, scenario: str = "offline", threads: int = 4, **changes: Any) -> tuple[Setting, bool, list[str]]:
    setting, was_tuned, notes = setting_for(path, MADE, scenario, threads, key(threads=threads, **changes), DEVICE)
    return setting, was_tuned, [note.code for note in notes]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a manifest with a dot in its name; nothing else of it is needed."""
    return tmp_path / "int8-static.aarch64.json"


def test_what_was_stored_is_used_for_its_scenario_and_threads(path: Path) -> None:
    file = store_tuned(path, DEVICE, 4, tuned())
    assert file == path.with_name("int8-static.aarch64.board.tuned.json")
    assert found(path) == (Setting(threads=4, streams=2, batch=8), True, [])
    assert found(path, "multi-stream") == (default_setting("multi-stream", 4, MADE), False, [])
    assert found(path, threads=2) == (default_setting("offline", 2, MADE), False, [])
    assert stored(path, MADE, "offline", 4, key(), DEVICE) == tuned()


def test_what_is_stored_for_one_scenario_leaves_the_others(path: Path) -> None:
    store_tuned(path, DEVICE, 4, tuned("multi-stream", setting=Setting(threads=4, batch=8)))
    store_tuned(path, DEVICE, 4, tuned())
    store_tuned(path, DEVICE, 4, tuned(setting=Setting(threads=4)))
    assert found(path)[0] == Setting(threads=4)
    assert found(path, "multi-stream")[0] == Setting(threads=4, batch=8)


@pytest.mark.parametrize(
    "change",
    [
        {"manifest": manifest(key="another export")},
        {"versions": {**VERSIONS, "ai-edge-litert": "2.4.0"}},
        {"versions": {**VERSIONS, "edgeq": "0.2"}},
        {"device": {**DEVICE, "isa": ["neon", "dotprod"]}},
        {"device": {**DEVICE, "cores": 2}},
        {"device": {**DEVICE, "emulated": True}},
    ],
)
def test_what_was_found_with_something_else_is_not_used_and_said_to_be(path: Path, change: dict[str, Any]) -> None:
    store_tuned(path, DEVICE, 4, tuned())
    assert found(path, **change) == (default_setting("offline", 4, MADE), False, ["tuned-stale"])
    assert stored(path, MADE, "offline", 4, key(**change), DEVICE) is None


def test_what_does_not_bear_on_speed_makes_nothing_stale(path: Path) -> None:
    store_tuned(path, DEVICE, 4, tuned())
    assert found(path, device={**DEVICE, "kernel": "6.9", "governor": "powersave"})[1]


def test_a_setting_that_beat_another_default_is_stale(path: Path) -> None:
    store_tuned(path, DEVICE, 4, tuned(default=Setting(threads=4, streams=1, batch=4)))
    assert found(path) == (default_setting("offline", 4, MADE), False, ["tuned-stale"])


@pytest.mark.parametrize(
    "text", ["", "{", '{"schema": 2, "found": {}}', '{"schema": 1, "found": {"offline/4": {}}}', "\xff"]
)
def test_a_damaged_file_gives_the_default_and_a_note(path: Path, text: str) -> None:
    tuned_path(path, DEVICE).write_bytes(text.encode("latin-1"))
    assert found(path) == (default_setting("offline", 4, MADE), False, ["tuned-stale"])
    store_tuned(path, DEVICE, 4, tuned())
    assert found(path)[1], "tuned anew"


def test_storing_is_whole_or_not_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_tuned(path, DEVICE, 4, tuned())
    before = tuned_path(path, DEVICE).read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(EdgeqError) as caught:
        store_tuned(path, DEVICE, 4, tuned("multi-stream"))
    assert caught.value.code == "disk-full"
    assert tuned_path(path, DEVICE).read_bytes() == before
    assert list(path.parent.iterdir()) == [tuned_path(path, DEVICE)]


def test_nothing_stored_is_no_file_at_all(path: Path) -> None:
    assert read_tuned(tuned_path(path, DEVICE)) is None
    assert found(path) == (default_setting("offline", 4, MADE), False, [])


@given(
    scenario=st.sampled_from(SCENARIOS),
    threads=st.integers(1, 64),
    backend=st.sampled_from(BACKENDS),
    scheme=st.sampled_from(SCHEMES),
)
def test_a_default_uses_the_threads_that_it_may_use(scenario: str, threads: int, backend: str, scheme: str) -> None:
    setting = default_setting(scenario, threads, manifest(backend=backend, scheme=scheme))
    assert setting.threads == threads
    assert threads % setting.streams == 0, "no thread is left without a stream"
    if scenario == "single-stream":
        assert (setting.streams, setting.batch) == (1, 1)
    if scenario == "multi-stream":
        assert (setting.streams - 1) * setting.batch < 8, "a query has eight samples, and each stream some of them"
    if (backend, scheme) in ONE_AT_A_TIME:
        assert setting.batch == 1


def test_a_default_has_a_batch_where_single_samples_cost_most() -> None:
    quantized = manifest(backend="pytorch", scheme="int8-static")
    assert default_setting("offline", 2, quantized) == Setting(threads=2, streams=2, batch=4)
    assert default_setting("multi-stream", 2, quantized) == Setting(threads=2, streams=2, batch=4)
    assert default_setting("multi-stream", 4, quantized) == Setting(threads=4, streams=4, batch=2)
    assert default_setting("single-stream", 2, quantized) == Setting(threads=2)
    assert default_setting("offline", 2, manifest(backend="pytorch")) == Setting(threads=2, streams=2)
    assert default_setting("multi-stream", 3, quantized) == Setting(threads=3, streams=3, batch=3)
    linear = [Layer(name="fc", op="linear", macs=1 << 25), Layer(name="conv", op="conv", macs=1 << 30)]
    assert (
        default_setting("offline", 2, manifest(backend="onnxruntime", scheme="int8-static", layers=linear)).batch == 4
    )
    assert (
        default_setting("offline", 2, manifest(backend="onnxruntime", scheme="int8-static", layers=linear[1:])).batch
        == 1
    )
    assert default_setting("offline", 2, manifest(backend="tflite", scheme="int8-static", layers=linear)).batch == 1
    assert default_setting("multi-stream", 16) == Setting(threads=16, streams=8)


def test_words() -> None:
    assert Setting(threads=1).words() == "1 thread, 1 stream, batch 1"
    assert Setting(threads=4, streams=2, batch=8).words() == "4 threads, 2 streams, batch 8"
