"""Records with plausible figures, and result folders made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from edgeq.artifact import FileEntry, WeightsInfo
from edgeq.operators import Group, OperatorProfile, OperatorTime, profile_of
from edgeq.run.record import (
    Accuracy,
    ArtifactInfo,
    CalibrationSummary,
    EffectiveInfo,
    Interval,
    Latency,
    LoadgenInfo,
    OutputCheck,
    Overhead,
    ProbeInfo,
    Record,
    Round,
    RunInfo,
    record_path,
    write_record,
)
from edgeq.spec.names import Cell
from edgeq.spec.note import Note

BOARD = {"name": "Intel Xeon Processor 6-207, 2 cores", "slug": "xeon", "cpu": "Intel(R) Xeon(R) Processor",
         "isa": ["avx2", "vnni"], "cores": 2, "emulated": False}  # fmt: skip
PI = {
    "name": "Raspberry Pi 4 Model B",
    "slug": "pi4",
    "cpu": "Cortex-A72",
    "isa": ["neon"],
    "cores": 4,
    "emulated": False,
}
QEMU = {**PI, "name": "emulated aarch64 Cortex-A72, 4 cores", "slug": "qemu", "emulated": True}
QUICK = {"name": "quick", "title": "quick look (not comparable with MLPerf)"}
VERSIONS = {"openvino": "2026.4.1", "tflite": "2.3.0", "onnxruntime": "1.32.0", "pytorch": "2.14.1"}

RANDOM = Note(
    code="random-weights", text="weights are random, seed 0: accuracy means nothing", hint="--weights pretrained"
)


def run_info(run: str = "r1", order: int = 0, day: str = "2026-01-02") -> RunInfo:
    return RunInfo(id=run, profile="quick", title=QUICK["title"], order=order,
                   started=f"{day}T03:{order % 60:02d}:00+00:00")  # fmt: skip


def artifact(scheme: str, *, weights: str = "file", mb: float = 14.0) -> ArtifactInfo:
    names = {"random": "random, seed 0", "file": "mobilenet_v2-rot180.safetensors", "pretrained": "IMAGENET1K_V1"}
    size = round(mb * 1e6)
    info = WeightsInfo.model_validate({"kind": weights, "name": names[weights], "sha256": "c" * 64})
    return ArtifactInfo(
        file=f"models/m/{scheme}.bin", files=[FileEntry(name=f"{scheme}.bin", sha256="a" * 64, bytes=size)], bytes=size,
        target="any", key="k", weights=info,
        calibration=CalibrationSummary(kind="folder", path="images", count=128, seed=0, sha256="d" * 64),
    )  # fmt: skip


def latency(ms: float) -> Latency:
    return Latency(mean=ms * 0.9, p50=ms * 0.88, p90=ms, p95=ms * 1.1, p99=ms * 1.3, max=ms * 2)


def intervals(ms: float, size: int, spread: float, n: int = 12) -> dict[str, Interval]:
    """As the worker draws them from blocks of one round; ``spread`` is half of each, as a part of the figure."""
    values = {f"latency_ms.{name}": value for name, value in latency(ms * size).model_dump().items() if name != "max"}
    values["samples_per_second"] = 1000 / ms
    return {
        name: Interval(low=value * (1 - spread), high=value * (1 + spread), n=n, of="blocks")
        for name, value in values.items()
    }


def with_rounds(found: Record, factors: Iterable[float], spread: float = 0.02) -> Record:
    """``found`` measured in rounds, each so many times as slow as the record's own figures; 0 is a round that failed.

    ``spread`` is half of the interval over rounds, as a part of the figure.
    """
    rounds, size = [], 8 if found.cell.scenario == "multi-stream" else 1
    rate = found.samples_per_second or 1.0
    for number, factor in enumerate(factors, start=1):
        lost = Note(code="killed", text="killed")
        rounds.append(
            Round(
                round=number, order=number, started=found.run.started, folder=f"round-{number}",
                status="ok" if factor else "failed", reason=None if factor else lost,
                latency_ms=latency(1000 / rate * factor * size) if factor and found.latency_ms else None,
                samples_per_second=rate / factor if factor else None,
            )
        )  # fmt: skip
    over = {
        name: each.model_copy(update={"low": middle * (1 - spread), "high": middle * (1 + spread), "n": len(rounds),
                                      "of": "rounds"})
        for name, each in found.intervals.items()
        for middle in [(each.low + each.high) / 2]
    }  # fmt: skip
    return found.model_copy(update={"rounds": rounds, "intervals": over})


def profile(ms: float, **parts: float) -> OperatorProfile:
    """A profile of ``ms`` milliseconds; ``parts`` are its shares by group, with ``_`` for a space."""
    names: dict[str, Group] = {"convolution": "convolution", "depthwise": "depthwise", "convert": "convert",
                               "fully_connected": "fully connected", "other": "other"}  # fmt: skip
    kinds = {"convolution": "Conv", "depthwise": "DepthwiseConv", "convert": "Cast", "fully_connected": "MatMul"}
    nodes = [
        OperatorTime(name=f"{kinds.get(name, 'Add')}_0", operator=kinds.get(name, "Add"), group=names[name],
                     precision="fp32", ms=ms * part)
        for name, part in parts.items()
    ]  # fmt: skip
    return profile_of(nodes, tool="ONNX Runtime profiler", threads=2, inferences=20, profiled_ms=ms, plain_ms=ms * 0.95)


SATURATES = ProbeInfo(recipe="u8 x s8", expected=63.36, found=32.3, ok=False)
SATURATION = Note(
    code="saturation", text="products saturate in 16 bits here: 32.3 for 63.4", hint="edgeq export --target x86_64"
)


def record(
    cell: str | Cell, ms: float = 10.0, *, spread: float | None = 0.02, percentile: float = 0.9,
    weights: str = "file", mb: float = 14.0,
    macs: dict[str, float] | None = None, top1: float | None = None, warnings: Iterable[Note] = (),
    stable: bool = True, sqnr: float | None = 40.0, agreement: float = 1.0, device: dict[str, Any] | None = None,
    run: RunInfo | None = None, **changes: Any,
) -> Record:  # fmt: skip
    """An ``ok`` record of a cell that takes ``ms`` a sample at p90; ``changes`` replace fields.

    ``spread`` is half of each interval as a part of its figure; None for a record without intervals.
    """
    cell = Cell.parse(cell) if isinstance(cell, str) else cell
    offline, size = cell.scenario == "offline", 8 if cell.scenario == "multi-stream" else 1
    promised = "int8" if cell.scheme.startswith("int8") else cell.scheme
    fields: dict[str, Any] = {
        "cell": cell, "status": "ok", "run": run or run_info(), "device": device or BOARD,
        "artifact": artifact(cell.scheme, weights=weights, mb=mb),
        "versions": {cell.backend: VERSIONS.get(cell.backend, "1"), "python": "3.11.2"},
        "effective": EffectiveInfo(threads=2, streams=1, batch=1, engine="x",
                                   macs={promised: 1.0} if macs is None else macs),
        "latency_ms": None if offline else latency(ms * size), "samples_per_second": 1000 / ms,
        "queries": 64, "samples": 64 * size, "duration_s": 3.0, "peak_rss_mb": 120.0,
        "output_check": OutputCheck(sqnr_db=sqnr, top1_agreement=agreement, n=32, stable=stable),
        "accuracy": None if top1 is None else Accuracy(top1=top1, top5=min(1.0, top1 + 0.13), agreement_with_fp32=0.97,
                                                       n=372, dataset="nips17", preprocessing="x"),
        "loadgen": LoadgenInfo(version="6.0.17", scenario=cell.scenario, valid=True,
                               percentile=None if offline else percentile),
        "warnings": list(warnings), "intervals": {} if spread is None else intervals(ms, size, spread),
    }  # fmt: skip
    return Record(**{**fields, **changes})


def null_record(scenario: str, us: float, run: RunInfo | None = None) -> Record:
    return record(Cell("none", "null", "none", scenario), us / 1000, artifact=None, output_check=None, effective=None,
                  overhead_us=Overhead(per_query=us, per_sample=us), run=run)  # fmt: skip


def write_run(results: Path, records: Iterable[Record], *, device: dict[str, Any] | None = None, run: str = "r1",
              planned: Iterable[str] = ()) -> Path:  # fmt: skip
    """A run's folder; ``planned`` are cells asked for beyond those that have records."""
    device = device or BOARD
    folder, found = results / str(device["slug"]) / run, list(records)
    for each in found:
        write_record(record_path(folder, each.cell), each)
    cells = list(dict.fromkeys([*(str(each.cell) for each in found), *planned]))
    folder.mkdir(parents=True, exist_ok=True)
    header = {"schema": 1, "run": run, "device": device, "profile": QUICK, "cells": cells, "request": {}}
    (folder / "run.json").write_text(json.dumps(header))
    return folder


FLOAT_MS = {"openvino": 9.1, "tflite": 14.0, "onnxruntime": 11.2, "pytorch": 12.6}
LOSS = Note(
    code="accuracy-loss", text="top-1 is 18.0 points below this framework's fp32", hint="use PT2E or another framework"
)
MEMORY_NOTE = Note(
    code="high-memory", text="the worker's peak | is above 80 % of what is free", hint="close other programs"
)


def study(scenarios: Iterable[str] = ("single-stream", "multi-stream", "offline"), *, weights: str = "file",
          model: str = "mobilenet_v2") -> list[Record]:  # fmt: skip
    """A whole matrix of one model: all schemes, with every kind of outcome in it."""
    found: list[Record] = []
    for backend, ms in FLOAT_MS.items():
        for scenario in scenarios:
            found += _of(f"{model}/{backend}", scenario, ms, weights)
    return [each.model_copy(update={"run": run_info(order=order)}) for order, each in enumerate(found)]


def _of(prefix: str, scenario: str, ms: float, weights: str) -> list[Record]:
    backend = prefix.split("/")[1]
    told = None if weights == "random" else 0.803
    notes = [RANDOM] if weights == "random" else []
    base: dict[str, Any] = {"weights": weights, "warnings": notes}
    found = [record(f"{prefix}/fp32/{scenario}", ms, top1=told, sqnr=None, **base)]
    half = f"{prefix}/fp16/{scenario}"
    if backend == "pytorch" and scenario != "single-stream":
        slow = Note(
            code="too-slow", text="the canary took 409 ms a sample: 105 s planned, budget 30 s", hint="--profile paper"
        )
        found.append(Record.skipped(Cell.parse(half), slow, run_info(), device=BOARD))
    else:
        found.append(record(half, ms * 1.02, top1=told, mb=7.1, sqnr=71.2, macs={"fp32": 1.0}, **base))
    fast = {"openvino": 2.6, "tflite": 5.1, "onnxruntime": 3.3, "pytorch": 8.0}[backend]
    lossy = backend == "pytorch" and told is not None
    found.append(record(f"{prefix}/int8-static/{scenario}", fast, mb=3.9, sqnr=9.0 if lossy else 19.4, weights=weights,
                        top1=told and told - (0.18 if lossy else 0.008), agreement=0.7 if lossy else 0.97,
                        warnings=[*notes, *([LOSS] if lossy else [])], macs={"int8": 0.98, "fp32": 0.02}))  # fmt: skip
    found.append(_dynamic(Cell.parse(f"{prefix}/int8-dynamic/{scenario}"), ms, base, told))
    return found


def _dynamic(cell: Cell, ms: float, base: dict[str, Any], told: float | None) -> Record:
    if cell.backend == "onnxruntime":
        killed = Note(code="killed", text="the worker was killed by signal 9, and the kernel counted no lack of memory",
                      hint="run it again with --resume")  # fmt: skip
        return Record.failed(cell, killed, run_info(), device=BOARD)
    if cell.backend == "tflite" and cell.scenario == "offline":
        short = Note(code="invalid", text="LoadGen: 63 queries, early stopping needs 64", hint="--profile paper")
        valid = LoadgenInfo(version="6.0.17", scenario="offline", valid=False)
        return record(cell, ms, mb=3.9, status="invalid", reason=short, loadgen=valid, **base)
    linear = cell.backend == "pytorch"
    return record(cell, ms * 0.98, mb=10.2 if linear else 3.9, top1=told, weights=base["weights"], sqnr=33.3,
                  warnings=[*base["warnings"], MEMORY_NOTE],
                  macs={"int8": 0.0043, "fp32": 0.9957} if linear else None)  # fmt: skip
