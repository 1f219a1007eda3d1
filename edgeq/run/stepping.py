"""Children that work through named steps with one framework each, any of which may die of it (trap 19)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from edgeq.backends import wheels
from edgeq.events import Child, cause_of_death, emit
from edgeq.files import write_json
from edgeq.host.memory import oom_kills
from edgeq.spec.note import Note

#: Importing a framework from a slow card, and then each step, may take so long before the child counts as hung.
LIMIT_S = 300.0
#: The child's phase before its first step.
IMPORT = "import"

#: Told of each step: backend, and the step that starts (or ``import``).
Watcher = Callable[[str, str], None]


@dataclass
class Stepped:
    """What became of all steps."""

    found: list[Any] = field(default_factory=list)
    """What the children told, in order."""
    killed: dict[str, Note] = field(default_factory=dict)
    """Steps that killed their child, each with the cause."""
    note: Note | None = None
    """Why the steps that are left could not be begun; None where all were."""


def tell(step: str, work: Callable[[], BaseModel]) -> None:
    """One step of a child: says that it begins, and what it found."""
    emit("phase", name=step)
    emit("found", value=work().model_dump(mode="json"))


def through(
    module: str,
    backend: str,
    steps: Sequence[str],
    job: Callable[[list[str]], BaseModel],
    environment: Mapping[str, str],
    watcher: Watcher,
    doubt: str,
) -> Stepped:
    """Has a child work through ``steps``; where one kills it, another child does those that are left.

    Args:
        module: The child's, run as ``python -m module JOB``, which calls ``tell`` for each step.
        job: What a child is told that is to do the given steps.
        doubt: What to do about a child that hangs.
    """
    result, left = Stepped(), list(steps)
    while left:
        step, found, reason = _child(module, backend, job(left), environment, watcher, doubt)
        result.found += found
        if reason is None:
            break
        if step not in left:
            result.note = reason
            break
        result.killed[step] = reason
        left = left[left.index(step) + 1 :]
    return result


def _child(
    module: str, backend: str, job: BaseModel, environment: Mapping[str, str], watcher: Watcher, doubt: str
) -> tuple[str, list[Any], Note | None]:
    """The last step that was begun, what was found, and why it did not come to its end (None where it did)."""
    with tempfile.TemporaryDirectory(prefix="edgeq-steps-") as folder:
        job_file, log = Path(folder) / "job.json", Path(folder) / "child.log"
        write_json(job_file, job.model_dump(mode="json"))
        oom = oom_kills()
        child = Child.start(module, job_file, log, environment)
        try:
            step, found, reason = _listen(child, backend, watcher, doubt)
        finally:
            child.kill()
        code = child.process.returncode
        if reason is None and code != 0:
            cause, text = cause_of_death(code, log, oom_kills().since(oom))
            reason = Note(code=cause, text=f"{backend}: {text} (in {step})", hint=_advice(backend, cause))
        return step, found, reason


def _listen(child: Child, backend: str, watcher: Watcher, doubt: str) -> tuple[str, list[Any], Note | None]:
    step = IMPORT
    found: list[Any] = []
    deadline = time.monotonic() + LIMIT_S
    watcher(backend, step)
    for event in child.events():
        if event is None:
            if time.monotonic() > deadline:
                text = f"{backend}: {step} had not ended after {LIMIT_S:.0f} s, and was stopped"
                return step, found, Note(code="hung", text=text, hint=doubt)
            continue
        deadline = time.monotonic() + LIMIT_S
        if event["event"] == "phase":
            step = event["name"]
            watcher(backend, step)
        elif event["event"] == "found":
            found.append(event["value"])
        elif event["event"] == "error":
            return step, found, Note(code=event["code"], text=f"{event['what']}: {event['why']}", hint=event["hint"])
    return step, found, None


def _advice(backend: str, cause: str) -> str:
    if cause == "illegal-instruction":
        return wheels.advice(backend)
    if cause == "out-of-memory":
        return "end other programs, then run: edgeq doctor"
    return "run: edgeq doctor again; if it stays so, install another version of the framework"
