"""A system, samples and a plan → one LoadGen run and its outcome. Once a process."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from edgeq.files import write_error
from edgeq.loadgen import log, sut
from edgeq.loadgen.plan import Plan
from edgeq.loadgen.protocols import Array, Layout, Library, System
from edgeq.loadgen.resident import Failure, Resident
from edgeq.loadgen.settings import apply, check_in_force, loadgen_module
from edgeq.loadgen.times import Clock
from edgeq.logits import bad_output
from edgeq.spec.errors import EdgeqError

#: How far the same sample's logits may lie apart before and after a run, as a share of the largest: threads may add up
#: in another order, a model that died or another's memory differs by far more.
DRIFT = 1e-2


def drive(
    system: System, library: Library, plan: Plan, log_dir: Path, layout: Layout, input_shape: Sequence[int]
) -> log.Outcome:
    """Runs LoadGen by ``plan``; leaves its logs in ``log_dir`` and returns what they say.

    One sample is inferred before and after the run, untimed: LoadGen itself would call a dead model's answers valid.

    Args:
        system: The loaded model.
        library: Samples; only those that LoadGen asks for are loaded.
        plan: From ``edgeq.loadgen.plan.plan_run``.
        log_dir: Created where missing; an earlier run's LoadGen logs in it are removed first.
        layout: ``NCHW`` or ``NHWC``, passed to ``library.load_into``.
        input_shape: Of one sample in that layout.

    Returns:
        The outcome; its ``notes`` hold ``settings-differ`` where LoadGen did not run by the plan.

    Raises:
        EdgeqError: LoadGen is missing, ran in this process before, or its logs can't be used; the library is not the
            plan's (``plan-differs``); the output is not finite, constant, or changed (``bad-output``).
        BaseException: whatever ``system``, ``library`` or Ctrl-C raised, once LoadGen has ended; the run's summary is
            then kept as ``mlperf_log_summary.txt.failed``, so that it can't be read as a result.
    """
    lg = loadgen_module()
    _check_library(plan, library)
    audit = _prepare(log_dir)
    settings = apply(plan, log_dir / "user.conf")
    probe: Array = np.empty((1, *input_shape), np.float32)
    library.load_into(probe, [0], layout)
    before = _probe(system, probe)
    failure = Failure()
    resident = Resident(library, layout, input_shape, failure)
    clock = Clock.for_run(plan)
    answer = sut.single_stream if plan.scenario == "single-stream" else sut.many
    _start(
        lg,
        answer(lg, system, resident, failure, clock, plan.mode == "accuracy"),
        resident,
        plan,
        settings,
        log_dir,
        audit,
        failure,
    )
    try:
        if failure.error is not None:
            raise failure.error
        _check_alive(before, _probe(system, probe, bound=plan.scenario == "single-stream"))
    except BaseException:
        _disown(log_dir)
        raise
    outcome = log.read_outcome(log_dir)
    return dataclasses.replace(
        outcome,
        notes=check_in_force(plan, outcome.settings),
        cpu_s=resident.cpu_s,
        wall_s=resident.wall_s,
        times=clock.times(),
    )


def _start(
    lg: ModuleType,
    issue: sut.Issue,
    resident: Resident,
    plan: Plan,
    settings: Any,
    log_dir: Path,
    audit: Path,
    failure: Failure,
) -> None:
    output = lg.LogOutputSettings()
    output.outdir, output.copy_summary_to_stdout, output.copy_detail_to_stdout = str(log_dir), False, False
    logging = lg.LogSettings()
    logging.log_output, logging.enable_trace = output, False
    # The fast form hands over plain integers, and all at once; it serves queries of one sample as well.
    under_test = lg.ConstructFastSUT(issue, lambda: None)
    samples = lg.ConstructQSL(plan.total_samples, plan.resident_samples, resident.load, resident.unload)
    gc.collect()
    gc.freeze()  # what is loaded by now is not searched for garbage again in the middle of a query
    try:
        with failure.interrupts():
            lg.StartTestWithLogSettings(under_test, samples, settings, logging, str(audit))
    finally:
        gc.unfreeze()
        lg.DestroyFastSUT(under_test)
        lg.DestroyQSL(samples)


def _check_library(plan: Plan, library: Library) -> None:
    if library.count != plan.total_samples or plan.resident_samples > library.count:
        raise EdgeqError(
            "the plan is for other data",
            f"it counts {plan.total_samples} samples, {plan.resident_samples} in memory; there are {library.count}",
            "plan the run for this data set",
            code="plan-differs",
        )


def _prepare(log_dir: Path) -> Path:
    """Makes ``log_dir``, free of earlier logs; returns the path of an audit file that does not exist.

    Without an explicit path LoadGen reads ``audit.config`` in the working directory, and changes its mode by it.
    """
    audit = log_dir / "no-audit.config"
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
        for old in [*log_dir.glob("mlperf_log_*"), audit]:
            old.unlink(missing_ok=True)
    except OSError as error:
        raise write_error(log_dir, error) from error
    return audit


def _probe(system: System, sample: Array, *, bound: bool = False) -> Array:
    """One sample's logits; ``bound`` as single-stream has them inferred."""
    if bound:
        logits = np.full((1, system.classes), np.nan, np.float32)
        system.bind(sample, logits)()
    else:
        logits = np.array(system.infer(sample), np.float32)
    if logits.shape != (1, system.classes):
        raise bad_output(f"logits have shape {logits.shape}, not {(1, system.classes)}")
    if not np.isfinite(logits).all():
        raise bad_output("a logit is not a finite number")
    if system.classes > 1 and np.ptp(logits) == 0:
        raise bad_output(f"all logits are {logits.flat[0]:g}")
    return logits


def _check_alive(before: Array, after: Array) -> None:
    change = float(np.abs(after - before).max() / np.abs(before).max())
    if change > DRIFT:
        raise bad_output(f"the same sample's logits moved by {change:.1%} of the largest during the run")


def _disown(log_dir: Path) -> None:
    summary = log_dir / log.SUMMARY
    if summary.is_file():
        summary.rename(summary.with_name(summary.name + ".failed"))
