from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeq.data.images import list_images, read_val_map
from edgeq.spec.errors import RequestError
from tests.data.pictures import picture, truncate, write_pictures


def test_a_val_map_gives_names_labels_sizes_and_hashes(tmp_path: Path) -> None:
    names = write_pictures(tmp_path, 3, size=(50, 40))
    images = list_images(tmp_path, 10, 0)
    assert [(entry.name, entry.label, entry.size) for entry in images.entries] == [
        (name, label, (50, 40)) for label, name in enumerate(names)
    ]
    assert images.entries[0].sha256 == hashlib.sha256((tmp_path / names[0]).read_bytes()).hexdigest()
    assert images.labelling == "val_map.txt"
    assert images.bad == ()
    assert images.warnings == ()


def test_the_label_offset_is_added(tmp_path: Path) -> None:
    write_pictures(tmp_path, 2)
    assert [entry.label for entry in list_images(tmp_path, 11, 1).entries] == [1, 2]


def test_missing_and_corrupt_images_are_named(tmp_path: Path) -> None:
    names = write_pictures(tmp_path, 4)
    (tmp_path / names[1]).unlink()
    (tmp_path / names[2]).write_bytes(b"not a picture")
    images = list_images(tmp_path, 10, 0)
    assert [entry.name for entry in images.entries] == [names[0], names[3]]
    assert [(bad.name, bad.code) for bad in images.bad] == [(names[1], "missing-image"), (names[2], "corrupt-image")]
    assert "0x" not in images.bad[1].why


def test_an_image_whose_pixels_are_cut_off_still_has_a_header(tmp_path: Path) -> None:
    names = write_pictures(tmp_path, 2, size=(300, 300))
    truncate(tmp_path / names[0])
    assert len(list_images(tmp_path, 10, 0).entries) == 2


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("a.jpg 10\n", "bad-label", "0 to 9"),
        ("a.jpg -1\n", "bad-label", "out of range"),
        ("a.jpg cat\n", "bad-label", "line 1"),
        ("\n\na.jpg 1.5\n", "bad-label", "line 3"),
        ("a.jpg\n", "bad-val-map", "no label"),
        ("a.jpg 1\na.jpg 2\n", "bad-label", "two labels"),
        ("", "no-images", "no images"),
        ("gone.jpg 1\n", "no-images", "gone.jpg"),
    ],
)
def test_a_wrong_val_map_is_the_request_s_mistake(tmp_path: Path, text: str, code: str, says: str) -> None:
    picture(32, 32).save(tmp_path / "a.jpg")
    (tmp_path / "val_map.txt").write_text(text, encoding="utf-8")
    with pytest.raises(RequestError) as caught:
        list_images(tmp_path, 10, 0)
    assert caught.value.code == code
    assert caught.value.exit_code == 2
    assert says in f"{caught.value.what} {caught.value.why}"


def test_an_image_listed_twice_counts_once_with_a_warning(tmp_path: Path) -> None:
    (name,) = write_pictures(tmp_path, 1)
    with (tmp_path / "val_map.txt").open("a", encoding="utf-8") as stream:
        stream.write(f"{name} 0\n")
    images = list_images(tmp_path, 10, 0)
    assert len(images.entries) == 1
    assert [note.code for note in images.warnings] == ["duplicate-images"]


def test_the_path_must_be_a_folder_and_the_hint_names_the_option(tmp_path: Path) -> None:
    file = tmp_path / "a.jpg"
    picture(32, 32).save(file)
    with pytest.raises(RequestError) as caught:
        list_images(file, 10, 0, flag="--calibration")
    assert caught.value.code == "not-a-folder"
    assert f"--calibration {tmp_path}" in caught.value.hint
    with pytest.raises(RequestError) as caught:
        list_images(tmp_path / "gone", 10, 0)
    assert caught.value.code == "no-dataset"


def test_integer_folders_are_labels_and_others_need_every_class(tmp_path: Path) -> None:
    for name in ("7", "003"):
        (tmp_path / name).mkdir()
        picture(32, 32, int(name)).save(tmp_path / name / "a.PNG")
    images = list_images(tmp_path, 10, 0)
    assert {entry.name: entry.label for entry in images.entries} == {"003/a.PNG": 3, "7/a.PNG": 7}

    (tmp_path / "cat").mkdir()
    with pytest.raises(RequestError) as caught:
        list_images(tmp_path, 10, 0)
    assert caught.value.code == "class-folders"
    images = list_images(tmp_path, 3, 0)
    assert {entry.name: entry.label for entry in images.entries} == {"003/a.PNG": 0, "7/a.PNG": 1}
    assert images.labelling == "class folders in alphabetic order"


def test_images_beside_class_folders_and_hidden_files(tmp_path: Path) -> None:
    for folder in ("0", ".cache"):
        (tmp_path / folder).mkdir()
        picture(32, 32).save(tmp_path / folder / "a.jpg")
    picture(32, 32).save(tmp_path / "loose.jpg")
    images = list_images(tmp_path, 10, 0)
    assert [entry.name for entry in images.entries] == ["0/a.jpg"]
    assert [note.code for note in images.warnings] == ["loose-images"]


def test_a_flat_folder_will_do_where_no_labels_are_needed(tmp_path: Path) -> None:
    for index in range(2):
        picture(32, 32, index).save(tmp_path / f"{index}.jpg")
    images = list_images(tmp_path, 10, 0, labelled=False)
    assert [entry.label for entry in images.entries] == [None, None]
    with pytest.raises(RequestError) as caught:
        list_images(tmp_path, 10, 0)
    assert caught.value.code == "no-labels"


def test_labels_are_not_read_where_none_are_needed(tmp_path: Path) -> None:
    picture(32, 32).save(tmp_path / "a.jpg")
    (tmp_path / "val_map.txt").write_text("a.jpg 4711\n", encoding="utf-8")
    assert list_images(tmp_path, 10, 0, labelled=False).entries[0].label is None


def test_the_set_s_hash_depends_on_content_and_labels_alone(tmp_path: Path) -> None:
    write_pictures(tmp_path / "a", 3)
    names = write_pictures(tmp_path / "b", 3)
    first = list_images(tmp_path / "a", 10, 0).sha256
    (tmp_path / "b" / names[0]).rename(tmp_path / "b" / "z.jpg")
    (tmp_path / "b" / "val_map.txt").write_text(f"{names[2]} 2\nz.jpg 0\n{names[1]} 1\n", encoding="utf-8")
    assert list_images(tmp_path / "b", 10, 0).sha256 == first
    (tmp_path / "b" / "val_map.txt").write_text(f"{names[2]} 2\nz.jpg 0\n{names[1]} 5\n", encoding="utf-8")
    assert list_images(tmp_path / "b", 10, 0).sha256 != first


def test_progress_is_told(tmp_path: Path) -> None:
    write_pictures(tmp_path, 3)
    seen: list[tuple[int, int]] = []
    list_images(tmp_path, 10, 0, on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


_NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufeff"), min_size=1).filter(
    lambda name: name == name.strip()
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(_NAMES, st.integers()), max_size=8), st.sampled_from(["\n", "\r\n", "\n\n", " \n"]))
def test_any_name_and_label_come_back(tmp_path: Path, pairs: list[tuple[str, int]], end: str) -> None:
    path = tmp_path / "val_map.txt"
    path.write_bytes("".join(f"{name} {label}{end}" for name, label in pairs).encode())
    assert [(item.name, item.label) for item in read_val_map(path)] == pairs


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_in_words(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "val_map.txt"
    path.write_bytes(data)
    code = None
    try:
        read_val_map(path)
    except RequestError as error:
        code = error.code
    assert code in (None, "bad-val-map", "bad-label")
