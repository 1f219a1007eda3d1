"""Packed samples: the same as those of the folder that they were made of, opened without decoding anything."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgeq.data.images import list_images
from edgeq.data.packed import describe_packed, is_packed, open_packed, packed_name
from edgeq.data.samples import FileSource, SampleSet, prepare
from edgeq.run.samples import samples_for
from edgeq.spec.errors import EdgeqError, RequestError
from edgeq.spec.model import ModelSpec, load_model
from edgeq.spec.profile import load_profile
from tests.manifests import manifest
from tests.model_folders import model_toml
from tests.run.small_models import small_images


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for name in ("small", "other"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "model.toml").write_text(model_toml(name, "nowhere", name))
    return tmp_path / "models"


@pytest.fixture
def spec(models: Path) -> ModelSpec:
    return load_model(models, "small")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = small_images(tmp_path / "images")
    (folder / "broken.png").write_bytes(b"not an image")
    with (folder / "val_map.txt").open("a") as labels:
        labels.write("broken.png 1\n")
    return folder


def of_folder(images: Path, spec: ModelSpec) -> SampleSet:
    return prepare(list_images(images, spec.classes, spec.label_offset), spec)


def packed(samples: SampleSet, spec: ModelSpec, folder: Path) -> Path:
    """As the bundle lays them out."""
    folder.mkdir(exist_ok=True)
    assert isinstance(samples.source, FileSource)
    shutil.copy(samples.source.path, folder)
    (folder / packed_name(spec.name)).write_text(json.dumps(describe_packed(samples, spec)))
    return folder


def test_they_are_the_folders_own(images: Path, spec: ModelSpec, tmp_path: Path) -> None:
    original = of_folder(images, spec)
    folder = packed(original, spec, tmp_path / "samples")
    assert is_packed(folder)
    assert not is_packed(images)
    assert not is_packed(tmp_path / "nowhere")
    opened = open_packed(folder, spec)
    assert opened.sha256 == original.sha256
    assert opened.describe() == original.describe()
    assert opened.path == str(images)
    assert np.array_equal(opened.load(range(len(opened)), "NCHW"), original.load(range(len(original)), "NCHW"))
    assert [note.code for note in opened.warnings] == ["bad-images"]


def test_a_run_leaves_out_the_same_images_and_names_the_same_dataset(
    images: Path, models: Path, spec: ModelSpec, tmp_path: Path, repo: Path
) -> None:
    original = of_folder(images, spec)
    folder = packed(original, spec, tmp_path / "samples")
    calibrated = manifest().calibration.model_copy(update={"images": list(original.file_hashes[:5])})
    made = [manifest(calibration=calibrated)]
    profile = load_profile(repo / "scenarios", "quick")
    here, there = (samples_for("small", models, profile, given, 0, made, lambda *_: None) for given in (images, folder))
    assert here.excluded == there.excluded == 5
    assert here.sha256 == there.sha256
    assert here.dataset == there.dataset == str(images)
    assert (here.preprocessing, here.bad_images) == (there.preprocessing, there.bad_images)
    kept_by = [Path(each.spec["source"]["file"]).name for each in (here, there)]
    assert kept_by[0] == kept_by[1]  # accuracy that is kept hangs on this name


def test_nothing_is_decoded(images: Path, spec: ModelSpec, tmp_path: Path, models: Path) -> None:
    folder = packed(of_folder(images, spec), spec, tmp_path / "samples")
    code = (
        "import sys\nfrom pathlib import Path\nfrom edgeq.data.packed import open_packed\n"
        "from edgeq.spec.model import load_model\n"
        f"found = open_packed(Path({str(folder)!r}), load_model(Path({str(models)!r}), 'small'))\n"
        "found.load([0], 'NCHW')\nprint(len(found), 'PIL' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["12", "False"]


def test_another_models_are_not_taken_for_its_own(images: Path, spec: ModelSpec, models: Path, tmp_path: Path) -> None:
    folder = packed(of_folder(images, spec), spec, tmp_path / "samples")
    with pytest.raises(RequestError, match="no samples of other"):
        open_packed(folder, load_model(models, "other"))
    (models / "small" / "model.toml").write_text(model_toml("small", "nowhere", "small", std=0.25))
    with pytest.raises(RequestError, match="another small"):
        open_packed(folder, load_model(models, "small"))


@pytest.mark.parametrize("what", ["pixels", "labels", "text", "gone"])
def test_damage_is_told(images: Path, spec: ModelSpec, tmp_path: Path, what: str) -> None:
    folder = packed(of_folder(images, spec), spec, tmp_path / "samples")
    (pixels,) = folder.glob("*.npy")
    described = folder / packed_name(spec.name)
    if what == "pixels":
        pixels.write_bytes(pixels.read_bytes()[:-1] + b"!")
    elif what == "gone":
        pixels.unlink()
    elif what == "text":
        described.write_text("{")
    else:
        found = json.loads(described.read_text())
        found["samples"]["labels"][0] += 1
        described.write_text(json.dumps(found))
    with pytest.raises(EdgeqError) as damaged:
        open_packed(folder, spec)
    assert damaged.value.code == "no-samples"
