from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeq.data import cache
from edgeq.data.images import list_images
from edgeq.data.preprocess import decode, normalize, to_pixels
from edgeq.data.samples import SampleSet, kept_synthetic, open_samples, prepare, synthetic
from edgeq.files import cache_dir
from edgeq.spec.errors import EdgeqError, RequestError
from edgeq.spec.model import NO_MODEL_SPEC
from tests.data.pictures import CROP, small_spec, truncate, write_pictures

SPEC = small_spec()


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEQ_CACHE", str(tmp_path / "cache"))


def _prepare(folder: Path, **options: Any) -> SampleSet:
    return prepare(list_images(folder, SPEC.classes, 0), SPEC, **options)


def _cache_files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "samples").iterdir())


def test_samples_are_the_preprocessed_images_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    names = write_pictures(folder, 5, size=(60, 50))
    found = _prepare(folder)
    assert found.count == len(found) == 5
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1, 2, 3, 4]
    assert found.preprocessing == "resize 40, crop 32, bilinear"
    for index, name in enumerate(names):
        pixels = to_pixels(decode((folder / name).read_bytes()), SPEC.preprocess)
        expected = normalize(pixels[None], SPEC.preprocess, "NHWC")
        np.testing.assert_array_equal(found.load([index], "NHWC"), expected)


def test_loading_many_in_any_order_and_iterating_one_by_one(tmp_path: Path) -> None:
    write_pictures(tmp_path / "set", 4)
    found = _prepare(tmp_path / "set")
    assert found.preprocessing == "as is (already 32x32)"
    every = np.stack(list(found))
    assert every.shape == (4, 3, CROP, CROP)
    np.testing.assert_array_equal(found.load([3, 1, 1], "NCHW"), every[[3, 1, 1]])
    out = np.empty((2, 3, CROP, CROP), dtype=np.float32)
    found.load_into(out, np.array([2, 0]), "NCHW")
    np.testing.assert_array_equal(out, every[[2, 0]])
    with pytest.raises(ValueError, match="samples"):
        found.load_into(out, [0], "NCHW")


def test_a_second_call_reads_the_cache_and_other_names_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = write_pictures(tmp_path / "set", 3)
    first = _prepare(tmp_path / "set")
    monkeypatch.setattr(cache, "decode", lambda data: pytest.fail("decoded again"))
    seen: list[tuple[int, int]] = []
    again = _prepare(tmp_path / "set", on_progress=lambda done, total: seen.append((done, total)))
    np.testing.assert_array_equal(again.load(range(3), "NCHW"), first.load(range(3), "NCHW"))
    assert seen == [(3, 3)]
    (tmp_path / "set").rename(tmp_path / "elsewhere")
    assert _prepare(tmp_path / "elsewhere").file_hashes == first.file_hashes
    assert len(names) == 3


def test_progress_counts_every_image(tmp_path: Path) -> None:
    write_pictures(tmp_path / "set", 3)
    seen: list[tuple[int, int]] = []
    _prepare(tmp_path / "set", on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("damage", ["truncated", "altered", "no note", "bad note", "empty note"])
def test_a_damaged_cache_is_made_anew(tmp_path: Path, damage: str) -> None:
    write_pictures(tmp_path / "set", 3)
    before = _prepare(tmp_path / "set").load(range(3), "NCHW")
    note, pixels = _cache_files(tmp_path)
    assert (note.suffix, pixels.suffix) == (".json", ".npy")
    if damage == "truncated":
        truncate(pixels)
    elif damage == "altered":
        data = bytearray(pixels.read_bytes())
        data[-1] ^= 1
        pixels.write_bytes(bytes(data))
    elif damage == "no note":
        note.unlink()
    else:
        note.write_text("{}" if damage == "empty note" else "{", encoding="utf-8")
    np.testing.assert_array_equal(_prepare(tmp_path / "set").load(range(3), "NCHW"), before)


def test_images_that_break_while_decoding_are_named_and_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    names = write_pictures(folder, 12, size=(64, 64))
    whole = _prepare(folder)
    truncate(folder / names[1])
    (folder / names[10]).unlink()
    for _ in range(2):  # Made, then read from the cache.
        found = _prepare(folder)
        assert found.count == 10
        assert {(bad.name, bad.code) for bad in found.bad} == {
            (names[1], "corrupt-image"),
            (names[10], "missing-image"),
        }
        assert [note.code for note in found.warnings] == ["bad-images"]
        assert names[10] in found.warnings[0].text
        assert found.labels is not None
        assert found.labels.tolist() == [0, 2, 3, 4, 5, 6, 7, 8, 9, 1]
        np.testing.assert_array_equal(found.load([9], "NCHW"), whole.load([11], "NCHW"))
    described = found.describe()
    assert described["bad"] == 2
    assert set(described["bad_images"]) == {names[1], names[10]}
    json.dumps(described, allow_nan=False)


def test_bad_images_in_a_renamed_folder_go_by_their_new_names(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    names = write_pictures(folder, 2, size=(64, 64))
    truncate(folder / names[0])
    _prepare(folder)
    (folder / names[0]).rename(folder / "new.jpg")
    (folder / "val_map.txt").write_text(f"new.jpg 0\n{names[1]} 1\n", encoding="utf-8")
    assert [bad.name for bad in _prepare(folder).bad] == ["new.jpg"]


def test_only_broken_images_are_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    for name in write_pictures(folder, 2, size=(64, 64)):
        truncate(folder / name)
    with pytest.raises(RequestError) as caught:
        _prepare(folder)
    assert caught.value.code == "no-images"
    assert "image 000.jpg" in caught.value.why
    assert _cache_files(tmp_path) == []


def test_an_image_that_changes_after_it_was_listed_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    names = write_pictures(folder, 3)
    images = list_images(folder, SPEC.classes, 0)
    (folder / names[0]).write_bytes((folder / names[1]).read_bytes())
    with pytest.raises(EdgeqError) as caught:
        prepare(images, SPEC)
    assert caught.value.code == "images-changed"
    assert _cache_files(tmp_path) == []


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pictures(tmp_path / "set", 3)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache, "_header", full)
    with pytest.raises(EdgeqError) as caught:
        _prepare(tmp_path / "set")
    assert caught.value.code == "disk-full"
    assert _cache_files(tmp_path) == []


def test_a_subset_keeps_labels_and_hashes_together(tmp_path: Path) -> None:
    write_pictures(tmp_path / "set", 5)
    whole = _prepare(tmp_path / "set")
    part = whole.subset([4, 2]).subset([1])
    assert part.count == 1
    assert part.labels is not None
    assert part.labels.tolist() == [2]
    assert part.file_hashes == (whole.file_hashes[2],)
    assert part.sha256 != whole.sha256
    np.testing.assert_array_equal(part.load([0], "NCHW"), whole.load([2], "NCHW"))


def test_the_hash_is_over_content_and_labels(tmp_path: Path) -> None:
    write_pictures(tmp_path / "set", 3)
    images = list_images(tmp_path / "set", SPEC.classes, 0)
    found = prepare(images, SPEC)
    assert found.sha256 == images.sha256
    assert found.subset([2, 0, 1]).sha256 == images.sha256


def _specs(tmp_path: Path) -> list[SampleSet]:
    write_pictures(tmp_path / "set", 4)
    return [_prepare(tmp_path / "set").subset([3, 0]), synthetic(SPEC, 3, seed=5).subset([2, 1])]


def test_a_set_comes_back_from_its_spec(tmp_path: Path) -> None:
    for found in _specs(tmp_path):
        again = open_samples(json.loads(json.dumps(found.to_spec(), allow_nan=False)))
        assert again.describe() == found.describe()
        assert again.file_hashes == found.file_hashes
        assert (again.labels is None) == (found.labels is None)
        np.testing.assert_array_equal(again.load([0, 1], "NHWC"), found.load([0, 1], "NHWC"))


def test_a_worker_opens_a_set_without_pillow_or_a_framework(tmp_path: Path) -> None:
    specs = [found.to_spec() for found in _specs(tmp_path)]
    code = (
        "import json, sys\n"
        "from edgeq.data.samples import open_samples\n"
        "for spec in json.loads(sys.stdin.read()):\n"
        "    open_samples(spec).load([0], 'NHWC')\n"
        "print([name for name in ('PIL', 'torch', 'torchvision', 'onnxruntime') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(specs), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("damage", ["gone", "truncated", "other"])
def test_opening_a_spec_whose_file_is_not_whole_says_so(tmp_path: Path, damage: str) -> None:
    write_pictures(tmp_path / "set", 3)
    spec = _prepare(tmp_path / "set").to_spec()
    path = Path(spec["source"]["file"])
    if damage == "gone":
        path.unlink()
    elif damage == "truncated":
        truncate(path)
    else:
        np.save(path, np.zeros((3, 5, 5, 3), dtype=np.uint8))
    with pytest.raises(EdgeqError) as caught:
        open_samples(spec)
    assert caught.value.code == "no-samples"


@pytest.mark.parametrize("damage", ["gone", "truncated"])
def test_a_file_that_is_lost_while_it_is_in_use_says_so(tmp_path: Path, damage: str) -> None:
    write_pictures(tmp_path / "set", 3)
    found = open_samples(_prepare(tmp_path / "set").to_spec())
    path = Path(found.to_spec()["source"]["file"])
    found.load([2], "NCHW")
    path.unlink() if damage == "gone" else truncate(path)
    with pytest.raises(EdgeqError) as caught:
        found.load([2], "NCHW")
    assert caught.value.code == "no-samples"


def test_reading_a_whole_set_leaves_none_of_it_in_memory(tmp_path: Path) -> None:
    rows, side = 400, 224
    pixels = np.lib.format.open_memmap(tmp_path / "s.npy", mode="w+", dtype=np.uint8, shape=(rows, side, side, 3))
    pixels.flush()
    spec = synthetic(SPEC, rows, seed=0).to_spec()
    spec |= {"kind": "folder", "size": [side, side], "source": {"file": str(tmp_path / "s.npy"), "rows": rows}}
    code = (
        "import json, sys\n"
        "from edgeq.data.samples import open_samples\n"
        "from edgeq.host.memory import peak_rss\n"
        "samples = open_samples(json.loads(sys.stdin.read()))\n"
        "samples.load([0], 'NHWC')\n"
        "before = peak_rss()\n"
        "for index in range(samples.count):\n"
        "    samples.load([index], 'NHWC')\n"
        "print(peak_rss() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(spec), capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < pixels.nbytes / 10, f"of {pixels.nbytes} bytes"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=12))
def test_any_choice_of_rows_comes_back_from_its_spec(rows: list[int]) -> None:
    found = synthetic(SPEC, 13, seed=0).subset(rows)
    assert list(open_samples(json.loads(json.dumps(found.to_spec()))).rows) == rows


def test_a_spec_does_not_grow_with_its_samples() -> None:
    few, many = (len(json.dumps(synthetic(SPEC, count, seed=0).to_spec())) for count in (10, 50_000))
    assert many < few + 10


def test_synthetic_samples_hang_on_seed_and_index_alone() -> None:
    few, many = synthetic(SPEC, 2, seed=1), synthetic(SPEC, 5, seed=1)
    np.testing.assert_array_equal(few.load([1], "NCHW"), many.load([1], "NCHW"))
    assert not np.array_equal(many.load([0], "NCHW"), many.load([1], "NCHW"))
    assert not np.array_equal(few.load([0], "NCHW"), synthetic(SPEC, 2, seed=2).load([0], "NCHW"))
    assert few.labels is None
    assert few.file_hashes == ()
    assert few.sha256 != many.sha256
    assert few.describe()["path"] == "synthetic, seed 1"


def test_synthetic_samples_of_another_version_are_refused() -> None:
    spec = synthetic(SPEC, 1, seed=0).to_spec()
    spec["source"]["version"] += 1
    with pytest.raises(EdgeqError, match="version"):
        open_samples(spec)


def test_the_null_backend_s_spec_has_samples_too() -> None:
    assert synthetic(NO_MODEL_SPEC, 1, seed=0).load([0], "NHWC").shape == (1, 224, 224, 3)


def test_synthetic_pixels_are_made_once_and_opened_by_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    made = synthetic(SPEC, 3, seed=77)
    expected = made.load([2, 0], "NCHW")
    kept = kept_synthetic(SPEC, 3, seed=77)
    monkeypatch.setattr("edgeq.data.synthetic.image", None)  # nobody makes one again
    for found in (kept, kept_synthetic(SPEC, 3, seed=77), open_samples(json.loads(json.dumps(kept.to_spec())))):
        assert np.array_equal(found.load([2, 0], "NCHW"), expected)
        assert (found.sha256, found.count, found.warnings) == (made.sha256, 3, ())


def test_kept_synthetic_pixels_that_are_damaged_are_made_anew() -> None:
    made = kept_synthetic(SPEC, 3, seed=78)
    file = Path(made.to_spec()["source"]["file"])
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    assert np.array_equal(kept_synthetic(SPEC, 3, seed=78).load([2], "NCHW"), synthetic(SPEC, 3, 78).load([2], "NCHW"))
    file.unlink()
    with pytest.raises(EdgeqError, match="cannot read the preprocessed samples"):
        open_samples(made.to_spec())


def test_where_nothing_can_be_kept_samples_are_made_when_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDGEQ_CACHE", str(tmp_path / "file"))
    found = kept_synthetic(SPEC, 3, seed=79)
    assert [note.code for note in found.warnings] == ["not-kept"]
    assert np.array_equal(found.load([1], "NHWC"), synthetic(SPEC, 3, seed=79).load([1], "NHWC"))
    monkeypatch.setattr(cache, "MOST_MADE_BYTES", 100)
    assert kept_synthetic(SPEC, 3, seed=79).warnings == (), "too many to keep is no failure"


@pytest.mark.parametrize(
    ("own", "xdg", "expected"), [("/a", "/b", "/a"), (None, "/b", "/b/edgeq"), (None, None, "/home/.cache/edgeq")]
)
def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, own: str | None, xdg: str | None, expected: str) -> None:
    for name, value in (("EDGEQ_CACHE", own), ("XDG_CACHE_HOME", xdg), ("HOME", "/home")):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert cache_dir() == Path(expected)
