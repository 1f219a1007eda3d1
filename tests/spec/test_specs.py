from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeq.run.intervals import at_quantile, within_run
from edgeq.spec.errors import RequestError
from edgeq.spec.model import load_model, model_names
from edgeq.spec.profile import load_profile, profile_names


def test_the_models_are_there_and_valid(repo: Path) -> None:
    assert {"densenet121", "efficientnet_lite0", "mobilenet_v2", "vgg19"} <= set(model_names(repo / "models"))
    for name in model_names(repo / "models"):
        spec = load_model(repo / "models", name)
        assert spec.input_shape[1:] == (spec.preprocess.crop, spec.preprocess.crop)


def test_mlperf_profile_keeps_the_rounds_rules(repo: Path) -> None:
    profile = load_profile(repo / "scenarios", "mlperf")
    assert profile.mlperf_rules
    assert profile.resident_samples == 1024
    assert profile.accuracy_samples == 50000
    assert profile.offline.min_samples == 24576
    assert (profile.single_stream.percentile, profile.multi_stream.percentile) == (0.90, 0.99)
    assert {profile.single_stream.min_duration_s, profile.multi_stream.min_duration_s} == {600}


def test_quick_is_not_called_mlperf(repo: Path) -> None:
    profile = load_profile(repo / "scenarios", "quick")
    assert not profile.mlperf_rules
    assert "not comparable with MLPerf" in profile.title
    assert profile.multi_stream.percentile == 0.90


def test_one_round_of_the_quick_profile_has_an_interval_of_what_it_is_judged_by(repo: Path) -> None:
    profile = load_profile(repo / "scenarios", "quick")
    for asked in (profile.single_stream, profile.multi_stream):
        times = np.linspace(1.0, 2.0, asked.min_queries)
        assert within_run(times, at_quantile(times, asked.percentile), asked.percentile) is not None


def test_every_profile_has_every_scenario(repo: Path) -> None:
    for name in profile_names(repo / "scenarios"):
        profile = load_profile(repo / "scenarios", name)
        for scenario in ("single-stream", "multi-stream", "offline", "server"):
            assert profile.scenario(scenario).min_duration_s > 0


def _edited(repo: Path, tmp_path: Path, name: str, old: str, new: str) -> Path:
    text = (repo / "scenarios" / "quick.toml").read_text()
    assert old in text
    (tmp_path / f"{name}.toml").write_text(text.replace('name = "quick"', f'name = "{name}"').replace(old, new))
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new", "code", "says"),
    [
        ("min_queries = 100", "min_querys = 100", "unknown-key", "min_queries"),
        ("cell_budget_s", "cel_budget_s", "unknown-key", "cell_budget_s"),
        ("[offline]", "[ofline]", "unknown-key", "offline"),
        ("percentile = 0.90", "percentile = 90", "bad-value", "percentile"),
        ("resident_samples = 64", "", "missing-key", "resident_samples"),
        ("cell_budget_s = 95", "cell_budget_s = = 95", "bad-toml", "mend"),
    ],
)
def test_a_mistake_in_a_profile_is_named(repo: Path, tmp_path: Path, old: str, new: str, code: str, says: str) -> None:
    with pytest.raises(RequestError) as caught:
        load_profile(_edited(repo, tmp_path, "mine", old, new), "mine")
    assert caught.value.code == code
    assert says in caught.value.hint


def test_an_unknown_model_names_the_nearest(repo: Path) -> None:
    with pytest.raises(RequestError) as caught:
        load_model(repo / "models", "mobilenetv2")
    assert "mobilenet_v2" in caught.value.hint


def test_an_unknown_profile_names_the_nearest(repo: Path) -> None:
    with pytest.raises(RequestError) as caught:
        load_profile(repo / "scenarios", "quik")
    assert "'quick'" in caught.value.hint


def test_a_folder_without_models_says_where_to_go(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no models under") as caught:
        load_model(tmp_path, "vgg19")
    assert "--models" in caught.value.hint


def test_a_model_whose_name_is_not_its_folders(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "vgg").mkdir()
    (tmp_path / "vgg" / "model.toml").write_text((repo / "models" / "vgg19" / "model.toml").read_text())
    with pytest.raises(RequestError, match="name is 'vgg19'"):
        load_model(tmp_path, "vgg")
