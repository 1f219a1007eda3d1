"""What a bundle holds: what a run on the device would choose, and nothing that it would not need."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import edgeq
from edgeq.artifact import read_manifest, write_manifest
from edgeq.cli.main import cli
from edgeq.data.packed import open_packed
from edgeq.deploy import unpack
from edgeq.deploy.checkout import build_wheel, checkout, requirements
from edgeq.deploy.contents import SAMPLES, BundleRequest
from edgeq.run.samples import samples_for
from edgeq.spec.errors import EdgeqError, RequestError
from edgeq.spec.model import load_model
from edgeq.spec.note import Note
from edgeq.spec.profile import load_profile
from tests.deploy.conftest import Bundler, request_of
from tests.run.small_models import small_images


@pytest.fixture
def own(project: Path, tmp_path: Path) -> Path:
    """A copy of the project, to be changed."""
    return Path(shutil.copytree(project, tmp_path / "own"))


def index_of(bundle: Path) -> dict[str, Any]:
    with zipfile.ZipFile(bundle) as archive:
        found: dict[str, Any] = json.loads(archive.read(unpack.INDEX))
    return found


def names(bundle: Path) -> set[str]:
    return {member["name"] for member in index_of(bundle)["members"]}


def manifest_of(own: Path, scheme: str) -> Path:
    return own / "models" / "tiny" / "artifacts" / "tflite" / f"{scheme}.json"


def test_it_holds_all_that_a_device_needs_and_unpacks(bundle: Path, tmp_path: Path) -> None:
    folder = unpack.unpack(bundle, tmp_path)
    held = names(bundle)
    artifacts = "models/tiny/artifacts"
    assert {
        "models/tiny/model.toml", f"{artifacts}/tflite/fp16.tflite", f"{artifacts}/tflite/fp16.json",
        f"{artifacts}/tflite/int8-static.tflite", f"{artifacts}/reference-fp16.npz", "scenarios/quick.toml",
        "wheels/mlcommons_loadgen-6.0.17.tar.gz", "constraints.txt", "requirements.txt", "run.sh", "attend.py", "README.txt",
    } <= held  # fmt: skip
    assert sum(name.startswith("wheels/edgeq-") for name in held) == 1
    assert sum(name.startswith("cache/samples/synthetic-") for name in held) == 4  # tiny's and those without a model
    assert len((folder / "README.txt").read_text().splitlines()) == 5
    assert (folder / "run.sh").stat().st_mode & 0o111


def test_the_same_files_give_the_same_bundle_and_the_wheel_is_the_same(
    project: Path, bundle: Path, bundler: Bundler, wheel: Path, tmp_path: Path
) -> None:
    again = bundler(request_of(project), tmp_path / "again.pyz")
    assert again.path.read_bytes() == bundle.read_bytes()
    assert build_wheel(checkout(), tmp_path).read_bytes() == wheel.read_bytes()


def test_a_file_that_is_cut_short_says_so_to_python(bundle: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.pyz"
    data = bundle.read_bytes()
    cut.write_bytes(data[: len(data) // 2])
    done = subprocess.run([sys.executable, str(cut)], capture_output=True, text=True)
    assert done.returncode != 0
    assert "this bundle is not whole, copy it again" in done.stderr


def test_the_artifact_of_the_target_is_taken_before_that_of_another(
    own: Path, bundler: Bundler, tmp_path: Path
) -> None:
    path = manifest_of(own, "int8-static")
    manifest = read_manifest(path)
    path.unlink()
    for target in ("x86_64", "aarch64"):
        write_manifest(path.with_name(f"int8-static.{target}.json"), manifest.model_copy(update={"target": target}))
    made = bundler(request_of(own, target="aarch64", schemes=("int8-static",)), tmp_path / "b.pyz")
    assert [name for name in names(made.path) if name.endswith(".json") and "tflite" in name] == [
        "models/tiny/artifacts/tflite/int8-static.aarch64.json"
    ]
    assert made.notes == ()
    path.with_name("int8-static.aarch64.json").unlink()
    made = bundler(request_of(own, target="aarch64", schemes=("int8-static",)), tmp_path / "b.pyz")
    assert [note.code for note in made.notes] == ["target-mismatch"]
    assert "models/tiny/artifacts/tflite/int8-static.x86_64.json" in names(made.path)


def test_a_failed_export_goes_along_so_that_the_device_says_why(own: Path, bundler: Bundler, tmp_path: Path) -> None:
    path = manifest_of(own, "fp16")
    failed = {"status": "failed", "reason": Note(code="x", text="it did not convert"), "files": []}
    write_manifest(path, read_manifest(path).model_copy(update=failed))
    made = bundler(request_of(own), tmp_path / "b.pyz")
    assert [note.code for note in made.notes] == ["export-failed"]
    assert "it did not convert" in made.notes[0].text
    held = names(made.path)
    assert "models/tiny/artifacts/tflite/fp16.json" in held
    assert "models/tiny/artifacts/tflite/fp16.tflite" not in held


def test_what_was_not_exported_is_told_and_nothing_at_all_is_refused(
    own: Path, bundler: Bundler, tmp_path: Path
) -> None:
    made = bundler(request_of(own, schemes=("fp32", "fp16")), tmp_path / "b.pyz")
    (note,) = made.notes
    assert (note.code, "tflite/fp32" in note.text, "fp16" in note.text) == ("no-artifact", True, False)
    shutil.copytree(own / "models" / "tiny", own / "models" / "bare", ignore=shutil.ignore_patterns("artifacts"))
    made = bundler(request_of(own, models=("tiny", "bare")), tmp_path / "b.pyz")
    assert [note.text for note in made.notes] == ["bare: nothing of it was exported: left out"]
    assert not any(name.startswith("models/bare") for name in names(made.path))
    assert index_of(made.path)["models"] == ["tiny"]
    with pytest.raises(RequestError, match="nothing to bundle") as refused:
        bundler(request_of(own, schemes=("fp32",)), tmp_path / "none.pyz")
    assert "edgeq export --model tiny" in refused.value.hint
    assert not (tmp_path / "none.pyz").exists()


@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_damaged_artifact_is_not_packed(own: Path, bundler: Bundler, tmp_path: Path, damage: str) -> None:
    file = manifest_of(own, "fp16").with_suffix(".tflite")
    data = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(data[:-1] if damage == "cut" else data[:-1] + b"!")
    with pytest.raises(EdgeqError):
        bundler(request_of(own), tmp_path / "b.pyz")
    assert not list(tmp_path.glob("*.pyz"))


def test_artifacts_of_different_weights_are_refused(own: Path, bundler: Bundler, tmp_path: Path) -> None:
    path = manifest_of(own, "fp16")
    manifest = read_manifest(path)
    other = manifest.weights.model_copy(update={"sha256": "another"})
    write_manifest(path, manifest.model_copy(update={"weights": other}))
    with pytest.raises(RequestError, match="different weights"):
        bundler(request_of(own), tmp_path / "b.pyz")


@pytest.mark.parametrize(("machine", "torch"), [("aarch64", "2.9.1"), ("x86_64", None)])
def test_a_device_installs_pinned_versions_and_torch_only_where_it_is_asked_for(
    machine: str, torch: str | None
) -> None:
    lines = requirements(checkout(), ["tflite", "onnxruntime", "openvino", "report"], machine)
    pins = dict(line.split("==") for line in lines)
    assert {
        "ai-edge-litert",
        "onnxruntime",
        "openvino",
        "pandas",
        "numpy",
        "mlcommons-loadgen",
        "pydantic-core",
    } <= set(pins)
    assert not {name for name in pins if name.startswith(("torch", "nvidia", "triton", "litert-"))}
    pins = dict(line.split("==") for line in requirements(checkout(), ["pytorch"], machine))
    assert torch in (None, pins["torch"])
    assert any(name.startswith("nvidia") for name in pins) == (machine == "x86_64")


def test_a_requirement_of_edgeqs_that_has_no_version_is_told(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "constraints.txt"):
        text = (checkout() / name).read_text()
        (tmp_path / name).write_text("\n".join(line for line in text.splitlines() if not line.startswith("rich==")))
    with pytest.raises(EdgeqError, match="no version of rich"):
        requirements(tmp_path, [], "aarch64")


def test_it_is_made_in_a_checkout(
    project: Path, bundler: Bundler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edgeq, "__file__", str(tmp_path / "site-packages" / "edgeq" / "__init__.py"))
    with pytest.raises(EdgeqError, match="does not run from a checkout"):
        bundler(request_of(project), tmp_path / "b.pyz")


def test_a_datasets_samples_come_along_and_are_those_of_the_folder(
    project: Path, bundler: Bundler, tmp_path: Path
) -> None:
    images = small_images(tmp_path / "images")
    made = bundler(request_of(project, dataset=images), tmp_path / "b.pyz")
    folder = unpack.unpack(made.path, tmp_path)
    spec, profile = load_model(folder / "models", "tiny"), load_profile(folder / "scenarios", "quick")
    opened = open_packed(folder / SAMPLES, spec)
    there = samples_for("tiny", folder / "models", profile, folder / SAMPLES, 0, [], lambda *_: None)
    here = samples_for("tiny", project / "models", profile, images, 0, [], lambda *_: None)
    assert there.sha256 == here.sha256 == opened.sha256
    assert there.dataset == str(images)
    assert there.spec["source"]["file"].startswith(str(folder))


def test_the_command_prints_what_it_packed_with_sizes(
    project: Path, bundler: Bundler, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folders = ["--models", str(project / "models"), "--scenarios", str(project / "scenarios")]
    asked = [*folders, "--target", "host", "--backend", "tflite", "--out", str(tmp_path / "b.pyz")]
    assert cli.main(["bundle", *asked], standalone_mode=False) == 0
    said = capfd.readouterr()
    assert "models/tiny/artifacts/tflite/int8-static.tflite" in said.out
    assert "MB  edgeq and LoadGen" in said.out
    assert f"{len(names(tmp_path / 'b.pyz'))} files" in said.out
    assert "fp32" in said.err  # which was not exported
    with zipfile.ZipFile(tmp_path / "b.pyz") as archive:
        assert unpack.listing(*unpack.read_index(archive)) == said.out.rstrip("\n")
    for wrong in (["--profile", "quik"], ["--backend", "tflight"], ["--target", "arm"], ["--model", "tyni"]):
        with pytest.raises(RequestError):
            cli.main(["bundle", *folders, *wrong], standalone_mode=False)


def test_the_request_knows_the_machine() -> None:
    request = BundleRequest(Path(), Path(), (), (), (), "x86_64-vnni", ())
    assert (request.name, request.machine) == ("edgeq-x86_64-vnni", "x86_64")
