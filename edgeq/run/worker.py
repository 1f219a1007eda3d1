"""The worker: ``python -m edgeq.run.worker JOB`` measures one cell, or judges one artifact, and writes the result.

Imports no framework but the cell's own, and that inside its backend.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from edgeq.events import leave, serve
from edgeq.run.accuracy import write_result
from edgeq.run.job import MEASURED, WorkerJob
from edgeq.run.judge import judge
from edgeq.run.measure import measure
from edgeq.run.record import FILE_NAME, write_record


def _work(job: WorkerJob) -> None:
    if job.mode == "accuracy":
        write_result(job.folder, *judge(job))
        return
    measured = job.folder / MEASURED
    write_record(job.folder / FILE_NAME, measure(job, lambda record: write_record(measured, record)))
    measured.unlink(missing_ok=True)


def main(argv: Sequence[str]) -> int:
    """Exit code 0 with a result written, 1 with the error told to the runner."""
    return serve(argv, WorkerJob, _work)


if __name__ == "__main__":
    leave(main(sys.argv))
