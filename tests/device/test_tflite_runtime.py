"""tflite-runtime 2.14 with numpy 1: what a device may have in place of ai-edge-litert runs the exported files (trap 30)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeq.artifact import read_manifest
from tests.device import environments
from tests.model_folders import profile_toml
from tests.run.small_models import small_models

#: As few queries as LoadGen calls valid, however slow the machine, and however slow it was when the run was planned.
FEWEST = (
    profile_toml("blink")
    .replace("= 0.90", "= 0.50")
    .replace("= 64", "= 11")
    .replace("duration_s = 0.1", "duration_s = 0")
    .replace("budget_s = 30", "budget_s = 600")
)

SCHEMES = ("fp32", "fp16", "int8-static", "int8-dynamic")
#: Least SQNR against torch's float32, in dB.
LEAST_DB = {"fp32": 60, "fp16": 40, "int8-static": 15}


@pytest.fixture(scope="module")
def python() -> str:
    return environments.environment(
        environments.interpreter("3.11"),
        environments.requirements("tflite-runtime"),
        environments.REPO / "constraints-tflite-runtime.txt",
    )


@pytest.fixture(scope="module")
def records(python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, object]]:
    """Records of the small network's cells, by scheme and scenario, as ``edgeq run`` there leaves them."""
    models = small_models(tmp_path_factory, SCHEMES, "tflite")
    return _run(python, tmp_path_factory.mktemp("run"), models, "small", SCHEMES)


def _run(python: str, folder: Path, models: Path, model: str, schemes: tuple[str, ...]) -> dict[tuple[str, str], dict]:  # type: ignore[type-arg]
    (folder / "scenarios").mkdir()
    (folder / "scenarios" / "blink.toml").write_text(FEWEST)
    asked = [word for scheme in schemes for word in ("--scheme", scheme)]
    done = environments.run(
        python, "-m", "edgeq", "run", "--model", model, "--backend", "tflite", *asked, "--models", str(models),
        "--profile", "blink", "--json", cwd=folder, cache=folder / "cache",
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    return {(record["cell"]["scheme"], record["cell"]["scenario"]): record for record in found}


@pytest.mark.parametrize("scenario", ["single-stream", "multi-stream", "offline"])
@pytest.mark.parametrize("scheme", list(LEAST_DB))
def test_exported_files_run_and_are_right(records: dict, scheme: str, scenario: str) -> None:  # type: ignore[type-arg]
    record = records[scheme, scenario]
    assert record["status"] == "ok", record["reason"]
    assert record["versions"]["tflite-runtime"] == "2.14.0"
    assert record["versions"]["numpy"].startswith("1.26")
    check = record["output_check"]
    assert check["sqnr_db"] is None or check["sqnr_db"] > LEAST_DB[scheme]
    assert check["stable"]
    macs = record["effective"]["macs"]
    assert macs == ({"int8": 1.0} if scheme == "int8-static" else {"fp32": 1.0})


def test_what_it_would_compute_wrongly_is_refused(records: dict) -> None:  # type: ignore[type-arg]
    for scenario in ("single-stream", "multi-stream", "offline"):
        record = records["int8-dynamic", scenario]
        assert record["status"] == "failed"
        assert record["reason"]["code"] == "runtime-too-old"
        assert "ai-edge-litert" in record["reason"]["hint"]


def test_doctor_there_names_the_pairs(python: str, tmp_path: Path) -> None:
    done = environments.run(python, "-m", "edgeq", "doctor", "--json", cwd=tmp_path, cache=tmp_path / "cache")
    found = json.loads(done.stdout)
    assert found["backends"]["tflite"] == {"tflite-runtime": "2.14.0"}
    notes = {finding["code"]: finding for finding in found["findings"]}
    assert "tflite-runtime 2.14 with numpy<2" in notes["tflite-runtime"]["hint"]
    assert not notes["tflite-runtime"]["wrong"]
    assert "tflite-numpy" not in notes
    probes = {each["name"]: each for each in found["probes"]["tflite"]["found"]}
    assert probes["int8-static"]["probe"]["ok"]
    assert [note["code"] for note in probes["int8-dynamic"]["notes"]] == ["runtime-too-old"]


def test_a_real_network_runs_there(python: str, repo: Path, tmp_path: Path) -> None:
    """MobileNetV2, where it has been exported."""
    made = [scheme for scheme in LEAST_DB if (repo / f"models/mobilenet_v2/artifacts/tflite/{scheme}.json").is_file()]
    made = [s for s in made if read_manifest(repo / f"models/mobilenet_v2/artifacts/tflite/{s}.json").status == "ok"]
    if not made:
        pytest.skip("needs MobileNetV2 for TFLite (edgeq export --model mobilenet_v2 --backend tflite)")
    for (scheme, _), record in _run(python, tmp_path, repo / "models", "mobilenet_v2", tuple(made)).items():
        assert record["status"] == "ok", record["reason"]
        assert record["output_check"]["sqnr_db"] > (10 if scheme == "int8-static" else LEAST_DB["fp16"] - 10)


def test_its_pins_are_those_of_all_others_but_for_the_pair() -> None:
    def pins(name: str) -> dict[str, str]:
        lines = (environments.REPO / name).read_text().splitlines()
        return dict(line.split("==") for line in lines if line and line[0] not in "#" and ";" not in line)

    ours, theirs = pins("constraints-tflite-runtime.txt"), pins("constraints.txt")
    assert {name for name in ours if theirs.get(name) != ours[name]} == {"numpy", "tflite-runtime"}
