"""The samples that a model's cells are fed with: the dataset's images, or synthetic ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgeq.artifact import Manifest
from edgeq.data.calibration import exclude_calibration
from edgeq.data.images import list_images
from edgeq.data.packed import is_packed, open_packed
from edgeq.data.samples import SampleSet, kept_synthetic, prepare
from edgeq.spec.model import NO_MODEL_SPEC, ModelSpec, load_model
from edgeq.spec.names import NO_MODEL
from edgeq.spec.note import Note
from edgeq.spec.profile import Profile

#: Synthetic samples that are timed are not the ones that synthetic calibration saw with the same seed.
SEED_OFFSET = 2_000_003


@dataclass(frozen=True)
class ModelSamples:
    """What a worker needs to open the samples, and what is to be said of them."""

    spec: dict[str, Any]
    """For ``edgeq.data.samples.open_samples``."""
    count: int
    sha256: str
    """Of the samples' content, labels and order-free: a run is resumed only with the same."""
    dataset: str | None = None
    preprocessing: str = "synthetic"
    bad_images: list[str] = field(default_factory=list)
    excluded: int = 0
    warnings: list[Note] = field(default_factory=list)


def samples_for(
    model: str,
    models_dir: Path,
    profile: Profile,
    dataset: Path | None,
    seed: int,
    manifests: Sequence[Manifest],
    on_progress: Callable[[int, int], None],
) -> ModelSamples:
    """Preprocesses the dataset (cached), or opens what was packed of it, leaving out every image that any of the artifacts
    was made with: calibrated on, or judged by while layers to keep in float were searched for.

    All artifacts of a model are then judged on the same images.

    Raises:
        RequestError: the dataset is unusable, or no image is left.
    """
    spec = NO_MODEL_SPEC if model == NO_MODEL else load_model(models_dir, model)
    if dataset is None or model == NO_MODEL:
        made = timed_synthetic(spec, profile, seed)
        return ModelSamples(made.to_spec(), made.count, made.sha256, warnings=list(made.warnings))
    seen = {digest for manifest in manifests for digest in manifest.seen_images}
    samples, excluded = exclude_calibration(dataset_samples(spec, dataset, on_progress), seen)
    described = samples.describe()
    bad = [image.name for image in samples.bad]
    warnings = list(samples.warnings)
    if profile.accuracy_samples and samples.count < profile.accuracy_samples:
        warnings.append(
            Note(
                code="few-accuracy-images",
                text=f"accuracy is measured on {samples.count} images, where the rules of "
                f"profile {profile.name} ask for {profile.accuracy_samples}",
                hint="use the whole validation set",
            )
        )
    # Of no use to a worker, and 5 MB of its memory, and of each cell's job.json, with 50,000 images.
    described_to_worker = samples.to_spec() | {"file_hashes": []}
    return ModelSamples(
        described_to_worker,
        samples.count,
        samples.sha256,
        samples.path,
        described["preprocessing"],
        bad,
        excluded,
        warnings,
    )


def timed_synthetic(spec: ModelSpec, profile: Profile, seed: int) -> SampleSet:
    """The samples that are timed without a dataset: as many as ``profile`` keeps in memory, made once."""
    return kept_synthetic(spec, profile.resident_samples, seed + SEED_OFFSET)


def dataset_samples(spec: ModelSpec, dataset: Path, on_progress: Callable[[int, int], None]) -> SampleSet:
    """All samples of a folder of images, or of a folder that a bundle brought (``edgeq.data.packed``).

    Raises:
        RequestError: the dataset is unusable.
        EdgeqError: packed samples are damaged, or the cache can't be written.
    """
    if is_packed(dataset):
        return open_packed(dataset, spec)
    return prepare(list_images(dataset, spec.classes, spec.label_offset, on_progress=on_progress), spec, on_progress)
