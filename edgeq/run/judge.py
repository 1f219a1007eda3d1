"""An artifact's accuracy: LoadGen's AccuracyOnly mode over the whole dataset, once an artifact and run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgeq.data.samples import open_samples
from edgeq.loadgen.accuracy import read_accuracy
from edgeq.run.figures import loadgen_info
from edgeq.run.job import LOADGEN_DIR, AccuracyResult, WorkerJob
from edgeq.run.record import Accuracy
from edgeq.run.trial import Trial
from edgeq.spec.errors import EdgeqError


def judge(job: WorkerJob) -> tuple[AccuracyResult, npt.NDArray[np.int32] | None]:
    """The outcome, and the five best classes of each sample ``[n, 5]``, or None where the run was too slow to make.

    Raises:
        EdgeqError: whatever keeps the artifact from being judged; LoadGen's own errors have code ``loadgen-invalid``.
    """
    trial = Trial(job)
    session = trial.load()
    samples = open_samples(job.samples)
    assert trial.manifest is not None
    key = trial.manifest.key
    reference, _ = trial.first(session, samples)
    planning = trial.plan(trial.canary(session, reference), samples)
    reason = trial.too_slow(planning, job.profile.accuracy_budget_s, "accuracy_budget_s")
    if reason is not None:
        return AccuracyResult(status="skipped", artifact_key=key, reason=reason), None
    outcome = trial.drive(session, samples, planning)
    if not outcome.valid:
        raise EdgeqError(
            "LoadGen's accuracy run has errors", "; ".join(outcome.reasons), "run it again", code="loadgen-invalid"
        )
    predictions = read_accuracy(job.folder / LOADGEN_DIR, samples.count)
    session.close()
    assert samples.labels is not None  # a dataset without labels is refused when it is listed
    found = Accuracy(
        top1=predictions.top1(samples.labels),
        top5=predictions.top5(samples.labels),
        n=predictions.n,
        dataset=str(job.dataset),
        preprocessing=job.preprocessing,
        excluded_calibration=job.excluded_calibration,
        bad_images=job.bad_images,
    )
    logs = loadgen_info(outcome, job.profile, trial.scenario)
    return AccuracyResult(status="ok", artifact_key=key, accuracy=found, loadgen=logs), predictions.best
