"""Preprocessed pixels on disk: one uint8 ``.npy`` a set, keyed by content, whole or absent."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from edgeq.data import synthetic
from edgeq.data.images import Image, ImageSet, Progress, decoder_message
from edgeq.data.preprocess import VERSION, Pixels, decode, input_size, is_as_is, to_pixels
from edgeq.files import atomic_path, cache_dir, sha256_file, sha256_json, write_json
from edgeq.spec.errors import EdgeqError, RequestError
from edgeq.spec.model import ModelSpec

#: The largest file of synthetic images that is kept: 1,783 of 224 x 224.
MOST_MADE_BYTES = 256 << 20


@dataclass(frozen=True)
class Undecodable:
    """The position, in the image set, of an image whose bytes can't be decoded. Its name is the set's to know."""

    row: int
    why: str


@dataclass(frozen=True)
class Cached:
    """A whole cache file. ``rows`` are the positions, in the image set, of the images that it holds, in its order."""

    path: Path
    rows: tuple[int, ...]
    bad: tuple[Undecodable, ...]


def cached_pixels(images: ImageSet, spec: ModelSpec, preprocessing: str, on_progress: Progress | None = None) -> Cached:
    """The set's pixels on disk: those of an earlier call where its file is whole, else made now.

    Raises:
        RequestError: no image can be decoded (code ``no-images``).
        EdgeqError: a file is not what it was when it was listed (code ``images-changed``), the disk is full or the
            cache folder can't be written (``disk-full``, ``cannot-write``).
    """
    path = cache_dir() / "samples" / f"{_key(images, spec, preprocessing)}.npy"
    found = _whole(path)
    if found is not None:
        if on_progress is not None:
            on_progress(len(images.entries), len(images.entries))
        return found
    return _build(path, images, spec, preprocessing, on_progress)


def made_pixels(size: tuple[int, int], seed: int, count: int) -> Path | None:
    """A file of the synthetic images 0 to ``count`` of ``seed``, uint8 ``[count, *size, 3]``: made once, as one takes 25 ms.

    None where it would take more than ``MOST_MADE_BYTES``.

    Raises:
        EdgeqError: the disk is full or the cache folder can't be written (``disk-full``, ``cannot-write``).
    """
    if count * math.prod(size) * 3 > MOST_MADE_BYTES:
        return None
    key = sha256_json([synthetic.VERSION, np.__version__, size, seed, count])[:32]
    path = cache_dir() / "samples" / f"synthetic-{key}.npy"
    if _whole(path) is None:
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            _header(stream, count, *size)
            for index in range(count):
                stream.write(synthetic.image(*size, seed, index).data)
        _describe(path, range(count), [])
    return path


def find_pixels(path: Path, shape: tuple[int, int, int]) -> tuple[int, int]:
    """Where the pixels of a cache file begin, in bytes, and how many samples uint8 ``[h, w, 3]`` follow.

    Raises:
        ValueError, OSError: the file is missing, shorter than its header says, or holds other samples.
    """
    pixels = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(pixels, np.memmap) or pixels.dtype != np.uint8 or pixels.shape[1:] != shape:
        raise ValueError(f"{path} holds {pixels.dtype} {list(pixels.shape)}, not uint8 samples of {list(shape)}")
    return pixels.offset, len(pixels)


def _key(images: ImageSet, spec: ModelSpec, preprocessing: str) -> str:
    """Names the pixels: what the images' bytes are, in which order, what is done to them, and by which decoder."""
    content = {
        "version": VERSION,
        "pillow": importlib.metadata.version("pillow"),
        "images": [entry.sha256 for entry in images.entries],
        "size": input_size(spec),
        "preprocessing": preprocessing,
    }
    return sha256_json(content)[:32]


def _whole(path: Path) -> Cached | None:
    """The cache at ``path`` where it is whole; None where it is absent, or is not what was written."""
    try:
        note = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        if path.stat().st_size != note["bytes"] or sha256_file(path) != note["sha256"]:
            return None
        return Cached(path, tuple(note["rows"]), tuple(Undecodable(**item) for item in note["bad"]))
    except (OSError, ValueError, KeyError, TypeError):
        # A cache that can't be read is one to make anew; nothing is lost but time.
        return None


def _build(path: Path, images: ImageSet, spec: ModelSpec, preprocessing: str, on_progress: Progress | None) -> Cached:
    rows: list[int] = []
    bad: list[Undecodable] = []
    height, width = input_size(spec)
    with atomic_path(path) as temporary:
        # Plain writes, not a writable memory map: on a full disk a map dies with SIGBUS, a write with an error.
        with temporary.open("wb") as stream:
            _header(stream, len(images.entries), height, width)
            for row, decoded in _decoded(images, spec, preprocessing, on_progress):
                if isinstance(decoded, Undecodable):
                    bad.append(decoded)
                else:
                    stream.write(np.ascontiguousarray(decoded).data)
                    rows.append(row)
            stream.seek(0)
            _header(stream, len(rows), height, width)
        if not rows:
            raise RequestError(
                f"no images in {images.path}",
                f"none of {len(bad)} can be decoded; the first is {images.entries[bad[0].row].name}: {bad[0].why}",
                "pass a folder that holds whole images",
                code="no-images",
            )
    _describe(path, rows, bad)
    return Cached(path, tuple(rows), tuple(bad))


def _describe(path: Path, rows: Sequence[int], bad: Sequence[Undecodable]) -> None:
    """Writes what makes the file at ``path`` whole (see ``_whole``)."""
    note = {"bytes": path.stat().st_size, "sha256": sha256_file(path), "rows": list(rows)}
    write_json(path.with_suffix(".json"), note | {"bad": [asdict(item) for item in bad]})


def _header(stream: BinaryIO, count: int, height: int, width: int) -> None:
    """Writes the header for ``count`` samples. numpy pads it so that a changed count does not change its length."""
    shape = (count, height, width, 3)
    npy.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})


def _decoded(
    images: ImageSet, spec: ModelSpec, preprocessing: str, on_progress: Progress | None
) -> Iterator[tuple[int, Pixels | Undecodable]]:
    for row, entry in enumerate(images.entries):
        yield row, _decode_entry(row, entry, spec, preprocessing)
        if on_progress is not None:
            on_progress(row + 1, len(images.entries))


def _decode_entry(row: int, entry: Image, spec: ModelSpec, preprocessing: str) -> Pixels | Undecodable:
    data = _unchanged(entry)
    try:
        return to_pixels(decode(data), spec.preprocess, as_is=is_as_is(preprocessing))
    except MemoryError:
        raise
    except Exception as error:  # Pillow's decoders raise nearly anything on bad bytes; each becomes a named bad image.
        return Undecodable(row, decoder_message(error))


def _unchanged(entry: Image) -> bytes:
    """The file's bytes; other bytes than were listed would be cached under the wrong content's name."""
    try:
        data = entry.path.read_bytes()
        why = None if hashlib.sha256(data).hexdigest() == entry.sha256 else "its bytes are not those that were listed"
    except OSError as error:
        why = error.strerror or str(error)
    if why is None:
        return data
    raise EdgeqError(
        f"{entry.path} changed while it was being used",
        why,
        "run again when nothing writes to that folder",
        code="images-changed",
    )
