"""An artifact against labelled images and against another artifact's speed, through the session that is measured.

``python -m edgeq.export.judge JOB`` judges one in a process of its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from edgeq.artifact import Manifest, read_manifest
from edgeq.backends import open_session
from edgeq.backends.session import Session, SessionOptions
from edgeq.data.samples import SampleSet, open_samples
from edgeq.events import emit, leave, serve
from edgeq.files import atomic_path

Classes = npt.NDArray[np.int64]
Artifact = tuple[Manifest, Path]


class JudgeJob(BaseModel):
    """What a judging child is told."""

    model_config = ConfigDict(extra="forbid")
    manifest: Path
    samples: dict[str, Any]
    """For ``edgeq.data.samples.open_samples``."""
    threads: int
    out: Path
    """Where the classes go, int64 ``[n]``, ``.npy``."""


def classes_of(
    artifact: Artifact, samples: SampleSet, options: SessionOptions, on_progress: Callable[[int], None] | None = None
) -> Classes:
    """The class with the largest logit for each sample, int64 ``[n]``; one sample is in memory at a time.

    Raises:
        EdgeqError: the framework refuses the file (code ``load-failed``).
    """
    found = np.empty(samples.count, np.int64)
    with closing(open_session(*artifact, options)) as session:
        for index in range(samples.count):
            logits = session.infer(samples.load([index], session.input.layout))
            found[index] = int(logits[0].argmax())
            if on_progress is not None:
                on_progress(index + 1)
    return found


def medians_ms(artifacts: list[Artifact], samples: SampleSet, options: SessionOptions, seconds: float) -> list[float]:
    """Median latency of each artifact in milliseconds, single samples, measured in turn for ``seconds`` altogether.

    In turn, so that a disturbance falls on all alike; still no more than an indication.
    """
    sessions: list[Session] = []
    try:
        for artifact in artifacts:
            sessions.append(open_session(*artifact, options))
        inputs = [samples.load([0], session.input.layout) for session in sessions]
        for session, sample in zip(sessions, inputs, strict=True):
            session.infer(sample)
        taken: list[list[float]] = [[] for _ in sessions]
        end = time.monotonic() + seconds
        while len(taken[0]) < 3 or time.monotonic() < end:
            for session, sample, times in zip(sessions, inputs, taken, strict=True):
                began = time.perf_counter()
                session.infer(sample)
                times.append(1000 * (time.perf_counter() - began))
        return [median(times) for times in taken]
    finally:
        for session in sessions:
            session.close()


def _work(job: JudgeJob) -> None:
    manifest = read_manifest(job.manifest)
    samples = open_samples(job.samples)

    def told(done: int) -> None:
        if done == samples.count or done % 25 == 0:
            emit("progress", what="judging", done=done, total=samples.count)

    file = job.manifest.parent / manifest.files[0].name
    found = classes_of((manifest, file), samples, SessionOptions(threads=job.threads), told)
    with atomic_path(job.out) as temporary:
        np.save(temporary, found)


def main(argv: Sequence[str]) -> int:
    return serve(argv, JudgeJob, _work)


if __name__ == "__main__":
    leave(main(sys.argv))
