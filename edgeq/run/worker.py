"""The worker: ``python -m edgeq.run.worker JOB`` loads one artifact, checks it, drives LoadGen once, writes the result.

Imports no framework but the cell's own, and that inside its backend.
"""

from __future__ import annotations

import json
import math
import platform
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from edgeq import __version__
from edgeq.artifact import Manifest, read_manifest, verify
from edgeq.backends import installed, open_session, preload
from edgeq.backends.null import open_null
from edgeq.backends.session import Array, Session, SessionOptions
from edgeq.data.layout import to_layout
from edgeq.data.samples import SampleSet, open_samples
from edgeq.events import die_with_parent, emit
from edgeq.host import memory, state
from edgeq.host.threads import environment
from edgeq.loadgen.accuracy import read_accuracy
from edgeq.loadgen.drive import drive
from edgeq.loadgen.log import Outcome
from edgeq.loadgen.plan import ANSWER_S, Planning, plan_run
from edgeq.loadgen.settings import loadgen_module
from edgeq.loadgen.sut import answer_cost
from edgeq.logits import distance
from edgeq.run.accuracy import write_result
from edgeq.run.canary import check_output, load_reference, logits_of, time_queries
from edgeq.run.job import AccuracyResult, WorkerJob
from edgeq.run.record import (
    Accuracy,
    ArtifactInfo,
    Canary,
    EffectiveInfo,
    HostStates,
    Latency,
    LoadgenInfo,
    OutputCheck,
    Overhead,
    Record,
    Requested,
    write_record,
)
from edgeq.run.steadiness import cpu_notes, host_notes
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
#: Shares of the largest logit within which the output before and after the run must agree to be called the same.
STABLE = 1e-3


class Worker:
    """One job, step by step; what is known so far is in ``known``, for the record of a skipped cell too."""

    def __init__(self, job: WorkerJob) -> None:
        self.job, self.cell = job, job.cell
        self.streams = 1 if self.scenario == "single-stream" else job.threads
        self.known: dict[str, Any] = {
            "device": job.device,
            "versions": _versions(self.cell.backend),
            "requested": Requested(
                threads=job.threads,
                streams=self.streams,
                profile=job.profile.name,
                dataset=job.dataset,
                environment=environment(job.threads),
            ),
            "accuracy": job.accuracy,
        }
        self.notes: list[Note] = list(job.warnings)
        self.manifest: Manifest | None = None
        self.manifest_file: Path | None = None
        self.expected: Array | None = None
        """Torch's float32 logits for the reference samples."""

    @property
    def scenario(self) -> str:
        """An accuracy run is driven offline: the answers are the same, and it is the fastest."""
        return "offline" if self.job.mode == "accuracy" else self.cell.scenario

    def measure(self) -> Record:
        """The cell's record: ``ok``, ``invalid`` or ``skipped``. Raises ``EdgeqError`` for what makes it ``failed``."""
        session = self._load()
        samples = open_samples(self.job.samples)
        reference, before = self._reference(session, samples)
        planning = self._plan(self._canary(session, reference), samples)
        budget = self.job.profile.cell_budget_s
        if planning.seconds > budget:
            return self._record("skipped", _too_slow(self.known["canary"], planning.seconds, budget, "cell_budget_s"))
        expected, check = self._check(session, reference, before)
        outcome = self._drive(session, samples, planning)
        after = logits_of(session, reference[:1], many=self.streams > 1)
        if check is not None:
            self.known["output_check"] = check.model_copy(update={"stable": _same(after, expected[:1])})
        self._what_ran(session)
        session.close()
        if not outcome.valid:
            reason = Note(
                code="loadgen-invalid",
                text="LoadGen calls the run invalid: " + "; ".join(outcome.reasons),
                hint="run the cell again on a quiet machine, or with a longer profile",
            )
            return self._record("invalid", reason)
        return self._record("ok", None)

    def _what_ran(self, session: Session) -> None:
        """After the measurement: some frameworks load the model once more to tell, which is not the cell's memory."""
        self.known["peak_rss_mb"] = _mb(memory.peak_rss())
        emit("phase", name="reading what ran", limit_s=LOAD_LIMIT_S)
        try:
            effective = session.effective()
        except Exception as error:  # the measurement is whole: what it ran stays unknown, and is said to be
            why = f"{type(error).__name__}: {error}"
            self.notes.append(Note(code="effective-unknown", text=f"the framework did not say what it runs: {why}"))
            return
        fields = EffectiveInfo.model_fields
        self.known["effective"] = EffectiveInfo(**{k: v for k, v in vars(effective).items() if k in fields})
        self.notes += effective.warnings

    def judge(self) -> tuple[AccuracyResult, Any]:
        """The artifact's accuracy by LoadGen's AccuracyOnly mode, and its predictions ``[n, 5]``."""
        session = self._load()
        samples = open_samples(self.job.samples)
        assert self.manifest is not None
        key = self.manifest.key
        reference, _ = self._reference(session, samples)
        planning = self._plan(self._canary(session, reference), samples)
        budget = self.job.profile.accuracy_budget_s
        if planning.seconds > budget:
            reason = _too_slow(self.known["canary"], planning.seconds, budget, "accuracy_budget_s")
            return AccuracyResult(status="skipped", artifact_key=key, reason=reason), None
        outcome = self._drive(session, samples, planning)
        if not outcome.valid:
            raise EdgeqError(
                "LoadGen's accuracy run has errors", "; ".join(outcome.reasons), "run it again", code="loadgen-invalid"
            )
        predictions = read_accuracy(self.job.folder / "loadgen", samples.count)
        session.close()
        assert samples.labels is not None  # a dataset without labels is refused when it is listed
        found = Accuracy(
            top1=predictions.top1(samples.labels),
            top5=predictions.top5(samples.labels),
            n=predictions.n,
            dataset=str(self.job.dataset),
            preprocessing=self.job.preprocessing,
            excluded_calibration=self.job.excluded_calibration,
            bad_images=self.job.bad_images,
        )
        result = AccuracyResult(status="ok", artifact_key=key, accuracy=found, loadgen=self._loadgen(outcome))
        return result, predictions.best

    def _load(self) -> Session:
        emit("phase", name="load", limit_s=LOAD_LIMIT_S)
        options = SessionOptions(threads=self.job.threads, streams=self.streams)
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
        self.manifest, self.manifest_file = manifest, path
        self.known["artifact"] = ArtifactInfo.of(manifest, _shown(file))
        self.notes += _target_notes(manifest, self.job.target)
        began = time.perf_counter()
        preload(manifest.backend)
        imported = time.perf_counter()
        session = open_session(manifest, file, options)
        self.known["import_ms"] = (imported - began) * 1e3
        self.known["load_ms"] = (time.perf_counter() - imported) * 1e3
        return session

    def _reference(self, session: Session, samples: SampleSet) -> tuple[Array, Array]:
        """The samples to check with (NCHW), and the first inference's logits, timed by itself."""
        emit("phase", name="first inference", limit_s=max(CHECK_LIMIT_S, 2 * self.job.profile.cell_budget_s))
        if self.manifest is None or self.manifest_file is None:
            reference = samples.load([0], "NCHW")
        else:
            reference, self.expected = load_reference(self.manifest, self.manifest_file)
        began = time.perf_counter()
        first = logits_of(session, reference[:1], many=False)
        self.known["first_inference_ms"] = (time.perf_counter() - began) * 1e3
        return reference, first

    def _canary(self, session: Session, reference: Array) -> Canary:
        """Times a few queries as the scenario will issue them; ``estimate_s`` is filled in by ``_plan``."""
        budget = self.job.profile.cell_budget_s
        emit("phase", name="warm-up", limit_s=max(CHECK_LIMIT_S, 2 * budget))
        first_s = self.known["first_inference_ms"] / 1e3
        per_query, parallel = self._samples_per_query(first_s), 1
        if first_s * per_query / self.streams > budget / 4:
            # One more sample tells whether the cell fits its budget; a whole query might alone exceed it.
            per_query, parallel = 1, self.streams
        samples = to_layout(reference, session.input.layout)
        timing = time_queries(session, [samples[index % len(samples)] for index in range(per_query)], budget / 4)
        self.known["warmup"] = 1 + (timing.warm_up + timing.timed) * per_query
        return Canary(ms_per_sample=timing.query_s / per_query / parallel * 1e3, n=timing.timed, estimate_s=0)

    def _samples_per_query(self, first_s: float) -> int:
        """How many samples the canary asks for at once: a query of the scenario, or in offline enough to fill it.

        ``first_s`` is what the first inference took: the rate of many samples does not show in a handful of fast ones.
        """
        settings = self.job.profile.scenario(self.scenario)
        if isinstance(settings, Offline):
            fill = math.ceil(CANARY_QUERY_S * self.streams / first_s)
            return min(max(fill, CANARY_SAMPLES_A_STREAM * self.streams), CANARY_SAMPLES)
        return settings.samples_per_query if isinstance(settings, MultiStream) else 1

    def _plan(self, canary: Canary, samples: SampleSet) -> Planning:
        settings = self.job.profile.scenario(self.scenario)
        unit = settings.samples_per_query if isinstance(settings, MultiStream) else 1
        ms_per_sample = self.job.ms_per_sample or canary.ms_per_sample
        # Only a system as fast as none comes near the cost of an answer itself, which bounds the rate.
        answer_s = answer_cost(loadgen_module()) if self.cell.backend == NULL else ANSWER_S
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

    def _check(self, session: Session, reference: Array, first: Array) -> tuple[Array, OutputCheck | None]:
        expected_s = self.known["canary"].ms_per_sample / 1e3 * self.streams * len(reference)
        emit("phase", name="output check", limit_s=max(CHECK_LIMIT_S, HANG_FACTOR * expected_s))
        found = logits_of(session, reference, many=self.streams > 1)
        self.known["warmup"] += len(reference)
        if self.manifest is None or self.expected is None:
            return found, None
        checked, notes = check_output(found, self.expected, self.manifest)
        self.notes += notes
        if not _same(first, found[:1]):
            self.notes.append(
                Note(
                    code="unstable-output",
                    text=f"the same sample gave other logits the second time "
                    f"({distance(found[:1], first).max_rel_error:.1e} of the largest)",
                    hint="report this with the record: accuracy can't be trusted",
                )
            )
        self.known["output_check"] = checked
        return found, checked

    def _drive(self, session: Session, samples: SampleSet, planning: Planning) -> Outcome:
        limit = HANG_FACTOR * planning.seconds + HANG_SLACK_S
        emit("phase", name="LoadGen", limit_s=limit, estimate_s=planning.seconds)
        self.known["loaded_rss_mb"] = _mb(memory.peak_rss())
        before = state.snapshot()
        outcome = drive(
            session, samples, planning.plan, self.job.folder / "loadgen", session.input.layout, session.input.shape
        )
        emit("phase", name="reading logs", limit_s=READ_LIMIT_S)
        after = state.snapshot()
        self.known["host"] = HostStates(before=before, after=after)
        self.notes += host_notes(before, after)
        if outcome.cpu_s is not None and outcome.wall_s:
            self.known["cpu_s"], self.known["cpu_per_wall"] = outcome.cpu_s, outcome.cpu_s / outcome.wall_s
            if self.cell.backend != NULL:
                self.notes += cpu_notes(self.known["cpu_per_wall"], self.job.threads)
        self.known |= self._figures(outcome)
        self.notes += outcome.notes
        return outcome

    def _figures(self, outcome: Outcome) -> dict[str, Any]:
        latency = None
        if outcome.latency_ms and self.scenario != "offline":
            latency = Latency(**{name: outcome.latency_ms[name] for name in Latency.model_fields})
        figures: dict[str, Any] = {
            "latency_ms": latency,
            "samples_per_second": outcome.samples_per_second,
            "queries": outcome.queries,
            "samples": outcome.samples,
            "duration_s": outcome.duration_s,
            "loadgen": self._loadgen(outcome),
        }
        if self.cell.backend == NULL:
            figures["overhead_us"] = Overhead(
                per_query=latency.p50 * 1e3 if latency else outcome.duration_s * 1e6 / outcome.queries,
                per_sample=outcome.duration_s * 1e6 / outcome.samples,
            )
        return figures

    def _loadgen(self, outcome: Outcome) -> LoadgenInfo:
        percentile = getattr(self.job.profile.scenario(self.scenario), "percentile", None)
        name = f"p{percentile * 100:g}" if percentile else ""
        return LoadgenInfo(
            version=outcome.version,
            scenario=outcome.scenario,
            settings=outcome.settings,
            valid=outcome.valid,
            errors=outcome.reasons,
            percentile=percentile,
            early_stopping_ms=outcome.early_stopping_ms.get(name),
            log_dir="loadgen",
        )

    def _record(self, status: Any, reason: Note | None) -> Record:
        warnings = list(dict.fromkeys(self.notes))
        return Record(cell=self.cell, status=status, reason=reason, run=self.job.run, warnings=warnings, **self.known)


def _too_slow(canary: Canary, estimate_s: float, budget_s: float, setting: str) -> Note:
    return Note(
        code="too-slow",
        text=f"{canary.ms_per_sample:.0f} ms a sample (canary of {canary.n}): LoadGen's run would take about "
        f"{estimate_s:.0f} s, the profile allows {budget_s:.0f} s",
        hint=f"use a longer profile, or raise {setting} in a copy of it",
    )


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


def _same(found: Array, expected: Array) -> bool:
    return distance(found, expected).max_rel_error <= STABLE


def _mb(count: int | None) -> float | None:
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


def main(argv: Sequence[str]) -> int:
    """Exit code 0 with a result written, 1 with the error told to the runner."""
    die_with_parent()
    job = WorkerJob.model_validate(json.loads(Path(argv[1]).read_text(encoding="utf-8")))
    try:
        worker = Worker(job)
        if job.mode == "accuracy":
            result, predictions = worker.judge()
            write_result(job.folder, result, predictions)
        else:
            write_record(job.folder / "record.json", worker.measure())
    except EdgeqError as error:
        emit("error", what=error.what, why=error.why, hint=error.hint, code=error.code)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
