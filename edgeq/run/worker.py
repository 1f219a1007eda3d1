"""The worker: ``python -m edgeq.run.worker JOB`` measures one cell, or judges one artifact, and writes the result.

Imports no framework but the cell's own, and that inside its backend.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from edgeq.events import die_with_parent, emit
from edgeq.run.accuracy import write_result
from edgeq.run.job import MEASURED, WorkerJob
from edgeq.run.judge import judge
from edgeq.run.measure import measure
from edgeq.run.record import FILE_NAME, write_record
from edgeq.spec.errors import EdgeqError


def main(argv: Sequence[str]) -> int:
    """Exit code 0 with a result written, 1 with the error told to the runner."""
    die_with_parent()
    job = WorkerJob.model_validate(json.loads(Path(argv[1]).read_text(encoding="utf-8")))
    try:
        if job.mode == "accuracy":
            write_result(job.folder, *judge(job))
        else:
            measured = job.folder / MEASURED
            write_record(job.folder / FILE_NAME, measure(job, lambda record: write_record(measured, record)))
            measured.unlink(missing_ok=True)
    except EdgeqError as error:
        emit("error", what=error.what, why=error.why, hint=error.hint, code=error.code)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
