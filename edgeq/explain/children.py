"""The processes that ``edgeq explain`` starts, one after the other: their events, death, and a limit to their silence."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgeq.events import Child, cause_of_death
from edgeq.explain.child import ExplainJob
from edgeq.files import write_json
from edgeq.host.memory import oom_kills
from edgeq.host.threads import environment
from edgeq.spec.errors import EdgeqError

#: Loading, reading what runs, profiling, and comparing layers may each take so many seconds: at a minute an inference, the
#: slowest that was seen (float16 without a kernel for it), the longest of them takes a third of this.
LIMIT_S = 1800.0
MODULE = "edgeq.explain.child"


class Children:
    """Starts child processes one after the other."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._folder, self._threads = folder, threads

    def run(self, job: ExplainJob, kind: str) -> dict[str, Any]:
        """The child's one event of ``kind``, without its name."""
        (found,) = [event for event in self.events(job) if event["event"] == kind]
        return {name: value for name, value in found.items() if name != "event"}

    def events(self, job: ExplainJob) -> Iterator[dict[str, Any]]:
        """Raises ``EdgeqError``: what the child reported, how it died, or that it did not end (code ``hung``)."""
        log, file = self._folder / "child.log", self._folder / "job.json"
        write_json(file, job.model_dump(mode="json"))
        before = oom_kills()
        child = Child.start(MODULE, file, log, environment(self._threads))
        try:
            yield from _listen(child, job)
        finally:
            child.kill()
        if child.process.returncode != 0:
            code, text = cause_of_death(child.process.returncode, log, oom_kills().since(before))
            raise EdgeqError(
                f"the {job.task} of {job.manifest} died", text, "run: edgeq doctor; fewer --threads need less memory",
                code=code,
            )  # fmt: skip


def _listen(child: Child, job: ExplainJob) -> Iterator[dict[str, Any]]:
    phase, deadline = "start", time.monotonic() + LIMIT_S
    for event in child.events():
        if event is None:
            if time.monotonic() > deadline:
                raise EdgeqError(
                    f"the {job.task} of {job.manifest} was stopped",
                    f"'{phase}' had not ended after {LIMIT_S:.0f} s",
                    "run: edgeq doctor, to see whether the framework runs here at all; then try again with --threads 1",
                    code="hung",
                )
            continue
        deadline = time.monotonic() + LIMIT_S
        if event["event"] == "phase":
            phase = event["name"]
        elif event["event"] == "error":
            raise EdgeqError(**{name: event[name] for name in ("what", "why", "hint", "code", "exit_code")})
        else:
            yield event
