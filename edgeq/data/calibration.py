"""The calibration set: a seeded choice of a folder's images, or synthetic; kept apart from the evaluation images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from edgeq.artifact import CalibrationInfo
from edgeq.data import synthetic as _synthetic
from edgeq.data.images import BadImage, Image, ImageSet, Progress, list_images
from edgeq.data.preprocess import VERSION, Floats, rule
from edgeq.data.samples import SampleSet, kept_synthetic, prepare
from edgeq.files import sha256_json
from edgeq.spec.errors import RequestError
from edgeq.spec.model import ModelSpec
from edgeq.spec.note import Note


@dataclass(frozen=True, eq=False)
class CalibrationSet:
    """Calibration samples: iterating gives float32 ``[3, h, w]``, one in memory at a time."""

    samples: SampleSet
    seed: int
    notes: tuple[Note, ...] = ()

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Floats]:
        return iter(self.samples)

    def info(self) -> CalibrationInfo:
        """What manifests say of the set. ``sha256`` is over what the samples are made of, and how."""
        samples = self.samples
        if samples.kind == "synthetic":
            # The mean and standard deviation stand in the key of an artifact with the model's spec.
            content = ["synthetic", _synthetic.VERSION, self.seed, len(samples), samples.size]
        else:
            content = ["folder", VERSION, list(samples.file_hashes), samples.preprocessing, samples.size]
        return CalibrationInfo(
            kind=samples.kind,
            path=None if samples.kind == "synthetic" else samples.path,
            count=len(samples),
            seed=self.seed,
            sha256=sha256_json(content),
            images=list(samples.file_hashes),
        )


def choose_calibration(
    folder: Path | None,
    spec: ModelSpec,
    count: int = 128,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> CalibrationSet:
    """Chooses ``count`` images of ``folder`` by ``seed``, or makes as many synthetic ones where it is None.

    The choice hangs on the images' content alone: names, labels and the order in the folder do not change it. The same
    content is chosen once. An image that can't be decoded is replaced by the next of the seeded order, with a note.

    Raises:
        RequestError: ``count`` is not positive (code ``bad-value``), or the folder can't be used (see ``list_images``).
        EdgeqError: the cache can't be written (code ``disk-full`` or ``cannot-write``).
    """
    if count < 1:
        raise RequestError(
            f"--calibration-count {count}",
            "quantization needs at least one sample",
            "pass --calibration-count 128",
            code="bad-value",
        )
    if folder is None:
        made = kept_synthetic(spec, count, seed)
        return CalibrationSet(made, seed, made.warnings)
    images = list_images(folder, spec.classes, spec.label_offset, labelled=False, flag="--calibration")
    samples = _prepare_first(images, _seeded_order(images, seed), count, spec, on_progress)
    notes = list(samples.warnings)
    if samples.count < count:
        notes.append(
            Note(
                code="few-calibration-images",
                text=f"{folder} has {samples.count} different images where {count} were asked for: all are used",
                hint="add images, or pass --calibration-count",
            )
        )
    return CalibrationSet(samples, seed, tuple(notes))


def choose_selection(
    folder: Path | None,
    spec: ModelSpec,
    calibration: CalibrationSet,
    count: int = 300,
    on_progress: Progress | None = None,
) -> SampleSet:
    """Chooses labelled images of ``folder`` to judge artifacts by while they are made; none was calibrated on.

    They are the ``count`` that follow the calibration images in the same seeded order, or as many as there are.

    Raises:
        RequestError: no folder (code ``no-labels``), a folder without labels or with wrong ones (see ``list_images``),
            or no image beside those that were calibrated on (``no-selection-images``).
        EdgeqError: as ``choose_calibration``.
    """
    if folder is None:
        raise RequestError(
            "--max-top1-drop needs labelled images",
            "the drop is measured on them, and synthetic images have no labels",
            "pass --calibration DIR with labels: val_map.txt, or a subfolder a class",
            code="no-labels",
        )
    images = list_images(folder, spec.classes, spec.label_offset, flag="--calibration")
    used = set(calibration.samples.file_hashes)
    order = [entry for entry in _seeded_order(images, calibration.seed) if entry.sha256 not in used]
    if not order:
        raise RequestError(
            f"no image of {folder} is left to judge by",
            f"all {len(used)} were used for calibration",
            "pass a smaller --calibration-count, or a folder with more images",
            code="no-selection-images",
        )
    return _prepare_first(images, order, count, spec, on_progress)


def _seeded_order(images: ImageSet, seed: int) -> list[Image]:
    """By a hash of seed and content: an image that is added to the folder or leaves it moves no other one."""
    unique = {entry.sha256: entry for entry in images.entries}
    return [unique[digest] for digest in sorted(unique, key=lambda digest: sha256_json([seed, digest]))]


def _prepare_first(
    images: ImageSet, order: list[Image], count: int, spec: ModelSpec, on_progress: Progress | None
) -> SampleSet:
    """The first ``count`` of ``order`` that can be decoded."""
    how = rule(images, spec)
    bad: tuple[BadImage, ...] = images.bad
    while True:
        chosen = replace(images, entries=tuple(order[:count]), bad=bad)
        samples = prepare(chosen, spec, on_progress, preprocessing=how)
        found = {item.name for item in samples.bad[len(bad) :]}
        if not found or len(order) <= count:
            return samples
        bad = samples.bad
        order = [entry for entry in order if entry.name not in found]


def exclude_calibration(samples: SampleSet, hashes: set[str]) -> tuple[SampleSet, int]:
    """The samples whose image file (by content) is not in ``hashes``, and how many were taken out.

    Raises:
        RequestError: none remain (code ``no-evaluation-images``).
    """
    if samples.kind == "synthetic":
        return samples, 0
    keep = [index for index, digest in enumerate(samples.file_hashes) if digest not in hashes]
    removed = samples.count - len(keep)
    if not keep:
        raise RequestError(
            f"no evaluation images left in {samples.path}",
            f"all {removed} were used for calibration, and accuracy on those would flatter the quantized models",
            "use other images for one of the two, or export with a smaller --calibration-count",
            code="no-evaluation-images",
        )
    return (samples.subset(keep) if removed else samples), removed
