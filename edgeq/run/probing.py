"""Saturation probes of every installed backend, each backend in a process of its own, with results kept on disk.

``python -m edgeq.run.probing JOB`` is the child: it loads one framework, runs its packaged probes (see
``edgeq/backends/probes.py``) and tells the parent of each. A framework whose import or kernel dies of a signal takes
only its child along (trap 19), and becomes a note with advice.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from edgeq.backends import installed, preload, probes
from edgeq.events import leave, serve
from edgeq.files import cache_dir, sha256_json, write_json
from edgeq.host.threads import environment
from edgeq.run.here import conditions, keep, kept, package_files
from edgeq.run.record import ProbeInfo
from edgeq.run.stepping import Watcher as Watcher
from edgeq.run.stepping import tell, through
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

#: Files of ``edgeq/backends`` that every probe's answer hangs on, beside its backend's own.
_SHARED = ("probes.py", "macs.py", "session.py")


class Found(BaseModel):
    """What one packaged probe showed on this device."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    name: str
    """Of ``edgeq.backends.probes.PROBES``."""
    scheme: str
    words: str
    probe: ProbeInfo | None = None
    """The known answer; of int8 schemes, where it could be run."""
    layer: str = ""
    """The kind of layer that gave ``probe.found``."""
    computes: dict[str, float] = Field(default_factory=dict)
    """Precisions that really ran, with their share of the probe's multiply-adds (not of a model's)."""
    engine: str = ""
    notes: list[Note] = Field(default_factory=list)
    """What the framework refused, or warned of."""


class BackendProbes(BaseModel):
    """One backend's probes. ``note`` says why there are none, or not all."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    backend: str
    found: list[Found] = Field(default_factory=list)
    note: Note | None = None

    def saturating(self) -> list[probes.Probed]:
        """The int8 recipes whose answer is wrong here."""
        return [_probed(p, f.layer) for f in self.found if (p := f.probe) is not None and not p.ok]


class ProbingJob(BaseModel):
    """What a child is told: the probes of ``backend`` to run, by name."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    backend: str
    names: list[str]
    threads: int


def probe_backends(
    backends: Iterable[str], device: dict[str, Any], threads: int, watcher: Watcher | None = None
) -> dict[str, BackendProbes]:
    """Runs the probes of those of ``backends`` that are installed, or takes the results of an earlier call.

    Kept results are used where nothing has changed that they hang on: device, CPU and ISA, framework and Python, the
    probes themselves, and the variables by which frameworks choose kernels. What failed is not kept.

    Args:
        device: ``edgeq.host.describe()``.

    Returns:
        By backend. A cache that can't be written is told of in its ``note``; the results are there all the same.
    """
    found = {}
    for backend in backends:
        if not installed(backend):
            continue
        file = _file(backend, device, threads)
        result = kept(file, BackendProbes)
        if result is None:
            result = _probe(backend, threads, watcher or (lambda _backend, _step: None))
            if result.note is None and all(each.computes for each in result.found):
                result.note = keep(file, result)
        found[backend] = result
    return found


def kept_probe(backend: str, recipe: str, device: dict[str, Any], threads: int) -> probes.Probed | None:
    """What ``probe_backends`` or ``keep_probe`` found of an int8 recipe, where nothing has changed that it hangs on."""
    file = _file(backend, device, threads)
    for result in (kept(file, BackendProbes), kept(_of_recipe(file, recipe), BackendProbes)):
        for found in result.found if result is not None else ():
            if found.name == recipe and found.probe is not None:
                return _probed(found.probe, found.layer)
    return None


def keep_probe(backend: str, probed: probes.Probed, device: dict[str, Any], threads: int) -> None:
    """Keeps a cell's probe for ``kept_probe``. Raises ``EdgeqError`` where the cache can't be written."""
    found = _blank(backend, probed.recipe).model_copy(update={"probe": info(probed), "layer": probed.layer})
    file = _of_recipe(_file(backend, device, threads), probed.recipe)
    write_json(file, BackendProbes(backend=backend, found=[found]).model_dump(mode="json"))


def _file(backend: str, device: dict[str, Any], threads: int) -> Path:
    return cache_dir() / "probes" / f"{backend}-{_key(backend, device, threads)[:16]}.json"


def _of_recipe(file: Path, recipe: str) -> Path:
    return file.with_name(f"{file.stem}.{recipe}.json")


def _key(backend: str, device: dict[str, Any], threads: int) -> str:
    ours = [file for file in package_files("backends") if file.name.startswith(backend) or file.name in _SHARED]
    return sha256_json(conditions(backend, device, threads, [*ours, *probes.FILES.glob(f"{backend}-*")]))


def _probe(backend: str, threads: int, watcher: Watcher) -> BackendProbes:
    names = list(probes.PROBES.get(backend, {}))
    done = through(
        "edgeq.run.probing",
        backend,
        names,
        lambda left: ProbingJob(backend=backend, names=left, threads=threads),
        environment(threads),
        watcher,
        doubt="run: edgeq doctor --no-probe",
    )
    found = [Found.model_validate(value) for value in done.found]
    found += [_blank(backend, name).model_copy(update={"notes": [why]}) for name, why in done.killed.items()]
    found.sort(key=lambda each: names.index(each.name))
    return BackendProbes(backend=backend, found=found, note=done.note)


def _blank(backend: str, name: str) -> Found:
    known = probes.PROBES[backend][name]
    return Found(name=name, scheme=known.scheme, words=known.words)


def run(backend: str, name: str, threads: int) -> Found:
    """One probe, in this process. What edgeq's session refuses becomes a note; anything else is raised."""
    found = _blank(backend, name)
    try:
        if name in probes.recipes(backend):
            probed = probes.probe(backend, name, threads)
            found.probe, found.layer = info(probed), probed.layer
        effective = probes.computes(backend, name, threads)
    except EdgeqError as error:
        found.notes.append(Note.of(error))
        return found
    found.computes, found.engine = effective.macs, effective.engine
    found.notes += effective.warnings
    return found


def info(probed: probes.Probed) -> ProbeInfo:
    """A result as it stands in records."""
    found = probed.found if math.isfinite(probed.found) else None
    return ProbeInfo(recipe=probed.recipe, expected=probed.expected, found=found, ok=probed.ok)


def _probed(found: ProbeInfo, layer: str) -> probes.Probed:
    value = math.nan if found.found is None else found.found
    return probes.Probed(found.recipe, found.expected, value, found.ok, layer)


def _work(job: ProbingJob) -> None:
    preload(job.backend)
    for name in job.names:
        tell(name, partial(run, job.backend, name, job.threads))


def main(argv: Sequence[str]) -> int:
    """Exit code 0 with every probe told of, 1 with the error told to the parent."""
    return serve(argv, ProbingJob, _work)


if __name__ == "__main__":
    leave(main(sys.argv))
