"""What a run is asked for, and what it is found to need: cells, manifests, samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeq import __version__
from edgeq.artifact import Manifest, find_manifest, read_manifest
from edgeq.backends import installed
from edgeq.run.record import Accuracy
from edgeq.run.samples import ModelSamples, samples_for
from edgeq.setting import Setting, default_setting, setting_for, tuning_key
from edgeq.spec.errors import EdgeqError, RequestError
from edgeq.spec.matrix import Planned, matrix
from edgeq.spec.names import NO_MODEL, NULL, Cell
from edgeq.spec.note import Note
from edgeq.spec.profile import Profile

#: An artifact: model, backend, scheme.
Key = tuple[str, str, str]


@dataclass(frozen=True)
class RunRequest:
    """Everything that ``edgeq run`` was asked for."""

    models_dir: Path
    results: Path
    models: Sequence[str]
    backends: Sequence[str]
    schemes: Sequence[str]
    scenarios: Sequence[str]
    profile: Profile
    threads: int
    target: str
    device: dict[str, Any]
    dataset: Path | None = None
    seed: int = 0
    """Of synthetic samples, and of the order of the cells in each of several rounds."""
    rounds: int = 1
    resume: bool = False
    use_tuned: bool = True
    """Whether cells run with what ``edgeq tune`` found, where it did; else all run with the defaults."""
    ignore_memory: bool = False
    """Whether cells are tried that are not expected to fit."""
    cool_to: float | None = None
    """°C at which a turn is measured once more that the device slowed down. Not in ``as_json``: what is measured is the same,
    and a run may be resumed with it or without; records tell where it was."""

    def as_json(self) -> dict[str, Any]:
        """What must be the same for a run to be resumed: everything that bears on the figures."""
        return {
            "models": list(self.models),
            "backends": list(self.backends),
            "schemes": list(self.schemes),
            "scenarios": list(self.scenarios),
            "profile": self.profile.model_dump(mode="json", by_alias=True),
            "threads": self.threads,
            "target": self.target,
            "dataset": str(self.dataset.absolute()) if self.dataset else None,
            "versions": {"edgeq": __version__, **{b: installed(b) for b in self.backends if b != NULL}},
            "seed": self.seed,
            "rounds": self.rounds,
        }


class RunPlan:
    """A request with all that it needs found.

    Attributes:
        planned: The cells, in the order of the matrix.
        found: Path and manifest of every artifact that the run will use.
        lacking: For the others, why there is none.
        samples: By model.
    """

    def __init__(self, request: RunRequest, on_progress: Callable[[str, int, int], None]) -> None:
        """``on_progress`` is called with a model and how many of its images are preprocessed, of how many.

        Raises:
            RequestError: the dataset is unusable, or artifacts of one model come from different weights.
        """
        self.request = request
        self._settings: dict[Cell, tuple[Setting, bool, list[Note]]] = {}
        self.planned = matrix(request.models, request.backends, request.schemes, request.scenarios)
        self.found, self.lacking = _manifests(request, self.planned)
        models = dict.fromkeys(plan.cell.model for plan in self.planned)
        self.samples = {model: self._samples(model, on_progress) for model in models}

    def _samples(self, model: str, on_progress: Callable[[str, int, int], None]) -> ModelSamples:
        request = self.request
        manifests = [manifest for _, manifest in self.found.values() if manifest.model == model]
        return samples_for(
            model,
            request.models_dir,
            request.profile,
            request.dataset,
            request.seed,
            manifests,
            lambda done, total: on_progress(model, done, total),
        )

    def as_json(self) -> dict[str, Any]:
        """The request, the samples' content and the settings: what a resumed run must have in common with the first."""
        return self.request.as_json() | {
            "samples": {model: each.sha256 for model, each in self.samples.items()},
            "settings": {str(plan.cell): self.setting(plan.cell)[0].words() for plan in self.planned},
        }

    def setting(self, cell: Cell) -> tuple[Setting, bool, list[Note]]:
        """A cell's setting, whether it was tuned, and what there is to say of it (``edgeq.setting.setting_for``).

        As it is when it is first asked for: what is stored meanwhile is for the next run.
        """
        if cell not in self._settings:
            self._settings[cell] = self._setting(cell)
        return self._settings[cell]

    def _setting(self, cell: Cell) -> tuple[Setting, bool, list[Note]]:
        request = self.request
        path, manifest = self.found.get(artifact_of(cell), (None, None))
        if path is None or manifest is None or not request.use_tuned:
            return default_setting(cell.scenario, request.threads, manifest), False, []
        key = tuning_key(manifest, request.device, tuning_versions(cell.backend), request.threads)
        return setting_for(path, manifest, cell.scenario, request.threads, key, request.device)

    def manifest(self, cell: Cell) -> Manifest | None:
        """The manifest of a cell's artifact, where there is one."""
        return self.found[artifact_of(cell)][1] if artifact_of(cell) in self.found else None


def tuning_versions(backend: str) -> dict[str, str]:
    """Versions that a tuned setting hangs on: the framework's and edgeq's."""
    return {**installed(backend), "edgeq": __version__}


def artifact_of(cell: Cell) -> Key:
    """The artifact that a cell runs."""
    return cell.model, cell.backend, cell.scheme


def _manifests(
    request: RunRequest, planned: Sequence[Planned]
) -> tuple[dict[Key, tuple[Path, Manifest]], dict[Key, EdgeqError]]:
    found: dict[Key, tuple[Path, Manifest]] = {}
    lacking: dict[Key, EdgeqError] = {}
    for key in dict.fromkeys(artifact_of(plan.cell) for plan in planned if plan.cell.model != NO_MODEL):
        try:
            path = find_manifest(request.models_dir, *key, request.target)
            found[key] = path, read_manifest(path)
        except EdgeqError as error:
            lacking[key] = error
    for model in request.models:
        sources = {m.weights.sha256: m.weights.name for _, m in found.values() if m.model == model}
        if len(sources) > 1:
            raise RequestError(
                f"the artifacts of {model} come from different weights: {', '.join(sorted(sources.values()))}",
                "their figures could not be compared",
                f"run: edgeq export --model {model} --weights …",
                code="mixed-weights",
            )
    return found, lacking


def thread_notes(request: RunRequest) -> list[Note]:
    """``oversubscribed`` where more threads are asked for than there are cores."""
    allowed = request.device["cores"]
    if request.threads <= allowed:
        return []
    text = f"{request.threads} threads on {allowed} cores that this process may use"
    return [Note(code="oversubscribed", text=text, hint="leave out --threads, or pass the number of cores")]


def rule_notes(profile: Profile, manifest: Manifest, accuracy: Accuracy | None) -> list[Note]:
    """``not-mlperf`` where a profile of MLPerf's rules is run without what the rules ask for."""
    if not profile.mlperf_rules:
        return []
    lacks = []
    if accuracy is None:
        lacks.append("no accuracy was measured (pass --dataset)")
    elif accuracy.n < profile.accuracy_samples:
        lacks.append(f"accuracy is of {accuracy.n} images, not {profile.accuracy_samples}")
    if manifest.weights.kind == "random":
        lacks.append("the weights are random")
    if not lacks:
        return []
    hint = "bring the validation set and the reference weights, or use another profile"
    return [Note(code="not-mlperf", text=f"not a result by MLPerf's rules: {'; '.join(lacks)}", hint=hint)]
