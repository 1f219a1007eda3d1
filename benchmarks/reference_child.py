"""``python -m benchmarks.reference_child JOB``: LoadGen offline over ``ReferenceSut``, with each framework's defaults."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cells import profile
from benchmarks.reference import Job
from benchmarks.reference_sut import Array, Predict, ReferenceSut
from edgeq.artifact import Manifest, read_manifest
from edgeq.data.samples import SampleSet, open_samples
from edgeq.events import emit, serve
from edgeq.loadgen.log import Outcome, read_outcome
from edgeq.loadgen.plan import Plan, plan_run
from edgeq.loadgen.settings import apply, loadgen_module
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import OFFLINE

#: Seconds of the threads' work before LoadGen: warms up, and gives the rate that the run is planned by.
WARM_UP_S = 0.5


@dataclass(frozen=True)
class _Sample:
    id: int
    index: int


def onnxruntime_predict(file: Path) -> Predict:
    """One session with ``SessionOptions`` as they come, which all threads call."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), onnxruntime.SessionOptions(), providers=["CPUExecutionProvider"])
    given, wanted = session.get_inputs()[0].name, [session.get_outputs()[0].name]

    def predict(batch: Array) -> Array:
        logits: Array = session.run(wanted, {given: batch})[0]
        return logits

    return predict


def tflite_predict(file: Path) -> Predict:
    """One interpreter with its own number of threads, behind a lock: it is not to be called by two at once."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter, lock = Interpreter(model_path=str(file)), threading.Lock()
    interpreter.allocate_tensors()
    given, wanted = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]
    size = [1]

    def predict(batch: Array) -> Array:
        with lock:
            if len(batch) != size[0]:
                interpreter.resize_tensor_input(given, batch.shape)
                interpreter.allocate_tensors()
                size[0] = len(batch)
            interpreter.set_tensor(given, batch)
            interpreter.invoke()
            logits: Array = interpreter.get_tensor(wanted)
        return logits

    return predict


def pytorch_predict(file: Path) -> Predict:
    """One module with torch's own number of threads, which all threads call."""
    import torch

    module = torch.jit.load(str(file)).eval()

    def predict(batch: Array) -> Array:
        with torch.no_grad():
            logits: Array = module(torch.tensor(batch).float()).numpy()
        return logits

    return predict


OPEN = {"onnxruntime": onnxruntime_predict, "tflite": tflite_predict, "pytorch": pytorch_predict}


class Resident:
    """LoadGen's sample library: an array a sample, as they come one by one."""

    def __init__(self, library: SampleSet, layout: Any) -> None:
        self._library, self._layout = library, layout
        self.samples: dict[int, Array] = {}

    def load(self, indices: list[int]) -> None:
        for index in indices:
            self.samples[index] = self._library.load([index], self._layout)[0]

    def unload(self, indices: list[int]) -> None:
        self.samples.clear()


def seconds_a_sample(predict: Predict, resident: Resident, job: Job) -> float:
    """Lets the threads work without LoadGen for about ``WARM_UP_S``, and returns what a sample took, in seconds."""
    resident.load([0])
    sut = ReferenceSut(predict, resident.samples, job.threads, job.batch, lambda _: None, lambda *_: None)
    count, spent, found = job.threads * job.batch, 0.0, 0.0
    while spent < WARM_UP_S:
        began = time.perf_counter()
        sut.issue([_Sample(number, 0) for number in range(count)])
        sut.wait()
        took = time.perf_counter() - began
        spent, found, count = spent + took, took / count, count * 2
    sut.close()
    _check(sut)
    resident.unload([])
    return found


def run_loadgen(predict: Predict, resident: Resident, plan: Plan, job: Job) -> Outcome:
    """LoadGen offline by ``plan``, as ``edgeq.loadgen.drive`` sets it up, but by the usual ``ConstructSUT``."""
    lg = loadgen_module()
    job.log_dir.mkdir(parents=True)
    settings = apply(plan, job.log_dir / "user.conf")
    complete, response = lg.QuerySamplesComplete, lg.QuerySampleResponse
    sut = ReferenceSut(predict, resident.samples, job.threads, job.batch, complete, response)
    under_test = lg.ConstructSUT(sut.issue, lambda: None)
    library = lg.ConstructQSL(plan.total_samples, plan.resident_samples, resident.load, resident.unload)
    output, logging = lg.LogOutputSettings(), lg.LogSettings()
    output.outdir, output.copy_summary_to_stdout = str(job.log_dir), False
    logging.log_output, logging.enable_trace = output, False
    lg.StartTestWithLogSettings(under_test, library, settings, logging, str(job.log_dir / "no-audit.config"))
    sut.close()
    lg.DestroySUT(under_test)
    lg.DestroyQSL(library)
    _check(sut)
    return read_outcome(job.log_dir)


def _check(sut: ReferenceSut) -> None:
    if sut.error is not None:
        text = f"{type(sut.error).__name__}: {sut.error}"
        raise EdgeqError("the reference harness failed", text, "see its child.log: --keep DIR", code="no-figure")


def _work(job: Job) -> None:
    manifest: Manifest = read_manifest(job.manifest)
    predict = OPEN[manifest.backend](job.file)
    library = open_samples(job.samples)
    resident, total = Resident(library, manifest.input.layout), library.count
    measured_s = seconds_a_sample(predict, resident, job)
    sample_s = measured_s if job.sample_s is None else job.sample_s
    plan = plan_run(profile(job.seconds, total), OFFLINE, sample_s, total).plan
    cpu, began = time.process_time(), time.perf_counter()
    outcome = run_loadgen(predict, resident, plan, job)
    cpus = (time.process_time() - cpu) / (time.perf_counter() - began)
    emit(
        "result", samples_per_second=outcome.samples_per_second, valid=outcome.valid, batch=job.batch, cpus=cpus,
        samples=outcome.samples,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(serve(sys.argv, Job, _work))
