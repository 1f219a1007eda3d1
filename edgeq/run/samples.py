"""The samples that a model's cells are fed with: the dataset's images, or synthetic ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgeq.artifact import Manifest
from edgeq.data.calibration import exclude_calibration
from edgeq.data.images import list_images
from edgeq.data.samples import kept_synthetic, prepare
from edgeq.spec.model import NO_MODEL_SPEC, load_model
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
    """Preprocesses the dataset (cached), leaving out every image that any of the artifacts was made with: calibrated
    on, or judged by while layers to keep in float were searched for.

    All artifacts of a model are then judged on the same images.

    Raises:
        RequestError: the dataset is unusable, or no image is left.
    """
    spec = NO_MODEL_SPEC if model == NO_MODEL else load_model(models_dir, model)
    if dataset is None or model == NO_MODEL:
        made = kept_synthetic(spec, profile.resident_samples, seed + SEED_OFFSET)
        return ModelSamples(made.to_spec(), made.count, made.sha256, warnings=list(made.warnings))
    images = list_images(dataset, spec.classes, spec.label_offset, on_progress=on_progress)
    seen = {digest for manifest in manifests for digest in manifest.seen_images}
    samples, excluded = exclude_calibration(prepare(images, spec, on_progress), seen)
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
        str(dataset),
        described["preprocessing"],
        bad,
        excluded,
        warnings,
    )
