"""``edgeq explain``: a cell's artifact and its fp32 twin, profiled in turn by child processes, and what that says."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgeq.artifact import Manifest, exported, find_manifest, read_manifest, verify
from edgeq.backends import unseen_by_profiler
from edgeq.data.images import list_images
from edgeq.data.preprocess import rule
from edgeq.data.samples import SampleSet, prepare
from edgeq.explain.child import ExplainJob
from edgeq.explain.children import Children
from edgeq.explain.quiet import Watch
from edgeq.host import cpu
from edgeq.operators import OperatorProfile
from edgeq.spec.errors import EdgeqError, RequestError
from edgeq.spec.model import load_model
from edgeq.spec.names import BACKENDS, NULL, SCENARIOS, SCHEMES, Cell, check_names
from edgeq.spec.note import Note
from edgeq.student import Ratio, paired_ratio
from edgeq.verdict import verdict

#: The cell and its twin take turns so many times, each time in a fresh process, with inferences for so many seconds.
ROUNDS, SECONDS = 5, 2.0
#: Of a model too slow for rounds there is one ratio and no spread: it counts where it is beyond what a disturbance makes.
SINGLE_TELLS = 1.5
#: Images of ``--dataset`` that the layers are compared on.
LAYER_SAMPLES = 16

#: Called with what is going on.
OnProgress = Callable[[str], None]


@dataclass(frozen=True)
class ExplainRequest:
    """Everything that ``edgeq explain`` was asked for."""

    cell: Cell
    models_dir: Path
    threads: int
    layers: bool = False
    dataset: Path | None = None
    rounds: int = ROUNDS
    seconds: float = SECONDS


@dataclass(frozen=True)
class Side:
    """One artifact's profiles, a round each."""

    scheme: str
    profile: OperatorProfile
    """Of the round with the middle time; ``plain_ms`` is the rounds' median."""
    plain_ms: tuple[float, ...]
    """Of each round."""


@dataclass(frozen=True)
class Explained:
    """What was found."""

    cell: Cell
    verdict: str
    cpu: str
    isa: tuple[str, ...]
    threads: int
    target: str
    """What the artifact was exported for."""
    this: Side
    fp32: Side | None
    ratio: Ratio | None
    """Time without the profiler over fp32's, paired by round; None without a twin, or with a single round."""
    macs: dict[str, float]
    engine: str
    unseen: str
    notes: list[Note] = field(default_factory=list)
    layers: dict[str, Any] | None = None
    """``layers`` (see ``edgeq.backends.layers.LayerError``), ``tool``, ``samples``."""

    def as_json(self) -> dict[str, Any]:
        def side(of: Side | None) -> dict[str, Any] | None:
            return (
                None if of is None else {**of.profile.model_dump(mode="json"), "plain_ms_by_round": list(of.plain_ms)}
            )

        return {
            "cell": self.cell.as_dict(), "verdict": self.verdict, "cpu": self.cpu, "isa": list(self.isa),
            "threads": self.threads, "target": self.target, "executed_macs": self.macs, "engine": self.engine,
            "profile": side(self.this), "fp32": side(self.fp32), "ratio": None if self.ratio is None else vars(self.ratio),
            "unseen": self.unseen,
            "notes": [note.model_dump() for note in self.notes], "layers": self.layers,
        }  # fmt: skip


def parse_cell(text: str, models_dir: Path) -> Cell:
    """Reads ``model/backend/scheme``, and a scenario after it where there is one (by default single-stream).

    Raises:
        RequestError: not three or four parts (code ``bad-cell``), an unknown name (``unknown-name``, with the nearest), or
            the backend that runs no model.
    """
    parts = text.strip("/").split("/")
    if parts[1:2] == [NULL]:
        raise RequestError(
            "backend null can't be explained", "it runs no model", "name a framework's cell", code="bad-cell"
        )
    if len(parts) not in (3, 4):
        raise RequestError(
            f"{text!r} is not a cell", "it needs a model, a backend and a scheme",
            "write model/backend/scheme, such as mobilenet_v2/onnxruntime/fp16", code="bad-cell",
        )  # fmt: skip
    scenario = parts[3] if len(parts) == 4 else SCENARIOS[0]
    load_model(models_dir, parts[0])
    check_names("backend", parts[1:2], BACKENDS)
    check_names("scheme", parts[2:3], SCHEMES)
    check_names("scenario", [scenario], SCENARIOS)
    return Cell(parts[0], parts[1], parts[2], scenario)


def explain(request: ExplainRequest, on_progress: OnProgress) -> Explained:
    """Profiles the cell's artifact and its fp32 twin, and draws the verdict.

    Raises:
        EdgeqError: there is no artifact (``no-artifact``, ``export-failed``), it can't be loaded, its framework has no
            profiler here (``no-profiler``), a child died, or did not end in its time (``hung``).
    """
    cell, notes = request.cell, list[Note]()
    path, manifest = _artifact(request, cell.scheme)
    twin = None if cell.scheme == "fp32" else _twin(request, manifest, notes)
    if cell.scenario != "single-stream":
        notes.append(
            Note(code="one-at-a-time", text=f"profiled one inference at a time, not as {cell.scenario} issues them")
        )
    if request.layers and twin is None:
        raise _no_layers(cell)
    unseen, watch = unseen_by_profiler(cell.backend), Watch()
    with tempfile.TemporaryDirectory(prefix="edgeq-explain-") as folder:
        children = Children(Path(folder), request.threads)
        this, fp32, effective = _profiles(request, children, path, twin, notes, on_progress)
        notes += watch.notes()
        layers = None
        if request.layers and twin is not None:
            on_progress(f"{cell.scheme}: comparing the layers' outputs with fp32's")
            layers = _layers(request, children, path, twin, notes)
    isa, ratio = cpu.isa_flags(), _ratio(this, fp32)
    return Explained(
        cell=cell,
        verdict=verdict(
            this.profile, fp32.profile if fp32 else None, backend=cell.backend, scheme=cell.scheme,
            macs=effective["macs"], isa=isa,
            certain=_certain(this, fp32, ratio),
        ),
        cpu=cpu.cpu_name(),
        isa=isa,
        threads=request.threads,
        target=manifest.target,
        this=this,
        fp32=fp32,
        ratio=ratio,
        macs=effective["macs"],
        engine=effective["engine"],
        unseen=unseen,
        notes=notes + [Note(**note) for note in effective["notes"]],
        layers=layers,
    )  # fmt: skip


def _no_layers(cell: Cell) -> EdgeqError:
    itself = cell.scheme == "fp32"
    return EdgeqError(
        f"there are no layer errors of {cell}",
        "it is the float32 artifact itself" if itself else "there is no fp32 artifact to compare with",
        f"name another scheme, or run: edgeq export --model {cell.model} --backend {cell.backend} --scheme fp32",
        code="no-artifact",
    )


def _artifact(request: ExplainRequest, scheme: str) -> tuple[Path, Manifest]:
    cell = request.cell
    path = find_manifest(request.models_dir, cell.model, cell.backend, scheme, cpu.target()).absolute()
    manifest = read_manifest(path)
    verify(path, manifest, model=cell.model, backend=cell.backend, scheme=scheme)
    exported(manifest)
    return path, manifest


def _twin(request: ExplainRequest, manifest: Manifest, notes: list[Note]) -> Path | None:
    """The fp32 artifact's manifest, or a note why there is none to compare with."""
    try:
        path, twin = _artifact(request, "fp32")
    except EdgeqError as error:
        notes.append(Note(code="no-fp32", text=f"nothing to compare with: {error}", hint=error.hint))
        return None
    if twin.weights.sha256 != manifest.weights.sha256:
        notes.append(
            Note(
                code="mixed-weights",
                text="the fp32 artifact was exported from other weights: nothing to compare with",
                hint=f"run: edgeq export --model {manifest.model} --backend {manifest.backend}",
            )
        )
        return None
    return path


def _profiles(
    request: ExplainRequest,
    children: Children,
    path: Path,
    twin: Path | None,
    notes: list[Note],
    on_progress: OnProgress,
) -> tuple[Side, Side | None, dict[str, Any]]:
    """Rounds of this artifact, then its twin; a single one where an inference takes too long for more."""
    effective: dict[str, Any] = {}
    found: dict[Path, list[OperatorProfile]] = {}
    sides = [(path, request.cell.scheme), *([(twin, "fp32")] if twin else [])]
    rounds = request.rounds
    done = 0
    while done < rounds:
        done += 1
        for manifest, scheme in sides:
            on_progress(f"{scheme}: round {done} of {rounds}")
            first = manifest == path and not effective
            job = ExplainJob(
                task="profile", manifest=manifest, threads=request.threads, seconds=request.seconds, effective=first
            )
            for event in children.events(job):
                if event["event"] == "effective":
                    effective = event
                elif event["event"] == "profile":
                    found.setdefault(manifest, []).append(OperatorProfile.model_validate(event["profile"]))
            latest = found[manifest][-1]
            if latest.inferences == 1 and rounds > done:
                rounds = done
                notes.append(_single(scheme, latest))
    this = _side(request.cell.scheme, found[path])
    return this, _side("fp32", found[twin]) if twin else None, effective


def _single(scheme: str, profile: OperatorProfile) -> Note:
    text = (
        f"{scheme} takes {profile.profiled_ms / 1e3:.1f} s an inference: its operators' times are of a single one, after "
        "one to warm up, and there are no further rounds"
    )
    return Note(code="single-inference", text=text)


def _layers(request: ExplainRequest, children: Children, path: Path, twin: Path, notes: list[Note]) -> dict[str, Any]:
    """The child's ``layers``; what there is to know of them and of the samples goes to ``notes``."""
    samples = None if request.dataset is None else first_samples(request, request.dataset)
    spec = None if samples is None else samples.to_spec()
    job = ExplainJob(task="layers", manifest=path, fp32=twin, threads=request.threads, samples=spec)
    found = children.run(job, "layers")
    notes += [*(samples.warnings if samples else ()), *(Note(**note) for note in found.pop("notes"))]
    return found


def first_samples(request: ExplainRequest, dataset: Path) -> SampleSet:
    """The first ``LAYER_SAMPLES`` images that can be decoded; no other is."""
    spec = load_model(request.models_dir, request.cell.model)
    images = list_images(dataset, spec.classes, spec.label_offset)
    how, asked = rule(images, spec), LAYER_SAMPLES
    while True:
        samples = prepare(replace(images, entries=images.entries[:asked]), spec, preprocessing=how)
        if samples.count >= LAYER_SAMPLES or asked >= len(images.entries):
            return samples
        asked += LAYER_SAMPLES - samples.count


def _ratio(this: Side, fp32: Side | None) -> Ratio | None:
    if fp32 is None or len(this.plain_ms) != len(fp32.plain_ms):
        return None
    return paired_ratio(this.plain_ms, fp32.plain_ms)


def _certain(this: Side, fp32: Side | None, ratio: Ratio | None) -> bool:
    """Whether the rounds show that one of the two is faster."""
    if fp32 is None or ratio is not None:
        return ratio is None or ratio.shown
    one, other = (side.profile.plain_ms or side.profile.profiled_ms for side in (this, fp32))
    return abs(math.log(one / other)) > math.log(SINGLE_TELLS)


def _side(scheme: str, rounds: list[OperatorProfile]) -> Side:
    """The round whose time is the middle one, whole, so that its figures belong together."""
    plain = [profile.plain_ms for profile in rounds if profile.plain_ms is not None]
    chosen = sorted(rounds, key=lambda profile: profile.profiled_ms)[(len(rounds) - 1) // 2]
    median = statistics.median(plain) if plain else None
    return Side(scheme, chosen.model_copy(update={"plain_ms": median}), tuple(plain))
