from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from edgeq.data.calibration import choose_calibration, choose_selection, exclude_calibration
from edgeq.data.images import list_images
from edgeq.data.samples import prepare, synthetic
from edgeq.spec.errors import RequestError
from tests.data.pictures import CROP, picture, small_spec, truncate, write_pictures

SPEC = small_spec()


def test_a_seeded_choice_without_repeats(tmp_path: Path) -> None:
    write_pictures(tmp_path, 20)
    chosen = choose_calibration(tmp_path, SPEC, count=8, seed=1)
    info = chosen.info()
    assert len(chosen) == len(set(info.images)) == info.count == 8
    assert (info.kind, info.path, info.seed) == ("folder", str(tmp_path), 1)
    assert chosen.notes == ()
    assert choose_calibration(tmp_path, SPEC, count=8, seed=1).info() == info
    other = choose_calibration(tmp_path, SPEC, count=8, seed=2).info()
    assert set(other.images) != set(info.images)
    assert other.sha256 != info.sha256


def test_the_choice_does_not_hang_on_names_labels_or_order(tmp_path: Path) -> None:
    names = write_pictures(tmp_path / "a", 12)
    (tmp_path / "b").mkdir()
    for position, name in enumerate(reversed(names)):
        shutil.copy(tmp_path / "a" / name, tmp_path / "b" / f"{position}.jpg")
    first, second = (choose_calibration(tmp_path / name, SPEC, count=5) for name in "ab")
    assert first.info().images == second.info().images
    assert first.info().sha256 == second.info().sha256
    np.testing.assert_array_equal(np.stack(list(first)), np.stack(list(second)))


def test_samples_are_given_one_by_one_as_chw(tmp_path: Path) -> None:
    write_pictures(tmp_path, 4)
    for calibration in (choose_calibration(tmp_path, SPEC, count=3), choose_calibration(None, SPEC, count=3)):
        every = list(calibration)
        assert len(every) == len(calibration) == 3
        assert all(sample.shape == (3, CROP, CROP) and sample.dtype == np.float32 for sample in every)
        assert all(sample.flags.c_contiguous for sample in every)


def test_the_whole_folder_decides_the_preprocessing(tmp_path: Path) -> None:
    write_pictures(tmp_path, 3)
    picture(80, 60, 99).save(tmp_path / "large.jpg")
    (tmp_path / "val_map.txt").unlink()
    for seed in range(4):
        chosen = choose_calibration(tmp_path, SPEC, count=1, seed=seed)
        assert chosen.samples.preprocessing == "resize 40, crop 32, bilinear"


def test_too_few_images_are_all_used_with_a_note(tmp_path: Path) -> None:
    names = write_pictures(tmp_path, 3)
    shutil.copy(tmp_path / names[0], tmp_path / "same content.jpg")
    with (tmp_path / "val_map.txt").open("a", encoding="utf-8") as stream:
        stream.write("same content.jpg 0\n")
    chosen = choose_calibration(tmp_path, SPEC, count=128)
    assert len(chosen) == 3
    assert [note.code for note in chosen.notes] == ["few-calibration-images"]


def test_a_broken_image_is_replaced_and_named(tmp_path: Path) -> None:
    names = write_pictures(tmp_path, 10, size=(64, 64))
    for name in names[:4]:
        truncate(tmp_path / name)
    chosen = choose_calibration(tmp_path, SPEC, count=5)
    assert len(chosen) == 5
    assert {note.code for note in chosen.notes} <= {"bad-images"}
    few = choose_calibration(tmp_path, SPEC, count=10)
    assert len(few) == 6
    assert {bad.name for bad in few.samples.bad} == set(names[:4])
    assert [note.code for note in few.notes] == ["bad-images", "few-calibration-images"]


def test_synthetic_where_there_is_no_folder() -> None:
    info = choose_calibration(None, SPEC, count=4, seed=3).info()
    assert (info.kind, info.path, info.count, info.seed, info.images) == ("synthetic", None, 4, 3, [])
    assert choose_calibration(None, SPEC, count=5, seed=3).info().sha256 != info.sha256
    assert choose_calibration(None, SPEC, count=4, seed=4).info().sha256 != info.sha256


@pytest.mark.parametrize("count", [0, -1])
def test_no_samples_is_a_mistake(count: int) -> None:
    with pytest.raises(RequestError, match="calibration-count"):
        choose_calibration(None, SPEC, count=count)


def test_a_file_is_not_a_calibration_folder(tmp_path: Path) -> None:
    picture(32, 32).save(tmp_path / "a.jpg")
    with pytest.raises(RequestError) as caught:
        choose_calibration(tmp_path / "a.jpg", SPEC)
    assert "--calibration" in caught.value.hint


def test_evaluation_leaves_out_what_calibration_saw_by_content(tmp_path: Path) -> None:
    names = write_pictures(tmp_path / "a", 9)
    (tmp_path / "b").mkdir()
    for name in names:
        shutil.copy(tmp_path / "a" / name, tmp_path / "b" / name.replace("image", "copy"))
    used = set(choose_calibration(tmp_path / "b", SPEC, count=4).info().images)
    evaluation = prepare(list_images(tmp_path / "a", SPEC.classes, 0), SPEC)
    rest, removed = exclude_calibration(evaluation, used)
    assert (rest.count, removed) == (5, 4)
    assert not set(rest.file_hashes) & used
    assert rest.labels is not None
    by_hash = dict(zip(evaluation.file_hashes, evaluation.labels.tolist(), strict=True))  # type: ignore[union-attr]
    assert rest.labels.tolist() == [by_hash[digest] for digest in rest.file_hashes]


def test_nothing_left_to_evaluate_is_an_error(tmp_path: Path) -> None:
    write_pictures(tmp_path, 3)
    evaluation = prepare(list_images(tmp_path, SPEC.classes, 0), SPEC)
    with pytest.raises(RequestError) as caught:
        exclude_calibration(evaluation, set(evaluation.file_hashes))
    assert caught.value.code == "no-evaluation-images"
    assert "--calibration-count" in caught.value.hint


def test_nothing_used_leaves_the_set_as_it_is(tmp_path: Path) -> None:
    write_pictures(tmp_path, 3)
    evaluation = prepare(list_images(tmp_path, SPEC.classes, 0), SPEC)
    assert exclude_calibration(evaluation, {"another"}) == (evaluation, 0)
    made = synthetic(SPEC, 2, seed=0)
    assert exclude_calibration(made, set()) == (made, 0)


def test_images_to_judge_by_are_labelled_and_none_was_calibrated_on(tmp_path: Path) -> None:
    write_pictures(tmp_path, 20)
    calibration = choose_calibration(tmp_path, SPEC, count=8)
    chosen = choose_selection(tmp_path, SPEC, calibration, 7)
    assert chosen.count == 7
    assert chosen.labels is not None
    assert not set(chosen.file_hashes) & set(calibration.info().images)
    assert chosen.file_hashes == choose_selection(tmp_path, SPEC, calibration, 7).file_hashes
    assert choose_selection(tmp_path, SPEC, calibration, 100).count == 12, "as many as there are"


def test_accuracy_leaves_out_the_images_that_layers_were_chosen_by(tmp_path: Path) -> None:
    write_pictures(tmp_path, 20)
    calibration = choose_calibration(tmp_path, SPEC, count=8)
    selection = choose_selection(tmp_path, SPEC, calibration, 7)
    every = prepare(list_images(tmp_path, 10, 0), SPEC)
    kept, removed = exclude_calibration(every, set(calibration.info().images) | set(selection.file_hashes))
    assert (kept.count, removed) == (5, 15)


@pytest.mark.parametrize(("labelled", "count", "code"), [(False, 8, "no-labels"), (True, 20, "no-selection-images")])
def test_nothing_to_judge_by_is_refused(tmp_path: Path, labelled: bool, count: int, code: str) -> None:
    write_pictures(tmp_path, 20)
    if not labelled:
        (tmp_path / "val_map.txt").unlink()
    calibration = choose_calibration(tmp_path, SPEC, count=count)
    with pytest.raises(RequestError) as caught:
        choose_selection(tmp_path, SPEC, calibration)
    assert caught.value.code == code


def test_synthetic_images_have_no_labels_to_judge_by() -> None:
    with pytest.raises(RequestError) as caught:
        choose_selection(None, SPEC, choose_calibration(None, SPEC, count=4))
    assert caught.value.code == "no-labels"
