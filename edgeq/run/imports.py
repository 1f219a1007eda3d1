"""Whether a framework can be imported here at all: found out in a child, before any cell of its backend is started.

``python -m edgeq.run.imports JOB`` is the child. A wheel built for newer CPUs dies of an illegal instruction (trap 19), a
broken one of a segmentation fault, and some hang: that costs the child, and becomes the reason of the backend's cells, with
advice. What a child needed of memory by then is what every worker of that backend needs before it loads a model.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from edgeq.backends import preload
from edgeq.events import leave, serve
from edgeq.files import cache_dir, sha256_json
from edgeq.host import memory
from edgeq.host.threads import environment
from edgeq.run.here import conditions, keep, kept
from edgeq.run.stepping import Watcher, tell, through
from edgeq.spec.note import Note

#: The child's only step, after the import.
_LOADED = "loaded"


class Imported(BaseModel):
    """A backend's framework, imported by a process that has all that a worker has."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    backend: str
    peak_rss: int | None = None
    """Of that process, in bytes; None where the kernel does not tell."""
    note: Note | None = None
    """Why it can't be imported."""


class ImportJob(BaseModel):
    """What the child is told."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    backend: str


def check_import(
    backend: str, device: dict[str, Any], threads: int, watcher: Watcher | None = None, *, again: bool = False
) -> Imported:
    """Imports what ``backend`` runs on in a child, or takes the answer of an earlier call.

    An answer is kept while nothing changes that it hangs on (``edgeq.run.here.conditions``). What failed is not kept: it is
    tried again, and costs its child again.

    Args:
        backend: An installed one.
        device: ``edgeq.host.describe()``.
        again: Whatever is kept.
    """
    file = cache_dir() / "imports" / f"{backend}-{sha256_json(conditions(backend, device, threads, []))[:16]}.json"
    found = None if again else kept(file, Imported)
    if found is not None:
        return found
    done = through(
        "edgeq.run.imports",
        backend,
        [_LOADED],
        lambda _: ImportJob(backend=backend),
        environment(threads),
        watcher or (lambda _backend, _step: None),
        doubt="run: edgeq doctor; if it hangs there too, install another version of the framework",
    )
    died = done.note or next(iter(done.killed.values()), None)
    if died is not None:
        return Imported(backend=backend, note=died)
    (value,) = done.found
    found = Imported.model_validate(value)
    keep(file, found)  # where it can't be kept, it is only found out again
    return found


def _loaded(backend: str) -> Imported:
    return Imported(backend=backend, peak_rss=memory.peak_rss())


def _work(job: ImportJob) -> None:
    from edgeq.loadgen.settings import loadgen_module
    from edgeq.run import measure  # noqa: F401  what a worker has loaded before its framework

    preload(job.backend)
    loadgen_module()
    tell(_LOADED, lambda: _loaded(job.backend))


def main(argv: Sequence[str]) -> int:
    """Exit code 0 with the import told of, 1 with the error told to the parent."""
    return serve(argv, ImportJob, _work)


if __name__ == "__main__":
    leave(main(sys.argv))
