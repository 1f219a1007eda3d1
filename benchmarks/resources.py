"""What a cell costs beside its measured time: start, checks, memory; and how well its canary foretells its run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks import stopwatch
from benchmarks.bars import Bar, Claim, Measured
from benchmarks.bench import Bench, Step, in_turn
from benchmarks.cells import RESIDENT, cell, in_force, job_for, profile
from edgeq.artifact import Manifest
from edgeq.data.layout import to_layout
from edgeq.run.canary import load_reference
from edgeq.run.record import Record
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import BACKENDS, OFFLINE, SINGLE_STREAM

SCHEMES = ("fp32", "int8-static")
#: LoadGen's part of a cell here, in seconds: what comes before and after it does not hang on it.
LOADGEN_S = 1.0
#: The bars, in the units of their rows.
START_SLACK_S, CHECKS_LIMIT_S, MEMORY_LIMIT_MIB = 1.0, 3.0, 150.0
#: How far a canary's estimate and LoadGen's run may lie apart, either way: 0.67 to 1.5.
ESTIMATE_RATIO = 1.5
#: Float16 without float16 kernels takes some 0.3 s a sample: so many samples are 10 to 20 s.
SLOW_SAMPLES = 48
#: A cell that its profile has to skip: hours of samples, and a budget of so many seconds.
MANY_SAMPLES, SHORT_BUDGET_S = 100_000, 8.0
#: A float32 sample of MobileNetV2.
SAMPLE_BYTES = 3 * 224 * 224 * 4

_MIB = 1 << 20


def steps(bench: Bench) -> list[Step]:
    """Start-up, checks and memory of each backend; the canary of its slowest cell."""
    found = [_cold_start(bench, backend) for backend in BACKENDS]
    found += [
        _cell(bench, backend, scheme, scenario)
        for backend in BACKENDS
        for scheme in SCHEMES
        for scenario in (SINGLE_STREAM, OFFLINE)
    ]
    return [*found, _estimate(bench), _skipped(bench)]


def _cold_start(bench: Bench, backend: str) -> Step:
    claim = Claim(
        f"resources/{backend}/start",
        "process start to first result of edgeq's worker (fp32), against a bare script's",
        "s",
        Bar("at most", 1.0, slack=START_SLACK_S),
    )

    def run(turn: int) -> Mapping[str, Measured]:
        path, manifest, file = bench.artifact(backend, "fp32")
        folder = bench.folder(f"{claim.name}/bare", turn)
        sample = _one_sample(manifest, path, folder)
        job = job_for(bench, cell(backend, "fp32", SINGLE_STREAM), profile(LOADGEN_S), claim.name, turn)
        return {
            claim.name: in_turn(
                turn,
                lambda: stopwatch.first_result_s(job),
                lambda: stopwatch.bare_first_result_s(backend, file, sample, bench.threads, folder),
            )
        }

    return Step((claim,), run, rounds=3)


def _one_sample(manifest: Manifest, path: Path, folder: Path) -> Path:
    """A ``.npy`` of the model's first reference sample, as the artifact takes it: float32 ``[1, *input.shape]``."""
    samples, _ = load_reference(manifest, path)
    found = folder / "sample.npy"
    np.save(found, to_layout(samples[:1], manifest.input.layout))
    return found


def _cell(bench: Bench, backend: str, scheme: str, scenario: str) -> Step:
    name = f"resources/{backend}/{scheme}/{scenario}"
    first = scenario == SINGLE_STREAM
    told = " (the artifact's first cell: with the profile of its operators)" if first else ""
    checks = Claim(
        f"{name}/checks",
        f"a worker's time beside LoadGen's own, against {CHECKS_LIMIT_S:g} s{told}",
        "s",
        Bar("at most", 1.0),
    )
    memory = Claim(
        f"{name}/memory",
        f"peak memory beyond artifact and samples, against {MEMORY_LIMIT_MIB:g} MiB",
        "MiB",
        Bar("at most", 1.0) if backend == "tflite" else None,
    )

    def run(turn: int) -> Mapping[str, Measured]:
        job = job_for(bench, cell(backend, scheme, scenario), profile(LOADGEN_S), name, turn)
        timed = stopwatch.run(job.model_copy(update={"probe": True, "operators": first}))
        beside = timed.wall_s - loadgen_s(timed.record)
        where_ms = {name: took * 1e3 for name, took in timed.phases_s.items()}
        where_ms["LoadGen"] -= loadgen_s(timed.record) * 1e3  # what it measured is not counted
        detail = {**in_force(timed.record), "where_ms": where_ms}
        return {
            checks.name: Measured(beside, CHECKS_LIMIT_S, detail),
            memory.name: Measured(
                beyond_mib(timed.record), MEMORY_LIMIT_MIB, {"peak_rss_mb": timed.record.peak_rss_mb}
            ),
        }

    return Step((checks, memory), run, rounds=3)


def loadgen_s(record: Record) -> float:
    """Seconds that LoadGen measured. Raises ``EdgeqError`` where it measured nothing."""
    if record.duration_s is None:
        why = record.reason.text if record.reason else record.status
        raise EdgeqError(f"{record.cell} was not measured", why, "run it on a quiet machine", code="no-figure")
    return record.duration_s


def beyond_mib(record: Record) -> float:
    """Peak memory of a worker beyond its artifact's files and the samples in memory, in MiB."""
    if record.peak_rss_mb is None or record.artifact is None:
        raise EdgeqError(f"{record.cell} has no peak memory", "its record says none", "see its log", code="no-figure")
    return (record.peak_rss_mb * 1e6 - record.artifact.bytes - RESIDENT * SAMPLE_BYTES) / _MIB


def _estimate(bench: Bench) -> Step:
    claim = Claim(
        "resources/canary/fp16/estimate",
        "the canary's estimate and what LoadGen's run then took, the longer against the shorter: PyTorch fp16",
        "s",
        Bar("at most", ESTIMATE_RATIO),
    )

    def run(turn: int) -> Mapping[str, Measured]:
        wanted = profile(0.0, offline_samples=SLOW_SAMPLES)
        timed = stopwatch.run(job_for(bench, cell("pytorch", "fp16", OFFLINE), wanted, claim.name, turn))
        took = loadgen_s(timed.record)
        assert timed.record.canary is not None  # as LoadGen ran
        estimate = timed.record.canary.estimate_s
        detail = {"estimate_s": estimate, "took_s": took, "wall_s": timed.wall_s}
        return {claim.name: Measured(max(estimate, took), min(estimate, took), detail)}

    return Step((claim,), run, rounds=1)


def _skipped(bench: Bench) -> Step:
    claim = Claim(
        "resources/canary/fp16/skipped",
        f"how long it takes to skip a cell as too slow, against its budget of {SHORT_BUDGET_S:g} s: PyTorch fp16",
        "s",
        Bar("at most", 1.0),
    )

    def run(turn: int) -> Mapping[str, Measured]:
        wanted = profile(0.0, offline_samples=MANY_SAMPLES).model_copy(update={"cell_budget_s": SHORT_BUDGET_S})
        timed = stopwatch.run(job_for(bench, cell("pytorch", "fp16", OFFLINE), wanted, claim.name, turn))
        if timed.record.status != "skipped":
            why = f"its run takes no longer than {SHORT_BUDGET_S:g} s on this device"
            raise EdgeqError("PyTorch fp16 was not skipped", why, "nothing is to be shown here", code="no-figure")
        detail = {"reason": timed.record.reason.text if timed.record.reason else None, "phases_s": timed.phases_s}
        return {claim.name: Measured(timed.wall_s, SHORT_BUDGET_S, detail)}

    return Step((claim,), run, rounds=2)
