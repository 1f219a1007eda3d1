"""Follows the recipes of CONTRIBUTING.md to the letter."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from edgeq import backends
from edgeq.artifact import Layer
from edgeq.backends.session import SessionOptions
from edgeq.export.check import check
from edgeq.export.job import ExportRequest, export
from edgeq.loadgen.plan import plan_run
from edgeq.logits import alive
from edgeq.spec.model import load_model
from edgeq.spec.profile import load_profile
from tests.manifests import manifest


def _block(repo: Path, heading: str, language: str) -> str:
    text = (repo / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found, f"no {language} block under {heading}"
    return found[1]


@pytest.mark.e2e
def test_a_model_is_a_file_and_no_code(repo: Path, tmp_path: Path) -> None:
    text = _block(repo, "Add a model", "toml")
    name = tomllib.loads(text)["name"]
    (tmp_path / name).mkdir()
    (tmp_path / name / "model.toml").write_text(text)
    assert load_model(tmp_path, name).title == "SqueezeNet 1.1"
    request = ExportRequest(
        models_dir=tmp_path, models=[name], backends=["onnxruntime"], schemes=["fp32"], weights="random",
        target="x86_64", threads=2, calibration_count=4,
    )  # fmt: skip
    (outcome,) = export(request, lambda what, done, total: None)
    assert outcome.outcome == "exported", outcome.manifest.reason
    (again,) = export(request, lambda what, done, total: None)
    assert again.outcome == "unchanged"
    assert again.manifest == outcome.manifest


def test_a_backend_is_a_session(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sum_backend.py").write_text(_block(repo, "Add a backend", "python"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(backends.REGISTRY, "sum", backends.Backend("sum_backend", ("numpy",), "sum"))
    described = manifest(backend="sum", layers=[Layer(name="fc", op="linear", macs=10)])
    session = backends.open_session(described, tmp_path, SessionOptions(threads=2))
    samples = np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32)
    logits = session.infer(samples)
    alive(logits)
    into = np.zeros((1, described.classes), np.float32)
    session.bind(samples[1:2], into)()
    assert np.array_equal(into, logits[1:2])
    many = np.zeros_like(logits)

    def done(position: int, block: np.ndarray) -> None:
        many[position : position + len(block)] = block

    session.infer_many(list(samples), done)
    assert np.array_equal(many, logits)
    found, notes = check(session, described, samples, logits, None)
    assert notes == []
    assert (found.n, found.sqnr_db, found.top1_agreement, found.macs) == (4, None, 1.0, {"fp32": 1.0})


def test_a_profile_is_a_file_and_no_code(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "night.toml").write_text(_block(repo, "Add a profile", "toml"))
    profile = load_profile(tmp_path, "night")
    planning = plan_run(profile, "multi-stream", 0.01, 1000)
    assert planning.plan.min_duration_s == 600
    assert planning.plan.min_queries == 662
    assert planning.seconds == pytest.approx(600)
