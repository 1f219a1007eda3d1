"""``edgeq tune`` as it is typed, and its table."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from edgeq.cli.tune import conclusion, table
from edgeq.setting import Candidate, Setting, Tuned, default_setting
from edgeq.spec.names import Cell
from edgeq.spec.note import Note
from edgeq.tune.job import Outcome, TunedCell
from tests.cli.test_cli import edgeq
from tests.model_folders import model_toml

FAST = Setting(threads=2, streams=2, batch=8)
DEFAULT = default_setting("offline", 2)


def cell(outcome: Outcome, gain: float = 1.0, backend: str = "tflite", **changes: Any) -> TunedCell:
    where = Cell("m", backend, "fp32", "offline")
    if outcome in ("skipped", "failed"):
        return TunedCell(where, outcome, reason=Note(code="too-slow", text="9 s a sample"))
    setting = FAST if gain != 1 else DEFAULT
    tuned = Tuned(
        scenario="offline", key="k", setting=setting, default=DEFAULT, gain=gain,
        gain_low=gain - 0.1 if gain != 1 else None, gain_high=gain + 0.1 if gain != 1 else None, when="2026-01-02",
        candidates=[
            Candidate(setting=DEFAULT, samples_per_second=[1.0, 100.0, 104.0, 96.0]),
            Candidate(setting=FAST, samples_per_second=[999.0, 100.0 * gain]),
            Candidate(setting=Setting(threads=2, batch=32), samples_per_second=[], note=Note(code="memory", text="x")),
        ],
    )  # fmt: skip
    return TunedCell(where, outcome, tuned, **changes)


def printed(found: list[TunedCell]) -> str:
    text = io.StringIO()
    Console(width=160, file=text).print(table(found))
    return text.getvalue()


def test_a_row_shows_both_settings_and_the_gain() -> None:
    text = printed([cell("changed", 1.25), cell("default", backend="openvino"), cell("skipped", backend="pytorch")])
    (changed,) = [line for line in text.splitlines() if "tflite" in line]
    assert [part.strip() for part in changed.split("│")[4:9]] == [
        "changed", "2 threads, 2 streams, batch 1", "100.0", "2 threads, 2 streams, batch 8", "125.0",
    ]  # fmt: skip
    assert "x1.25 (1.15 to 1.35)" in changed
    (default,) = [line for line in text.splitlines() if "openvino" in line]
    assert "100.0" in default
    assert "x" not in default.split("│")[-2]
    (skipped,) = [line for line in text.splitlines() if "pytorch" in line]
    assert "too-slow" in skipped


def test_the_last_line_counts_what_changed_and_names_the_largest_gain() -> None:
    found = [
        cell("changed", 1.25),
        cell("kept", 1.5, "openvino"),
        cell("default", backend="onnxruntime"),
        cell("failed"),
    ]
    said = conclusion(found)
    assert said.startswith("2 of 3 cells are faster with another setting than the default; 1 were not tuned")
    assert "x1.50 (1.40 to 1.60) in m/openvino/fp32/offline" in said
    assert conclusion([cell("default")]) == "0 of 1 cells are faster with another setting than the default"


def test_json_holds_everything() -> None:
    found = json.loads(json.dumps(cell("changed", 1.25).as_json()))
    assert found["outcome"] == "changed"
    assert Tuned.model_validate(found["tuned"]).setting == FAST
    assert json.loads(json.dumps(cell("failed").as_json()))["reason"]["code"] == "too-slow"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "models" / "small").mkdir(parents=True)
    (tmp_path / "models" / "small" / "model.toml").write_text(model_toml("small", "nowhere", "small"))
    return tmp_path


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--backend", "openvin"), "did you mean 'openvino'?"),
        (("--backend", "null"), "unknown backend 'null'"),
        (("--scenario", "server"), "unknown scenario 'server'"),
        (("--scheme", "int8"), "unknown scheme 'int8'"),
        (("--model", "smal"), "did you mean 'small'?"),
        (("--rounds", "0"), "0 is not in the range"),
        (("--seconds", "0"), "is not in the range"),
    ],
)
def test_a_wrong_request_starts_nothing(project: Path, args: tuple[str, ...], says: str) -> None:
    done = edgeq(project, "tune", *args)
    assert done.returncode == 2
    assert says in done.stderr
    assert not (project / "results").exists()


def test_what_was_not_exported_is_told_and_fails(project: Path) -> None:
    done = edgeq(project, "tune", "--backend", "onnxruntime", "--scheme", "fp32", "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert [each["outcome"] for each in found] == ["failed"] * 3
    assert {each["reason"]["code"] for each in found} <= {"no-artifact", "not-installed"}
    assert "run: edgeq export" in found[0]["reason"]["hint"]
    assert "Traceback" not in done.stderr
