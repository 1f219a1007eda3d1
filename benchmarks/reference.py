"""edgeq offline against a plain harness in the style of MLPerf's reference (``reference_child``).

The reference takes its items one sample at a time: "a queue of queries". ``BATCH`` is for trying others by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from benchmarks.bars import Bar, Claim, Measured
from benchmarks.bench import MODEL, Bench, Step, in_turn
from benchmarks.cells import RESIDENT, cell, in_force, measure_cell, rate
from edgeq.data.samples import synthetic
from edgeq.run.samples import SEED_OFFSET
from edgeq.spec.model import load_model

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
    log_dir: Path


def steps(bench: Bench) -> list[Step]:
    """A row a backend and scheme."""
    return [_step(bench, backend, scheme) for backend in BARS for scheme in SCHEMES]


def _step(bench: Bench, backend: str, scheme: str) -> Step:
    text = "offline against a queue, T Python threads and one shared session"
    claim = Claim(f"reference/{backend}/{scheme}", text, "samples/s", Bar("at least", BARS[backend]))

    def run(turn: int) -> Mapping[str, Measured]:
        detail: dict[str, Any] = {}

        def ours() -> float:
            record = measure_cell(bench, cell(backend, scheme), SECONDS, claim.name, turn)
            detail.update(in_force(record))
            return rate(record)

        def theirs() -> float:
            path, _, file = bench.artifact(backend, scheme)
            folder = bench.folder(f"{claim.name}/reference", turn)
            job = Job(
                manifest=path, file=file, threads=bench.threads, batch=BATCH, seconds=SECONDS,
                samples=synthetic(load_model(bench.models, MODEL), RESIDENT, SEED_OFFSET).to_spec(),
                log_dir=folder / "loadgen",
            )  # fmt: skip
            told = bench.child("benchmarks.reference_child", job, folder, plain=True)
            detail.update({f"reference_{name}": value for name, value in told.items()})
            return float(told["samples_per_second"])

        found = in_turn(turn, ours, theirs)
        return {claim.name: Measured(found.ours, found.theirs, detail)}

    return Step((claim,), run, rounds=ROUNDS)
