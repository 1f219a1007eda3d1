"""What LoadGen and edgeq cost: against a bare loop over the same session, and with no model at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from benchmarks.bars import Bar, Claim, Measured
from benchmarks.bench import Bench, Step
from benchmarks.cells import RESIDENT, cell, in_force, measure_cell, synthetic_samples
from edgeq.spec.names import BACKENDS, NO_MODEL, NULL, OFFLINE, SINGLE_STREAM

#: Seconds of LoadGen and of the bare loop together, each half of it; of a slice of either.
BOTH_S, SLICE_S = 4.8, 0.05
#: Seconds of a run without a model; of one that shows where the time goes.
NULL_S, PARTS_S = 1.0, 1.0
SCHEMES = ("fp32", "int8-static")

QUERY_LIMIT_US, SAMPLE_LIMIT_US = 10.0, 5.0


class Job(BaseModel):
    """What ``benchmarks.harness_child`` and ``benchmarks.parts_child`` are asked for."""

    manifest: Path
    file: Path
    threads: int
    samples: dict[str, Any]
    """For ``edgeq.data.samples.open_samples``."""
    seconds: float
    slice_s: float
    log_dir: Path


def steps(bench: Bench) -> list[Step]:
    """A row a backend and scheme; two without a model."""
    found = [_against_loop(bench, backend, scheme) for backend in BACKENDS for scheme in SCHEMES]
    return [*found, _null(bench, SINGLE_STREAM, QUERY_LIMIT_US), _null(bench, OFFLINE, SAMPLE_LIMIT_US)]


def _against_loop(bench: Bench, backend: str, scheme: str) -> Step:
    claim = Claim(
        f"harness/{backend}/{scheme}",
        "single-stream p50 of LoadGen against a bare loop over the same session, slice by slice in one process",
        "ms",
        Bar("at most", 1.02, slack=0.05),
    )

    def run(turn: int) -> Mapping[str, Measured]:
        told = _told("benchmarks.harness_child", bench, backend, scheme, claim.name, turn, BOTH_S, RESIDENT)
        detail = {name: told[name] for name in ("where_ms", "loadgen_p50_ms", "queries", "calls", "slices")}
        return {claim.name: Measured(told["ours_ms"], told["loop_ms"], detail)}

    return Step((claim,), run)


def parts_ms(bench: Bench, backend: str, scheme: str, name: str, turn: int) -> dict[str, float]:
    """Where a single-stream query of one sample goes: a part's name and its median, from a run of its own.

    Args:
        name: Of the row, for the folder of its logs.
        turn: The round, from 0.
    """
    told = _told("benchmarks.parts_child", bench, backend, scheme, f"{name}/parts", turn, PARTS_S, 1)
    parts: dict[str, float] = told["where_ms"]
    return parts


def _told(
    module: str, bench: Bench, backend: str, scheme: str, name: str, turn: int, seconds: float, samples: int
) -> dict[str, Any]:
    path, _, file = bench.artifact(backend, scheme)
    folder = bench.folder(name, turn)
    job = Job(
        manifest=path, file=file, threads=bench.threads, samples=synthetic_samples(bench, count=samples),
        seconds=seconds, slice_s=SLICE_S, log_dir=folder / "loadgen",
    )  # fmt: skip
    return bench.child(module, job, folder)


def _null(bench: Bench, scenario: str, limit_us: float) -> Step:
    per = "query" if scenario == SINGLE_STREAM else "sample"
    text = f"overhead a {per} without a model, against the limit"
    claim = Claim(f"harness/{NULL}/{scenario}", text, "µs", Bar("at most", 1.0))

    def run(turn: int) -> Mapping[str, Measured]:
        record = measure_cell(bench, cell(NULL, NO_MODEL, scenario), NULL_S, claim.name, turn)
        assert record.overhead_us is not None
        overhead = record.overhead_us.per_query if scenario == SINGLE_STREAM else record.overhead_us.per_sample
        return {claim.name: Measured(overhead, limit_us, in_force(record))}

    return Step((claim,), run)
