"""Samples that a session takes, read one at a time from pixels on disk or made from a seed.

Light: a worker opens a set with numpy alone; Pillow is imported only where images are decoded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from edgeq.data import synthetic as _synthetic
from edgeq.data.cache import cached_pixels, find_pixels, made_pixels
from edgeq.data.images import BadImage, ImageSet, Progress, content_sha256
from edgeq.data.layout import Layout
from edgeq.data.preprocess import Floats, Pixels, input_size, normalize, rule
from edgeq.files import sha256_json
from edgeq.spec.errors import EdgeqError
from edgeq.spec.model import ModelSpec, Preprocess
from edgeq.spec.note import Note

Labels = npt.NDArray[np.int64]
Indices = Sequence[int] | npt.NDArray[np.int64]


class PixelSource(Protocol):
    """Where pixels come from; ``row`` counts the source's own samples."""

    def pixels(self, row: int) -> Pixels:
        """uint8 ``[h, w, 3]``."""
        ...

    def to_spec(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class FileSource:
    """A cache file of ``rows`` samples of ``size`` (height, width), the first ``start`` bytes from its beginning.

    Read, not mapped: pages of a map count as the process's memory, and would add up to the whole set in an accuracy run.
    """

    path: Path
    start: int
    rows: int
    size: tuple[int, int]

    def pixels(self, row: int) -> Pixels:
        """uint8 ``[h, w, 3]``. Raises ``EdgeqError`` (code ``no-samples``) where the file is gone or cut short."""
        shape = (*self.size, 3)
        length = math.prod(shape)
        try:
            return np.fromfile(self.path, np.uint8, length, offset=self.start + row * length).reshape(shape)
        except (OSError, ValueError) as error:
            raise _no_samples(self.path, str(error)) from error

    def to_spec(self) -> dict[str, Any]:
        return {"file": str(self.path), "rows": self.rows}


@dataclass(frozen=True)
class SyntheticSource:
    """Images made from a seed, each without the others; taken from ``kept`` where they were made before."""

    size: tuple[int, int]
    seed: int
    kept: FileSource | None = None

    def pixels(self, row: int) -> Pixels:
        """uint8 ``[h, w, 3]``. Raises ``EdgeqError`` as ``FileSource.pixels`` does."""
        return _synthetic.image(*self.size, self.seed, row) if self.kept is None else self.kept.pixels(row)

    def identity(self) -> dict[str, Any]:
        """What the pixels follow from."""
        return {"seed": self.seed, "version": _synthetic.VERSION}

    def to_spec(self) -> dict[str, Any]:
        return self.identity() | ({} if self.kept is None else self.kept.to_spec())


@dataclass(frozen=True, eq=False)
class SampleSet:
    """Preprocessed samples in a fixed order; ``rows`` maps a sample's index to its place in the source.

    ``labels`` are indices of the network's output, int64 ``[count]``, or None. ``file_hashes`` are the SHA-256 of the
    image files, in the order of the samples; empty for synthetic samples.
    """

    kind: Literal["folder", "synthetic"]
    path: str
    preprocess: Preprocess
    size: tuple[int, int]
    preprocessing: str
    source: PixelSource
    rows: Sequence[int]
    labels: Labels | None = None
    labelling: str = "none"
    file_hashes: tuple[str, ...] = ()
    bad: tuple[BadImage, ...] = ()
    warnings: tuple[Note, ...] = ()

    @property
    def count(self) -> int:
        return len(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Floats]:
        """Each sample in turn, float32 ``[3, h, w]``, one in memory at a time."""
        for index in range(self.count):
            yield self.load([index], "NCHW")[0]

    def load(self, indices: Indices, layout: Layout) -> Floats:
        """The samples at ``indices`` as float32: ``[n, 3, h, w]`` for ``NCHW``, ``[n, h, w, 3]`` for ``NHWC``."""
        height, width = self.size
        shape = (3, height, width) if layout == "NCHW" else (height, width, 3)
        out = np.empty((len(indices), *shape), dtype=np.float32)
        self.load_into(out, indices, layout)
        return out

    def load_into(self, out: Floats, indices: Indices, layout: Layout) -> None:
        """Writes the samples at ``indices`` into ``out``, of the shape that ``load`` returns."""
        if len(out) != len(indices):
            raise ValueError(f"out holds {len(out)} samples, {len(indices)} were asked for")
        for position, index in enumerate(indices):
            pixels = self.source.pixels(self.rows[index])
            normalize(pixels[None], self.preprocess, layout, out[position : position + 1])

    def subset(self, keep: Indices) -> SampleSet:
        """The samples at ``keep``, in that order, over the same source."""
        chosen = [int(index) for index in keep]
        return replace(
            self,
            rows=tuple(self.rows[index] for index in chosen),
            labels=None if self.labels is None else self.labels[chosen],
            file_hashes=tuple(self.file_hashes[index] for index in chosen) if self.file_hashes else (),
        )

    @property
    def sha256(self) -> str:
        """Of the samples' content and labels, whatever their order and names."""
        if isinstance(self.source, SyntheticSource):
            return sha256_json([self.source.identity(), self.size, sorted(self.rows)])
        labels = [None] * self.count if self.labels is None else self.labels.tolist()
        return content_sha256(zip(self.file_hashes, labels, strict=True))

    def describe(self) -> dict[str, Any]:
        """What a record says of the set: JSON values, with at most 20 names of bad images."""
        return {
            "kind": self.kind,
            "path": self.path,
            "count": self.count,
            "sha256": self.sha256,
            "labels": self.labelling,
            "preprocessing": self.preprocessing,
            "bad": len(self.bad),
            "bad_images": [item.name for item in self.bad[:20]],
        }

    def to_spec(self) -> dict[str, Any]:
        """JSON values from which ``open_samples`` opens the same set in another process."""
        return {
            "kind": self.kind,
            "path": self.path,
            "preprocess": self.preprocess.model_dump(mode="json"),
            "size": list(self.size),
            "preprocessing": self.preprocessing,
            "source": self.source.to_spec(),
            "rows": _spans(self.rows),
            "labels": None if self.labels is None else self.labels.tolist(),
            "labelling": self.labelling,
            "file_hashes": list(self.file_hashes),
            "bad": [asdict(item) for item in self.bad],
            "warnings": [item.model_dump() for item in self.warnings],
        }


def prepare(
    images: ImageSet, spec: ModelSpec, on_progress: Progress | None = None, *, preprocessing: str | None = None
) -> SampleSet:
    """Makes samples of images, or opens those made before of the same images by the same rule.

    An image that can't be decoded to its end is left out, named in ``bad`` and told in ``warnings``.

    Args:
        preprocessing: What ``preprocess.rule`` said of the set that ``images`` were chosen from; by default of
            ``images``.

    Raises:
        RequestError: no image can be decoded (code ``no-images``).
        EdgeqError: a file changed since it was listed (code ``images-changed``), or the cache can't be written
            (``disk-full``, ``cannot-write``).
    """
    how = rule(images, spec) if preprocessing is None else preprocessing
    cached = cached_pixels(images, spec, how, on_progress)
    entries = [images.entries[row] for row in cached.rows]
    undecodable = (BadImage(images.entries[item.row].name, "corrupt-image", item.why) for item in cached.bad)
    bad = (*images.bad, *undecodable)
    numbers = [entry.label for entry in entries if entry.label is not None]
    labelled = len(numbers) == len(entries)
    return SampleSet(
        kind="folder",
        path=str(images.path),
        preprocess=spec.preprocess,
        size=input_size(spec),
        preprocessing=how,
        source=_open_file(cached.path, input_size(spec), len(cached.rows)),
        rows=range(len(entries)),
        labels=np.array(numbers, dtype=np.int64) if labelled else None,
        labelling=images.labelling,
        file_hashes=tuple(entry.sha256 for entry in entries),
        bad=bad,
        warnings=(*images.warnings, *_bad_note(images.path, bad, len(entries))),
    )


def synthetic(spec: ModelSpec, count: int, seed: int) -> SampleSet:
    """``count`` seeded images without labels; sample i is the same whatever the count."""
    return SampleSet(
        kind="synthetic",
        path=f"synthetic, seed {seed}",
        preprocess=spec.preprocess,
        size=input_size(spec),
        preprocessing=f"synthetic images of {spec.preprocess.crop}x{spec.preprocess.crop}",
        source=SyntheticSource(input_size(spec), seed),
        rows=range(count),
    )


def kept_synthetic(spec: ModelSpec, count: int, seed: int) -> SampleSet:
    """``synthetic`` with the pixels on disk, made at the first call. Nobody else need then make them.

    Where the cache can't be written, each sample is made when it is needed, and ``warnings`` hold ``not-kept``.
    """
    made, size = synthetic(spec, count, seed), input_size(spec)
    try:
        path = made_pixels(size, seed, count)
    except EdgeqError as error:
        text = f"synthetic samples could not be kept, and are made anew by each process: {error.what}: {error.why}"
        return replace(made, warnings=(Note(code="not-kept", text=text, hint=error.hint),))
    if path is None:
        return made
    return replace(made, source=SyntheticSource(size, seed, _open_file(path, size, count)))


def open_samples(spec: dict[str, Any]) -> SampleSet:
    """Opens the set that ``to_spec`` described. Does not import Pillow.

    Raises:
        EdgeqError: its cache file is gone or is not whole (code ``no-samples``).
    """
    height, width = spec["size"]
    origin = spec["source"]
    source: PixelSource
    if spec["kind"] == "synthetic":
        _check_version(origin["version"])
        kept = _open_file(Path(origin["file"]), (height, width), origin["rows"]) if "file" in origin else None
        source = SyntheticSource((height, width), origin["seed"], kept)
    else:
        source = _open_file(Path(origin["file"]), (height, width), origin["rows"])
    return SampleSet(
        kind=spec["kind"],
        path=spec["path"],
        preprocess=Preprocess.model_validate(spec["preprocess"]),
        size=(height, width),
        preprocessing=spec["preprocessing"],
        source=source,
        rows=_rows(spec["rows"]),
        labels=None if spec["labels"] is None else np.array(spec["labels"], dtype=np.int64),
        labelling=spec["labelling"],
        file_hashes=tuple(spec["file_hashes"]),
        bad=tuple(BadImage(**item) for item in spec["bad"]),
        warnings=tuple(Note.model_validate(item) for item in spec["warnings"]),
    )


def _spans(rows: Sequence[int]) -> list[list[int]]:
    """``[first, count]`` of each stretch of consecutive rows: a few, where a list of 50,000 rows would take 2 MB."""
    found: list[list[int]] = []
    for row in rows:
        if found and row == sum(found[-1]):
            found[-1][1] += 1
        else:
            found.append([row, 1])
    return found


def _rows(spans: Sequence[Sequence[int]]) -> Sequence[int]:
    if len(spans) == 1:
        return range(spans[0][0], sum(spans[0]))
    return tuple(row for first, count in spans for row in range(first, first + count))


def _open_file(path: Path, size: tuple[int, int], rows: int) -> FileSource:
    try:
        start, count = find_pixels(path, (*size, 3))
        if count != rows:
            raise ValueError(f"{count} samples where {rows} were prepared")
    except (OSError, ValueError) as error:
        raise _no_samples(path, str(error)) from error
    return FileSource(path, start, rows, size)


def _no_samples(path: Path, why: str) -> EdgeqError:
    return EdgeqError(
        f"cannot read the preprocessed samples {path}",
        why,
        "run the same command again: it prepares them anew",
        code="no-samples",
    )


def _check_version(version: int) -> None:
    if version != _synthetic.VERSION:
        raise EdgeqError(
            f"synthetic samples of version {version}",
            f"this edgeq makes version {_synthetic.VERSION}",
            "run the whole command with one version of edgeq",
            code="no-samples",
        )


def _bad_note(path: Path, bad: tuple[BadImage, ...], good: int) -> list[Note]:
    if not bad:
        return []
    named = "; ".join(f"{item.name}: {item.why}" for item in bad[:3]) + ("; …" if len(bad) > 3 else "")
    return [
        Note(
            code="bad-images",
            text=f"{len(bad)} of {len(bad) + good} images of {path} are missing or corrupt and were left out ({named})",
            hint="restore or remove them; figures of accuracy are over the others",
        )
    ]
