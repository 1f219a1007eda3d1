"""How edgeq's figures and its memory hold as threads, samples and records become more."""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Callable, Mapping

from benchmarks import linear, many_records, stopwatch
from benchmarks.bars import Bar, Claim, Measured
from benchmarks.bench import Bench, Step, in_turn
from benchmarks.cells import cell, cpu_ms, in_force, job_for, measure_cell, profile, rate, run_info
from benchmarks.resources import loadgen_s
from edgeq.run.job import WorkerJob
from edgeq.run.record import FILE_NAME, Record
from edgeq.setting import default_setting
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import OFFLINE, SINGLE_STREAM

THREADED = ("tflite", "onnxruntime", "openvino")
SCHEME = "int8-static"
#: Seconds of LoadGen, for each number of threads.
LOADGEN_S = 2.0
#: T threads are to give so many times one thread's throughput, a thread.
THREAD_SHARE = 0.8

FEW, SAMPLES = 1_000, (10_000, 50_000)
MANY = SAMPLES[-1]
#: Peak memory with many samples over that with few, and throughput.
MEMORY_RATIO, RATE_RATIO = 1.1, 0.95

RECORDS, REPORT_LIMIT_S = (100, 1_000, 10_000), 10.0


def steps(bench: Bench) -> list[Step]:
    """Threads (where there are several), samples, records, and an accuracy run."""
    threads = [_threads(bench, backend) for backend in THREADED] if bench.threads > 1 else []
    return [*threads, _samples(bench), _accuracy(bench), _report(bench)]


def _threads(bench: Bench, backend: str) -> Step:
    count = bench.threads
    claim = Claim(
        f"scale/threads/{backend}",
        f"offline throughput of {SCHEME} with {count} threads against one",
        "samples/s",
        Bar("at least", THREAD_SHARE * count),
    )

    def run(turn: int) -> Mapping[str, Measured]:
        found: dict[int, Record] = {}

        def measured(threads: int) -> float:
            setting = default_setting(OFFLINE, threads)
            found[threads] = measure_cell(bench, cell(backend, SCHEME), LOADGEN_S, claim.name, turn, setting=setting)
            return rate(found[threads])

        both = in_turn(turn, lambda: measured(count), lambda: measured(1))
        cpu = {"cpu_ms": cpu_ms(found[count]), "cpu_ms_one": cpu_ms(found[1])}
        return {claim.name: Measured(both.ours, both.theirs, in_force(found[count]) | cpu)}

    return Step((claim,), run, rounds=3)


def _samples(bench: Bench) -> Step:
    rates, peaks = {}, {}
    for count in SAMPLES:
        place, last = f"scale/samples/{count}", count == MANY
        text = f"{count:,} samples offline (TFLite {SCHEME}) against {FEW:,}"
        rates[count] = Claim(
            f"{place}/rate", f"throughput with {text}", "samples/s", Bar("at least", RATE_RATIO) if last else None
        )
        peaks[count] = Claim(
            f"{place}/memory", f"peak memory with {text}", "MB", Bar("at most", MEMORY_RATIO) if last else None
        )

    def run(turn: int) -> Mapping[str, Measured]:
        def offline(count: int) -> Record:
            wanted = profile(0.0, offline_samples=count)
            record = stopwatch.run(
                job_for(bench, cell("tflite", SCHEME), wanted, f"scale/samples/{count}", turn)
            ).record
            loadgen_s(record)
            if record.samples != count:
                why = f"LoadGen issued {record.samples}"
                raise EdgeqError(f"{count} samples were asked for", why, "report this as a bug", code="no-figure")
            return record

        few, found = [offline(FEW)], {}
        for count in SAMPLES:
            found[count] = offline(count)
            few.append(offline(FEW))  # a run of a second says little of a machine whose speed changes within minutes
        few_rate, few_peak = statistics.geometric_mean(map(rate, few)), max(map(_peak_mb, few))
        few_cpu = statistics.geometric_mean(map(cpu_ms, few))
        return {
            claim.name: Measured(figure(record), beside, {"cpu_ms": cpu_ms(record), "cpu_ms_few": few_cpu})
            for count, record in found.items()
            for claim, figure, beside in ((rates[count], rate, few_rate), (peaks[count], _peak_mb, few_peak))
        }

    return Step(tuple(claim for count in SAMPLES for claim in (rates[count], peaks[count])), run, rounds=1)


def _peak_mb(record: Record) -> float:
    assert record.peak_rss_mb is not None  # Linux tells it of any process
    return record.peak_rss_mb


def _accuracy(bench: Bench) -> Step:
    claim = Claim(
        "scale/accuracy/memory",
        f"peak memory of an accuracy run over {MANY:,} synthetic samples against {FEW:,} "
        f"(ONNX Runtime, a small network over {linear.SIDE} x {linear.SIDE} pixels)",
        "MB",
        Bar("at most", MEMORY_RATIO),
    )

    def run(turn: int) -> Mapping[str, Measured]:
        models = bench.folder(f"{claim.name}/models", turn)
        path, manifest = linear.write_artifact(models)
        wanted = profile(0.0)

        def peak_mb(count: int) -> float:
            samples = linear.write_samples(models / f"{count}.npy", count)
            job = WorkerJob(
                mode="accuracy",
                cell=linear.CELL,
                manifest=path,
                artifact_key=manifest.key,
                target=bench.target,
                threads=bench.threads,
                setting=default_setting(OFFLINE, bench.threads),
                profile=wanted,
                samples=samples.to_spec(),
                dataset=samples.path,
                folder=bench.folder(f"{claim.name}/{count}", turn),
                run=run_info(wanted, turn),
                device=dict(bench.device),
            )
            told = bench.child("benchmarks.accuracy_child", job, job.folder, limit_s=900)
            if told["judged"] != count:
                why = f"{told['judged']} of {count} samples were judged"
                raise EdgeqError("the accuracy run is not whole", why, "look at its logs: --keep DIR", code="no-figure")
            return float(told["peak_bytes"]) / 1e6

        found = in_turn(turn, lambda: peak_mb(MANY), lambda: peak_mb(FEW))
        shutil.rmtree(models)
        return {claim.name: found}

    return Step((claim,), run, rounds=3)


def _report(bench: Bench) -> Step:
    claims = {
        count: Claim(
            f"scale/report/{count}",
            f"edgeq report over {count:,} records, against {REPORT_LIMIT_S:g} s",
            "s",
            Bar("at most", 1.0) if count == RECORDS[-1] else None,
        )
        for count in RECORDS
    }
    old = Claim(
        "scale/report/history",
        f"edgeq report on the newest run of {RECORDS[-1]:,} records, against {REPORT_LIMIT_S:g} s",
        "s",
        Bar("at most", 1.0),
    )

    def run(turn: int) -> Mapping[str, Measured]:
        job = job_for(bench, cell("onnxruntime", "fp32", SINGLE_STREAM), profile(2.0), "scale/report/record", turn)
        timed = stopwatch.run(job.model_copy(update={"operators": True}))
        loadgen_s(timed.record)
        template = many_records.Template.read(job.folder / FILE_NAME)
        found = {
            claims[count].name: _reported(bench, claims[count], turn, template.write_devices, count)
            for count in RECORDS
        }
        return {**found, old.name: _reported(bench, old, turn, template.write_history, RECORDS[-1])}

    return Step((*claims.values(), old), run, rounds=1)


def _reported(bench: Bench, claim: Claim, turn: int, write: Callable[..., None], count: int) -> Measured:
    folder = bench.folder(claim.name, turn)
    results = folder / "results"
    write(results, count)
    began = time.perf_counter()
    bench.command([sys.executable, "-m", "edgeq", "report", "--results", str(results)], folder)
    took = time.perf_counter() - began
    shutil.rmtree(results)
    return Measured(took, REPORT_LIMIT_S)
