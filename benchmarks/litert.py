"""TFLite by edgeq against LiteRT's own ``litert-benchmark``: the same file and threads.

The tool times ``CompiledModel.run_by_name`` on buffers that it filled once: neither the input's copy nor the output's is in
its time. edgeq's interpreter copies a sample in and logits out (``set_tensor``, ``get_tensor``), and both count. The tool
infers one input over and over, which stays in the caches; so does edgeq's cell here, with one sample.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar, Claim, Measured
from benchmarks.bench import Bench, Step, tool
from benchmarks.cells import cell, in_force, measure_cell, p50_ms
from benchmarks.harness import parts_ms
from benchmarks.turnstile import side_by_side
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import SINGLE_STREAM

#: Of both at once (``benchmarks.turnstile``): each has half of it.
SECONDS = 5.0
SCHEMES = ("fp32", "int8-static")
#: Before its first timed run: its default of 5 ends before a clock has risen.
WARM_UP_S = 0.5
FEWEST_RUNS = 20


@dataclass(frozen=True)
class Result:
    """What ``litert-benchmark`` found."""

    median_ms: float
    runs: int
    threads: int
    fully_accelerated: bool


def parse_result(text: str) -> Result:
    """Reads what ``--result_json`` wrote.

    Raises:
        EdgeqError: a figure is missing, or is none (code ``no-figure``).
    """
    try:
        value = json.loads(text)
        latency = value["latency"]
        return Result(
            float(latency["median_ms"]), int(latency["num_runs"]), int(value["num_threads"]),
            bool(value["fully_accelerated"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise EdgeqError(
            "litert-benchmark's result can't be read", f"{type(error).__name__}: {error}", "see docs of its version",
            code="no-figure",
        ) from error  # fmt: skip


def arguments(app: Path, file: Path, threads: int, expected_ms: float) -> list[str]:
    """Its command line for half of ``SECONDS`` in runs of ``expected_ms`` each; it counts runs, not seconds."""
    runs, warm_up = (max(FEWEST_RUNS, round(s * 1e3 / expected_ms)) for s in (SECONDS / 2, WARM_UP_S))
    return [
        str(app), "--model", str(file), "--num_threads", str(threads), "--num_runs", str(runs),
        "--warmup_runs", str(warm_up), "--result_json", "result.json",
    ]  # fmt: skip


def steps(bench: Bench) -> list[Step]:
    """A row a scheme."""
    return [_step(bench, scheme) for scheme in SCHEMES]


def _step(bench: Bench, scheme: str) -> Step:
    text = "litert-benchmark: inferences a second, each 1 / median latency, single-stream"
    claim = Claim(f"litert/{scheme}", text, "1/s", Bar("at least", 0.97))
    expected_ms = [5.0]  # what an inference takes, by the last round

    def run(turn: int) -> Mapping[str, Measured]:
        detail: dict[str, Any] = {}

        def ours() -> float:
            record = measure_cell(bench, cell("tflite", scheme, SINGLE_STREAM), SECONDS, claim.name, turn, resident=1)
            detail.update(in_force(record, alone=False))
            return 1e3 / p50_ms(record)

        def theirs() -> float:
            result = _run_app(bench, scheme, bench.folder(f"{claim.name}/app", turn), expected_ms[0])
            detail.update(app_runs=result.runs, app_fully_accelerated=result.fully_accelerated)
            return 1e3 / result.median_ms

        found = side_by_side(ours, theirs)
        expected_ms[0] = 1e3 / found.theirs
        detail["where_ms"] = parts_ms(bench, "tflite", scheme, claim.name, turn)
        return {claim.name: Measured(found.ours, found.theirs, detail)}

    return Step((claim,), run)


def _run_app(bench: Bench, scheme: str, folder: Path, expected_ms: float) -> Result:
    _, _, file = bench.artifact("tflite", scheme)
    bench.command(arguments(tool("litert-benchmark"), file, bench.threads, expected_ms), folder)
    try:
        return parse_result((folder / "result.json").read_text(encoding="utf-8"))
    except OSError as error:
        why = error.strerror or str(error)
        raise EdgeqError(
            "litert-benchmark left no result", why, "see its stderr.txt: --keep DIR", code="no-figure"
        ) from error
