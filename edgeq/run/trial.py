"""What every worker does with its artifact, timed or judged: load, infer once, warm up, plan, drive LoadGen."""

from __future__ import annotations

import math
import platform
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from edgeq import __version__
from edgeq.artifact import Manifest, read_manifest, verify
from edgeq.backends import installed, open_session, preload
from edgeq.backends.null import open_null
from edgeq.backends.session import Array, Session, SessionOptions
from edgeq.data.layout import to_layout
from edgeq.data.samples import SampleSet
from edgeq.events import emit
from edgeq.host import memory, state
from edgeq.host.threads import environment
from edgeq.loadgen.drive import drive
from edgeq.loadgen.log import Outcome
from edgeq.loadgen.plan import ANSWER_S, Planning, plan_run
from edgeq.loadgen.settings import loadgen_module
from edgeq.loadgen.sut import answer_cost
from edgeq.run.canary import load_reference, logits_of, time_queries
from edgeq.run.job import LOADGEN_DIR, WorkerJob, driven_as
from edgeq.run.record import ArtifactInfo, Canary, HostStates, Requested
from edgeq.run.steadiness import during_notes, host_notes, neighbour_notes, slowed_by
from edgeq.run.watching import Watched, watching
from edgeq.spec.errors import EdgeqError
from edgeq.spec.model import NO_MODEL_SPEC
from edgeq.spec.names import NULL
from edgeq.spec.note import Note
from edgeq.spec.profile import MultiStream, Offline

#: Limits of the phases, in seconds, for the runner's watchdog: a load may read 600 MB from a slow card.
LOAD_LIMIT_S, CHECK_LIMIT_S, READ_LIMIT_S = 300.0, 300.0, 120.0
#: LoadGen may take this many times its estimate, and this much on top, before the runner calls it hung.
HANG_FACTOR, HANG_SLACK_S = 4.0, 60.0
#: Offline canaries time at least this many samples a stream at once, about so many seconds' worth, and at most so many.
CANARY_SAMPLES_A_STREAM, CANARY_QUERY_S, CANARY_SAMPLES = 4, 0.05, 1024
#: Seconds that a canary may take whose figure is of no interest but for how long the run will take.
ESTIMATE_S = 1.0


class Trial:
    """One job's steps, in the order of its methods; what is known so far is in ``known``, fields of a record.

    Attributes:
        known: Fields of ``Record`` by name.
        notes: Warnings so far.
        manifest: Of the artifact; None without a model, or before ``load``.
        file: What the backend loaded.
        expected: Torch's float32 logits for the reference samples.
    """

    def __init__(self, job: WorkerJob) -> None:
        self.job, self.cell = job, job.cell
        self.scenario = driven_as(job.mode, job.cell.scenario)
        self.setting = job.setting
        self.known: dict[str, Any] = {
            "device": job.device,
            "versions": _versions(self.cell.backend),
            "requested": Requested(
                threads=self.setting.threads,
                streams=self.setting.streams,
                batch=self.setting.batch,
                setting="tuned" if job.tuned else "default",
                profile=job.profile.name,
                rounds=job.rounds,
                dataset=job.dataset,
                environment=environment(job.setting.threads),
            ),
            "accuracy": job.accuracy,
            "peaks": job.peaks if job.cell.backend != NULL else None,
        }
        self.notes: list[Note] = list(job.warnings)
        self.manifest: Manifest | None = None
        self.file: Path | None = None
        self.expected: Array | None = None

    @property
    def at_once(self) -> int:
        """Samples that the setting infers at once."""
        return self.setting.streams * self.setting.batch

    def load(self) -> Session:
        """The artifact's session, once its files are found to be those that the run was planned with.

        Raises:
            EdgeqError: it was exported anew (``artifact-changed``), or whatever ``verify``, ``preload`` and
                ``open_session`` raise.
        """
        emit("phase", name="load", limit_s=LOAD_LIMIT_S)
        options = SessionOptions(**self.setting.model_dump())
        if self.cell.backend == NULL:
            return open_null(options, NO_MODEL_SPEC.input_shape, NO_MODEL_SPEC.classes)
        assert self.job.manifest is not None
        path = self.job.manifest
        manifest = read_manifest(path)
        if manifest.key != self.job.artifact_key:
            raise EdgeqError(
                f"the artifact of {self.cell} has been exported anew since this run began",
                "its accuracy and its other cells are of another file",
                "start a new run: the same command without --resume",
                code="artifact-changed",
            )
        file = verify(path, manifest, model=self.cell.model, backend=self.cell.backend, scheme=self.cell.scheme)
        self.manifest, self.file = manifest, file
        self.known["artifact"] = ArtifactInfo.of(manifest, _shown(file))
        self.notes += _target_notes(manifest, self.job.target)
        began = time.perf_counter()
        preload(manifest.backend)
        imported = time.perf_counter()
        session = open_session(manifest, file, options)
        self.known["import_ms"] = (imported - began) * 1e3
        self.known["load_ms"] = (time.perf_counter() - imported) * 1e3
        return session

    def first(self, session: Session, samples: SampleSet) -> tuple[Array, Array]:
        """The samples to check with (NCHW), and the first inference's logits, timed by itself."""
        emit("phase", name="first inference", limit_s=max(CHECK_LIMIT_S, 2 * self.job.profile.cell_budget_s))
        if self.manifest is None or self.job.manifest is None:
            reference = samples.load([0], "NCHW")
        else:
            reference, self.expected = load_reference(self.manifest, self.job.manifest)
        began = time.perf_counter()
        first = logits_of(session, reference[:1], many=False)
        self.known["first_inference_ms"] = (time.perf_counter() - began) * 1e3
        return reference, first

    def canary(self, session: Session, reference: Array) -> Canary:
        """Warms up with queries as the scenario will issue them; ``estimate_s`` is filled in by ``plan``."""
        budget = self.job.profile.cell_budget_s
        emit("phase", name="warm-up", limit_s=max(CHECK_LIMIT_S, 2 * budget))
        # Where times are not kept, or mean nothing, no model need be warm: it is only asked how long the run will take.
        timed = self.job.mode == "performance" and not self.job.device.get("emulated")
        warming_s = budget / 4 if timed else min(budget / 4, ESTIMATE_S)
        first_s = self.known["first_inference_ms"] / 1e3
        per_query, parallel = self._samples_per_query(first_s), 1
        if first_s * per_query / self.setting.streams > warming_s:
            # One more call tells whether the run fits its budget; a whole query might alone exceed that of the warm-up.
            per_query, parallel = self.setting.batch, self.setting.streams
        samples = to_layout(reference, session.input.layout)
        settled = time_queries(session, [samples[index % len(samples)] for index in range(per_query)], warming_s)
        self.known["warmup"] = 1 + settled.total * per_query
        self.notes += settled.notes() if self.job.mode == "performance" else []
        ms_per_sample = settled.typical_s / per_query / parallel * 1e3
        return Canary(ms_per_sample=ms_per_sample, n=settled.last, estimate_s=0)

    def _samples_per_query(self, first_s: float) -> int:
        """How many samples the canary asks for at once: a query of the scenario, or in offline enough to fill it.

        ``first_s`` is what the first inference took: the rate of many samples does not show in a handful of fast ones.
        """
        settings = self.job.profile.scenario(self.scenario)
        if isinstance(settings, Offline):
            fill = math.ceil(CANARY_QUERY_S * self.setting.streams / first_s)
            return min(max(fill, CANARY_SAMPLES_A_STREAM * self.setting.streams * self.setting.batch), CANARY_SAMPLES)
        return settings.samples_per_query if isinstance(settings, MultiStream) else 1

    def plan(self, canary: Canary, samples: SampleSet) -> Planning:
        """LoadGen's run, planned by the canary's figure, or by that of an earlier try."""
        settings = self.job.profile.scenario(self.scenario)
        unit = settings.samples_per_query if isinstance(settings, MultiStream) else 1
        ms_per_sample = self.job.ms_per_sample or canary.ms_per_sample
        # Only a system as fast as none comes near the cost of an answer itself, which bounds the rate.
        answer_s = answer_cost(loadgen_module()) if self.cell.backend == NULL else ANSWER_S
        if self.job.ms_per_sample is not None:
            answer_s = 0.0  # what a run has shown is possible, whatever an answer costs by itself
        planning = plan_run(
            self.job.profile,
            self.scenario,
            ms_per_sample / 1e3 * unit,
            samples.count,
            mode=self.job.mode,
            memory_mb=min(2048, (memory.available() or 4096e6) / 2e6),
            answer_s=answer_s,
        )
        self.known["canary"] = canary.model_copy(update={"estimate_s": planning.seconds})
        self.notes += planning.notes
        return planning

    def too_slow(self, planning: Planning, budget_s: float, setting: str) -> Note | None:
        """Why the planned run is not made, where it would take longer than the profile's ``setting`` allows."""
        if planning.seconds <= budget_s:
            return None
        canary: Canary = self.known["canary"]
        return Note(
            code="too-slow",
            text=f"{canary.ms_per_sample:.0f} ms a sample (canary of {canary.n}): LoadGen's run would take about "
            f"{planning.seconds:.0f} s, the profile allows {budget_s:.0f} s",
            hint=f"use a longer profile, or raise {setting} in a copy of it",
        )

    def drive(self, session: Session, samples: SampleSet, planning: Planning) -> Outcome:
        """LoadGen's run; and, where it is timed, what the device did meanwhile."""
        if self.job.mode != "performance":
            return self._drive(session, samples, planning)
        with watching(self.job.folder) as watched:
            before, cpu, wall = state.snapshot(), time.process_time(), time.perf_counter()
            outcome = self._drive(session, samples, planning)
            own_cpus = (time.process_time() - cpu) / (time.perf_counter() - wall)
            after = state.snapshot()
        self._tell(watched, before, after, outcome)
        self.notes += [*neighbour_notes(before, after, own_cpus), *outcome.notes]
        return outcome

    def _drive(self, session: Session, samples: SampleSet, planning: Planning) -> Outcome:
        limit = HANG_FACTOR * planning.seconds + HANG_SLACK_S
        emit("phase", name="LoadGen", limit_s=limit, estimate_s=planning.seconds)
        self.known["loaded_rss_mb"] = megabytes(memory.peak_rss())
        logs = self.job.folder / LOADGEN_DIR
        outcome = drive(session, samples, planning.plan, logs, session.input.layout, session.input.shape)
        emit("phase", name="reading logs", limit_s=READ_LIMIT_S)
        return outcome

    def _tell(self, watched: Watched, before: dict[str, Any], after: dict[str, Any], outcome: Outcome) -> None:
        """Adds what the device did, and what that says of the figures."""
        during = watched.during(outcome)
        slowed = slowed_by(before, after, during)
        self.known["host"] = HostStates(before=before, during=during, after=after, slowed_by=slowed)
        self.notes += [watched.note] if watched.note else []
        self.notes += [*host_notes(before, after, during), *during_notes(during)]


def _target_notes(manifest: Manifest, target: str) -> list[Note]:
    if manifest.target in ("any", target):
        return []
    return [
        Note(
            code="target-mismatch",
            text=f"quantized for {manifest.target}, this device is {target}",
            hint=f"run: edgeq export --model {manifest.model} --backend {manifest.backend} "
            f"--scheme {manifest.scheme} --target {target}",
        )
    ]


def megabytes(count: int | None) -> float | None:
    """Bytes as 10^6 bytes."""
    return None if count is None else count / 1e6


def _versions(backend: str) -> dict[str, str]:
    frameworks = {} if backend == NULL else installed(backend)
    try:
        loadgen = {"mlcommons-loadgen": metadata.version("mlcommons-loadgen")}
    except metadata.PackageNotFoundError:  # its absence is told where LoadGen is started
        loadgen = {}
    return {
        **frameworks,
        "edgeq": __version__,
        "python": platform.python_version(),
        "numpy": metadata.version("numpy"),
        **loadgen,
    }


def _shown(file: Path) -> str:
    """``file`` as a path from where the run was started, where it lies below."""
    try:
        return str(file.relative_to(Path.cwd()))
    except ValueError:
        return str(file)
