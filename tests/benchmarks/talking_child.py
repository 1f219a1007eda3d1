"""A child for ``Bench.child``: does what its job says."""

from __future__ import annotations

import os
import sys

from pydantic import BaseModel

from edgeq.events import emit, serve
from edgeq.spec.errors import EdgeqError


class Job(BaseModel):
    does: str


def _work(job: Job) -> None:
    if job.does == "error":
        raise EdgeqError("it broke", "on purpose", "mend it", code="broken")
    if job.does == "death":
        os._exit(3)
    if job.does == "silence":
        return
    emit("phase", name="something else")
    emit("result", threads=os.environ.get("OMP_NUM_THREADS"), answer=42)


if __name__ == "__main__":
    sys.exit(serve(sys.argv, Job, _work))
