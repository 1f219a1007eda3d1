"""edgeq offline against a plain harness in the style of MLPerf's reference (``reference_child``).

The reference takes its items one sample at a time: "a queue of queries". ``BATCH`` is for trying others by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from benchmarks.bars import Bar, Claim, Measured
from benchmarks.bench import Bench, Step, in_turn
from benchmarks.cells import cell, cpu_ms, in_force, measure_cell, rate, synthetic_samples
from edgeq.run.runner import MOST_TRIES
from edgeq.spec.errors import EdgeqError

SECONDS = 1.5
#: Fewer than others have: the bars are far from what is measured.
ROUNDS = 3
SCHEMES = ("fp32", "int8-static")
BARS = {"onnxruntime": 1.3, "tflite": 1.3, "pytorch": 1.0}
BATCH = 1


class Job(BaseModel):
    """What ``benchmarks.reference_child`` is asked for."""

    manifest: Path
    file: Path
    threads: int
    batch: int
    """Samples an item of the queue at most."""
    samples: dict[str, Any]
    """For ``edgeq.data.samples.open_samples``."""
    seconds: float
    sample_s: float | None = None
    """Plans LoadGen's run, where an earlier one by the child's own measurement ended before its time."""
    log_dir: Path


def steps(bench: Bench) -> list[Step]:
    """A row a backend and scheme."""
    return [_step(bench, backend, scheme) for backend in BARS for scheme in SCHEMES]


def _step(bench: Bench, backend: str, scheme: str) -> Step:
    text = "offline against a queue, T Python threads and one shared session"
    claim = Claim(f"reference/{backend}/{scheme}", text, "samples/s", Bar("at least", BARS[backend]))

    def run(turn: int) -> Mapping[str, Measured]:
        where_ms: dict[str, float] = {}
        detail: dict[str, Any] = {"where_ms": where_ms}

        def ours() -> float:
            record = measure_cell(bench, cell(backend, scheme), SECONDS, claim.name, turn)
            detail.update(in_force(record))
            where_ms["CPU time a sample, edgeq"] = cpu_ms(record)
            return rate(record)

        def theirs() -> float:
            told = _run_reference(bench, backend, scheme, f"{claim.name}/reference", turn)
            detail.update({f"reference_{name}": value for name, value in told.items()})
            per_second = float(told["samples_per_second"])
            where_ms["reference"] = told["cpus"] / per_second * 1e3
            where_ms["left idle a sample, reference"] = (bench.threads - told["cpus"]) / per_second * 1e3
            return per_second

        found = in_turn(turn, ours, theirs)
        return {claim.name: Measured(found.ours, found.theirs, detail)}

    return Step((claim,), run, rounds=ROUNDS)


def _run_reference(bench: Bench, backend: str, scheme: str, name: str, turn: int) -> dict[str, Any]:
    """What the child told; planned anew as edgeq's own cells are, where its rate rose after it was planned."""
    path, _, file = bench.artifact(backend, scheme)
    samples = synthetic_samples(bench)
    sample_s: float | None = None
    told: dict[str, Any] = {}
    for _ in range(MOST_TRIES):
        folder = bench.folder(name, turn)
        job = Job(
            manifest=path, file=file, threads=bench.threads, batch=BATCH, samples=samples, seconds=SECONDS,
            sample_s=sample_s, log_dir=folder / "loadgen",
        )  # fmt: skip
        told = bench.child("benchmarks.reference_child", job, folder, plain=True)
        if told["valid"]:
            return told
        sample_s = 1 / told["samples_per_second"]
    why = "its rate rose each time after it was planned"
    raise EdgeqError("the reference harness ended too soon", why, "run it again on a quiet machine", code="no-figure")
