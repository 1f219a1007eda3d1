"""What goes into a bundle: each file by the name that it has on the device, and the part that it belongs to."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgeq.artifact import Manifest, find_manifest, read_manifest, verify
from edgeq.data.packed import describe_packed, packed_name
from edgeq.data.samples import FileSource, SampleSet, SyntheticSource
from edgeq.run.samples import dataset_samples, timed_synthetic
from edgeq.spec.errors import EdgeqError, RequestError
from edgeq.spec.model import NO_MODEL_SPEC, load_model
from edgeq.spec.note import Note
from edgeq.spec.profile import load_profile

#: Told of a model whose samples are prepared: its name, how many are, of how many.
Progress = Callable[[str, int, int], None]

#: Where ``run.sh`` has edgeq look for what it keeps, in the bundle's folder.
CACHE = "cache"
#: The folder to pass to ``edgeq run --dataset`` on the device.
SAMPLES = "samples"
_SPEC = "model.toml"


@dataclass(frozen=True)
class BundleRequest:
    """Everything that ``edgeq bundle`` was asked for."""

    models_dir: Path
    scenarios_dir: Path
    models: Sequence[str]
    backends: Sequence[str]
    schemes: Sequence[str]
    target: str
    profiles: Sequence[str]
    dataset: Path | None = None
    seed: int = 0
    wheels: Sequence[str] = ()
    """Pythons, such as ``3.11``, for which everything that is installed is packed, too."""

    @property
    def name(self) -> str:
        return f"edgeq-{self.target}"

    @property
    def machine(self) -> str:
        """As ``uname -m`` says it on the device."""
        return "aarch64" if self.target == "aarch64" else "x86_64"


@dataclass(frozen=True)
class Item:
    """A file to pack: a file here, or bytes."""

    name: str
    part: str
    source: Path | bytes
    mode: int = 0o644

    @property
    def size(self) -> int:
        return len(self.source) if isinstance(self.source, bytes) else self.source.stat().st_size


@dataclass
class Contents:
    """The files by name, each once, in the order in which they are packed; and what there is to say of them."""

    items: dict[str, Item] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    def add(self, name: str, part: str, source: Path | bytes, mode: int = 0o644) -> None:
        self.items.setdefault(name, Item(name, part, source, mode))


def add_artifacts(contents: Contents, request: BundleRequest) -> tuple[str, ...]:
    """Specs and, of each artifact asked for, what a run on the device would choose; failed ones' manifests, too, so that
    the device's records say why. Returns the models that have any; the others are left out, with a note.

    Raises:
        RequestError: nothing is exported (code ``no-artifact``), or a model's artifacts come from different weights.
        EdgeqError: an artifact is damaged.
    """
    packed = tuple(model for model in request.models if _add_model(contents, request, model))
    if not packed:
        raise RequestError(
            f"nothing to bundle for {request.target}",
            f"no artifact of {', '.join(request.models)} under {request.models_dir}",
            f"run: edgeq export --model {request.models[0]} --target {request.target}",
            code="no-artifact",
        )
    return packed


def _add_model(contents: Contents, request: BundleRequest, model: str) -> bool:
    manifests: list[Manifest] = []
    lacking: list[str] = []
    for backend, scheme in itertools.product(request.backends, request.schemes):
        try:
            path = find_manifest(request.models_dir, model, backend, scheme, request.target)
        except EdgeqError:
            lacking.append(f"{backend}/{scheme}")
        else:
            manifests.append(_add_artifact(contents, request, path, (model, backend, scheme)))
    if lacking:
        what = "nothing of it was exported: left out" if not manifests else f"not exported: {', '.join(lacking)}"
        hint = f"run: edgeq export --model {model} --target {request.target}"
        contents.notes.append(Note(code="no-artifact", text=f"{model}: {what}", hint=hint))
    if len({each.weights.sha256 for each in manifests}) > 1:
        names = ", ".join(sorted({each.weights.name for each in manifests}))
        raise RequestError(
            f"the artifacts of {model} come from different weights: {names}",
            "their figures could not be compared",
            f"run: edgeq export --model {model} --target {request.target} --weights …",
            code="mixed-weights",
        )
    if manifests:
        contents.add(f"models/{model}/{_SPEC}", f"{model}: model.toml, reference", request.models_dir / model / _SPEC)
    return bool(manifests)


def _add_artifact(contents: Contents, request: BundleRequest, path: Path, key: tuple[str, str, str]) -> Manifest:
    (model, backend, scheme), name = key, "/".join(key)
    manifest, part = read_manifest(path), f"{model}: {backend}"
    if manifest.target not in ("any", request.target):
        text = f"{name} is quantized for {manifest.target}: the device runs it with a warning"
        hint = f"run: edgeq export --model {model} --backend {backend} --scheme {scheme} --target {request.target}"
        contents.notes.append(Note(code="target-mismatch", text=text, hint=hint))
    contents.add(_device_name(request.models_dir, path), part, path)
    if manifest.status != "ok":
        why = manifest.reason.text if manifest.reason else "no reason was recorded"
        text = f"{name} was not exported ({why}): the device's records say so"
        contents.notes.append(Note(code="export-failed", text=text))
        return manifest
    verify(path, manifest, model=model, backend=backend, scheme=scheme)
    for entry in manifest.files:
        contents.add(_device_name(request.models_dir, path.parent / entry.name), part, path.parent / entry.name)
    reference = path.parent / manifest.reference.file
    contents.add(_device_name(request.models_dir, reference), f"{model}: model.toml, reference", reference)
    return manifest


def _device_name(models_dir: Path, path: Path) -> str:
    inside = os.path.relpath(path, models_dir)
    if inside.startswith(".."):
        raise EdgeqError(
            f"{path} does not lie under {models_dir}", "a bundle holds what does", "export anew", code="bad-manifest"
        )
    return f"models/{Path(inside).as_posix()}"


def add_samples(contents: Contents, request: BundleRequest, on_progress: Progress) -> None:
    """The synthetic samples that the profiles ask for, and the dataset's: the device makes and decodes none.

    Raises:
        RequestError: a profile or the dataset can't be used.
        EdgeqError: the cache can't be written.
    """
    specs = [load_model(request.models_dir, model) for model in request.models]
    for profile in (load_profile(request.scenarios_dir, name) for name in request.profiles):
        for spec in (*specs, NO_MODEL_SPEC):
            _add_synthetic(contents, timed_synthetic(spec, profile, request.seed))
    for path in sorted(request.scenarios_dir.glob("*.toml")):
        contents.add(f"scenarios/{path.name}", "scenarios", path)
    if request.dataset is None:
        return
    part = f"samples of {request.dataset}"
    for spec in specs:

        def told(done: int, total: int, name: str = spec.name) -> None:
            on_progress(name, done, total)

        samples = dataset_samples(spec, request.dataset, told)
        contents.notes += [note for note in samples.warnings if note not in contents.notes]
        assert isinstance(samples.source, FileSource)
        contents.add(f"{SAMPLES}/{samples.source.path.name}", part, samples.source.path)
        described = json.dumps(describe_packed(samples, spec)) + "\n"
        contents.add(f"{SAMPLES}/{packed_name(spec.name)}", part, described.encode())


def _add_synthetic(contents: Contents, samples: SampleSet) -> None:
    source = samples.source
    if isinstance(source, SyntheticSource) and source.kept is not None:
        for path in (source.kept.path, source.kept.path.with_suffix(".json")):
            contents.add(f"{CACHE}/samples/{path.name}", "synthetic samples", path)
        return
    text = f"{samples.count} synthetic samples of {samples.size[0]}x{samples.size[1]} are not packed: the device makes them"
    contents.notes += [note for note in (Note(code="not-packed", text=text),) if note not in contents.notes]
