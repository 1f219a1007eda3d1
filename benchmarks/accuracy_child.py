"""An accuracy run as edgeq's worker makes it, and the memory that it took: ``python -m benchmarks.accuracy_child JOB``."""

from __future__ import annotations

import sys

from edgeq.events import emit, serve
from edgeq.host import memory
from edgeq.run.accuracy import write_result
from edgeq.run.job import WorkerJob
from edgeq.run.judge import judge


def _work(job: WorkerJob) -> None:
    result, best = judge(job)
    write_result(job.folder, result, best)
    emit("result", peak_bytes=memory.peak_rss(), judged=result.accuracy.n if result.accuracy else 0)


if __name__ == "__main__":
    sys.exit(serve(sys.argv, WorkerJob, _work))
