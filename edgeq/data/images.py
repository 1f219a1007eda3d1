"""A folder of images → its entries, each with a label and a content hash; nothing is dropped without being named."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from edgeq.files import sha256_json
from edgeq.spec.errors import RequestError
from edgeq.spec.note import Note

VAL_MAP = "val_map.txt"
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm"})

#: Called with the number of images done and the number of all images.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Image:
    """An image whose header could be read. ``size`` is width, height; ``label`` is an index of the network's output."""

    name: str
    path: Path
    label: int | None
    sha256: str
    size: tuple[int, int]


@dataclass(frozen=True)
class BadImage:
    """An image that was asked for and can't be used; ``code`` is ``missing-image`` or ``corrupt-image``."""

    name: str
    code: str
    why: str


@dataclass(frozen=True)
class ImageSet:
    """What ``list_images`` found. ``labelling`` says where the labels come from."""

    path: Path
    entries: tuple[Image, ...]
    bad: tuple[BadImage, ...] = ()
    labelling: str = "none"
    warnings: tuple[Note, ...] = ()

    @property
    def sha256(self) -> str:
        """Over the sorted (file sha256, label) pairs: the same for the same content, whatever the files are called."""
        return content_sha256((entry.sha256, entry.label) for entry in self.entries)


@dataclass(frozen=True)
class _Asked:
    """An image file that the folder says it holds."""

    name: str
    label: int | None


def content_sha256(pairs: Iterable[tuple[str, int | None]]) -> str:
    """Hex SHA-256 over (file sha256, label) pairs, independent of their order."""
    return sha256_json(sorted([digest, label] for digest, label in pairs))


def list_images(
    folder: Path,
    classes: int,
    label_offset: int,
    *,
    labelled: bool = True,
    flag: str = "--dataset",
    on_progress: Progress | None = None,
) -> ImageSet:
    """Lists a folder with ``val_map.txt`` (``file label`` lines), a subfolder a class, or (unlabelled) images.

    Args:
        classes: Number of the network's outputs.
        label_offset: Added to each label of the dataset to give the index of the network's output.
        labelled: Where false, any folder of images will do and labels are not read.
        flag: The option that the folder was given to; hints name it.

    Raises:
        RequestError: the path is missing (code ``no-dataset``) or a file (``not-a-folder``), holds no image that can be
            read (``no-images``), or its labels are wrong (``bad-label``, ``bad-val-map``, ``class-folders``).
    """
    _check_folder(folder, flag)
    warnings: list[Note] = []
    val_map = folder / VAL_MAP
    if val_map.is_file():
        asked = read_val_map(val_map, labelled=labelled)
        labelling = VAL_MAP if labelled else "none"
    elif labelled:
        asked, labelling = _class_folders(folder, classes, label_offset, flag, warnings)
    else:
        asked, labelling = [_Asked(name, None) for name in _image_names(folder, folder)], "none"
    asked = _without_repeats(asked, folder, warnings)
    asked = [_Asked(item.name, _checked_label(item, classes, label_offset, folder)) for item in asked]
    entries, bad = _read_all(folder, asked, on_progress)
    if not entries:
        raise _no_images(folder, bad, flag)
    return ImageSet(folder, tuple(entries), tuple(bad), labelling, tuple(warnings))


def _check_folder(folder: Path, flag: str) -> None:
    if folder.is_dir():
        return
    if folder.exists():
        raise RequestError(
            f"{folder} is a file",
            f"{flag} takes a folder of images",
            f"pass its folder: {flag} {folder.parent}",
            code="not-a-folder",
        )
    raise RequestError(
        f"no folder {folder}",
        f"the path given to {flag} does not exist",
        f"pass an existing folder: {flag} DIR",
        code="no-dataset",
    )


def read_val_map(path: Path, *, labelled: bool = True) -> list[_Asked]:
    """Reads ``file label`` lines: the label is the last word, so that names may hold spaces; blank lines are skipped.

    Raises:
        RequestError: not UTF-8 text or a line without a label (code ``bad-val-map``), or a label that is no integer
            (``bad-label``); both name the line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(
            f"cannot read {path}",
            str(error),
            "it must be UTF-8 text with a `file label` line an image",
            code="bad-val-map",
        ) from error
    # Not splitlines(): it also breaks at characters that a file name may hold, such as U+2028.
    return [
        _parse_line(f"{path}, line {number}", line.strip(), labelled)
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]


def _parse_line(where: str, line: str, labelled: bool) -> _Asked:
    parts = line.rsplit(maxsplit=1)
    if len(parts) != 2:
        raise RequestError(
            f"{where}: {line!r} has no label",
            "each line is `file label`",
            "add the label after the file's name",
            code="bad-val-map",
        )
    return _Asked(parts[0], _integer(parts[1], where) if labelled else None)


def _integer(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise RequestError(
            f"{where}: label {text!r} is not an integer",
            "labels are class numbers, counted from 0",
            "write the class's number",
            code="bad-label",
        ) from error


def _checked_label(item: _Asked, classes: int, label_offset: int, folder: Path) -> int | None:
    if item.label is None:
        return None
    label = item.label + label_offset
    if 0 <= label < classes:
        return label
    offset = f" (with the model's label_offset {label_offset}: {label})" if label_offset else ""
    raise RequestError(
        f"{folder / item.name}: label {item.label}{offset} is out of range",
        f"the model has {classes} classes, 0 to {classes - 1}",
        "use a dataset with the model's own classes, or correct label_offset in model.toml",
        code="bad-label",
    )


def _visible(path: Path, root: Path) -> bool:
    return not any(part.startswith(".") for part in path.relative_to(root).parts)


def _image_names(folder: Path, root: Path) -> list[str]:
    """Names, relative to ``root``, of all image files at any depth under ``folder``, sorted."""
    found = (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    return sorted(path.relative_to(root).as_posix() for path in found if _visible(path, root))


def _class_folders(
    folder: Path, classes: int, label_offset: int, flag: str, warnings: list[Note]
) -> tuple[list[_Asked], str]:
    """Integer names are the labels; other names are labels 0, 1, … in alphabetic order, where all classes are there."""
    folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    loose = [path.name for path in sorted(folder.iterdir()) if path.suffix.lower() in SUFFIXES and path.is_file()]
    if not folders and loose:
        raise RequestError(
            f"{folder} has images but no labels",
            f"there is neither {VAL_MAP} nor a subfolder a class",
            f"add {VAL_MAP} with a `file label` line an image",
            code="no-labels",
        )
    if loose:
        warnings.append(
            Note(
                code="loose-images",
                text=f"{len(loose)} images beside the class folders of {folder} have no label: left out",
                hint=f"move them into a class folder, or write {VAL_MAP}",
            )
        )
    if all(path.name.isdecimal() for path in folders):
        labels, labelling = [int(path.name) for path in folders], "folder names are class numbers"
    else:
        expected = classes - label_offset
        if folders and len(folders) != expected:
            # A subset's alphabetic order would number its classes from 0: every label wrong, and no sign of it.
            raise RequestError(
                f"{folder} has {len(folders)} class folders where the model has {expected} classes",
                "folder names give the labels by alphabetic order only where every class has a folder",
                f"name the folders by class number, or write {VAL_MAP}: {flag} then reads labels from there",
                code="class-folders",
            )
        labels, labelling = list(range(len(folders))), "class folders in alphabetic order"
    asked = [
        _Asked(name, label) for path, label in zip(folders, labels, strict=True) for name in _image_names(path, folder)
    ]
    return asked, labelling


def _without_repeats(asked: list[_Asked], folder: Path, warnings: list[Note]) -> list[_Asked]:
    first: dict[str, _Asked] = {}
    repeats: list[str] = []
    for item in asked:
        kept = first.setdefault(item.name, item)
        if kept is item:
            continue
        if kept.label != item.label:
            raise RequestError(
                f"{folder / VAL_MAP}: {item.name} has two labels",
                f"{kept.label} and {item.label}",
                "keep the line that is right",
                code="bad-label",
            )
        repeats.append(item.name)
    if repeats:
        warnings.append(
            Note(
                code="duplicate-images",
                text=f"{len(repeats)} images are listed twice in {folder / VAL_MAP} ({_some(repeats)}): counted once",
                hint="remove the repeated lines",
            )
        )
    return list(first.values())


def _some(names: list[str], limit: int = 3) -> str:
    return ", ".join(names[:limit]) + (", …" if len(names) > limit else "")


def _read_all(folder: Path, asked: list[_Asked], on_progress: Progress | None) -> tuple[list[Image], list[BadImage]]:
    entries: list[Image] = []
    bad: list[BadImage] = []
    for done, item in enumerate(asked, start=1):
        found = _read(folder / item.name, item)
        if isinstance(found, Image):
            entries.append(found)
        else:
            bad.append(found)
        if on_progress is not None:
            on_progress(done, len(asked))
    return entries, bad


def _read(path: Path, item: _Asked) -> Image | BadImage:
    """Hashes the file's bytes and reads its header; the pixels are decoded when the samples are made."""
    import PIL.Image

    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return BadImage(item.name, "missing-image", "no such file")
    except OSError as error:
        return BadImage(item.name, "missing-image", error.strerror or str(error))
    try:
        with PIL.Image.open(io.BytesIO(data)) as header:
            size = header.size
    except MemoryError:
        raise
    except Exception as error:  # Pillow's decoders raise nearly anything on bad bytes; each becomes a named bad image.
        return BadImage(item.name, "corrupt-image", decoder_message(error))
    return Image(item.name, path, item.label, hashlib.sha256(data).hexdigest(), size)


def decoder_message(error: Exception) -> str:
    """One line of a decoder's error, without the address of the buffer that Pillow puts into it."""
    text = " ".join(str(error).split()) or type(error).__name__
    return "not an image that Pillow can identify" if "cannot identify image file" in text else text


def _no_images(folder: Path, bad: list[BadImage], flag: str) -> RequestError:
    if bad:
        why = f"none of the {len(bad)} images can be read; the first is {bad[0].name}: {bad[0].why}"
    else:
        why = f"no file there ends in {', '.join(sorted(SUFFIXES))}, and {VAL_MAP} names none"
    return RequestError(f"no images in {folder}", why, f"pass a folder that holds images: {flag} DIR", code="no-images")
