"""OpenVINO by edgeq against OpenVINO's own ``benchmark_app``: the same IR, hint, precision and threads.

``benchmark_app`` fills its inputs once and times the inference alone; latencies are the request's own, measured in C++. Its
``-nthreads`` excludes a hint, so the number of threads goes in by ``-load_config``. ``-ip f32``: it would feed pixels as
uint8 otherwise.

Latencies are medians, so that both are measured at the same time, in slices (``benchmarks.turnstile``); throughputs are not.

It infers one input a request over and over, which stays in the caches. So does edgeq's cell here: as many samples as there
are requests. (With 64, each comes from memory, which takes its time in any harness.)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar, Claim, Measured
from benchmarks.bench import Bench, Step, in_turn, tool
from benchmarks.cells import cell, in_force, measure_cell, p50_ms, rate
from benchmarks.harness import parts_ms
from benchmarks.turnstile import side_by_side
from edgeq.files import write_json
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import OFFLINE, SINGLE_STREAM

SECONDS = 2
#: Where both are measured at once: each has half of it.
BOTH_SECONDS = 5
SCHEMES = ("fp32", "int8-static")


@dataclass(frozen=True)
class Report:
    """What ``benchmark_app`` found."""

    median_ms: float
    per_second: float
    iterations: int
    requests: int


def parse_report(text: str) -> Report:
    """Reads ``benchmark_report.json`` (``-json_stats``).

    Raises:
        EdgeqError: a figure is missing, or is none (code ``no-figure``).
    """
    try:
        value = json.loads(text)
        results, setup = value["execution_results"], value["configuration_setup"]
        found = Report(
            float(results["latency (ms)"]),
            float(results["throughput"]),
            int(results["total number of iterations"]),
            int(setup["number of parallel infer requests"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise EdgeqError(
            "benchmark_app's report can't be read", f"{type(error).__name__}: {error}", "see docs of its version",
            code="no-figure",
        ) from error  # fmt: skip
    return found


def arguments(app: Path, file: Path, hint: str) -> list[str]:
    """Its command line; ``threads.json`` is in the working folder."""
    return [
        str(app), "-m", str(file), "-d", "CPU", "-hint", hint, "-infer_precision", "f32", "-ip", "f32",
        "-t", str(BOTH_SECONDS if hint == "latency" else SECONDS), "-load_config", "threads.json",
        "-report_type", "no_counters", "-report_folder", ".", "-json_stats",
    ]  # fmt: skip


def steps(bench: Bench) -> list[Step]:
    """Latency and throughput, a row a scheme."""
    return [_step(bench, scheme, hint) for scheme in SCHEMES for hint in ("latency", "throughput")]


def _step(bench: Bench, scheme: str, hint: str) -> Step:
    latency = hint == "latency"
    text = "single-stream p50 against its median latency" if latency else "offline samples against its throughput"
    bar = Bar("at most", 1.03) if latency else Bar("at least", 0.97)
    claim = Claim(f"openvino_app/{scheme}/{hint}", f"benchmark_app: {text}", "ms" if latency else "samples/s", bar)

    def run(turn: int) -> Mapping[str, Measured]:
        detail: dict[str, Any] = {}

        def ours() -> float:
            scenario = SINGLE_STREAM if latency else OFFLINE
            samples = 1 if latency else bench.threads
            wanted = cell("openvino", scheme, scenario)
            record = measure_cell(
                bench, wanted, BOTH_SECONDS if latency else SECONDS, claim.name, turn, resident=samples
            )
            detail.update(in_force(record, alone=not latency))
            return p50_ms(record) if latency else rate(record)

        def theirs() -> float:
            report = _run_app(bench, scheme, hint, bench.folder(f"{claim.name}/app", turn))
            detail.update(app_requests=report.requests, app_iterations=report.iterations)
            return report.median_ms if latency else report.per_second

        found = side_by_side(ours, theirs) if latency else in_turn(turn, ours, theirs)
        if latency:
            detail["where_ms"] = parts_ms(bench, "openvino", scheme, claim.name, turn)
        return {claim.name: Measured(found.ours, found.theirs, detail)}

    return Step((claim,), run)


def _run_app(bench: Bench, scheme: str, hint: str, folder: Path) -> Report:
    _, _, file = bench.artifact("openvino", scheme)
    write_json(folder / "threads.json", {"CPU": {"INFERENCE_NUM_THREADS": str(bench.threads)}})
    bench.command(arguments(tool("benchmark_app"), file, hint), folder)
    try:
        return parse_report((folder / "benchmark_report.json").read_text(encoding="utf-8"))
    except OSError as error:
        why = error.strerror or str(error)
        raise EdgeqError(
            "benchmark_app left no report", why, "see its stdout.txt: --keep DIR", code="no-figure"
        ) from error
