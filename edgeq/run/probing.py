"""Saturation probes of every installed backend, each backend in a process of its own, with results kept on disk.

``python -m edgeq.run.probing JOB`` is the child: it loads one framework, runs its packaged probes (see
``edgeq/backends/probes.py``) and tells the parent of each. A framework whose import or kernel dies of a signal takes
only its child along (trap 19), and becomes a note with advice.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgeq import __version__
from edgeq.backends import installed, preload, probes
from edgeq.data.cache import cache_dir
from edgeq.events import Child, cause_of_death, emit, serve
from edgeq.files import sha256_file, sha256_json, write_json
from edgeq.host.memory import oom_kills
from edgeq.host.threads import environment
from edgeq.run.record import ProbeInfo
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

#: Importing a framework from a slow card, and then each probe, may take so long before the child counts as hung.
LIMIT_S = 300.0
#: The child's phase before the first probe.
IMPORT = "import"
#: Variables by which a framework chooses other kernels than the CPU has.
_CHOOSING = ("ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "QEMU_CPU")

#: Told of each step: backend, and the probe that starts (or ``import``).
Watcher = Callable[[str, str], None]


class Found(BaseModel):
    """What one packaged probe showed on this device."""

    model_config = ConfigDict(extra="forbid")
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

    model_config = ConfigDict(extra="forbid")
    backend: str
    found: list[Found] = Field(default_factory=list)
    note: Note | None = None

    def saturating(self) -> list[probes.Probed]:
        """The int8 recipes whose answer is wrong here."""
        return [
            probes.Probed(p.recipe, p.expected, math.nan if p.found is None else p.found, p.ok, f.layer)
            for f in self.found
            if (p := f.probe) is not None and not p.ok
        ]


class ProbingJob(BaseModel):
    """What a child is told: the probes of ``backend`` to run, by name."""

    model_config = ConfigDict(extra="forbid")
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
        versions = installed(backend)
        if not versions:
            continue
        file = cache_dir() / "probes" / f"{backend}-{_key(backend, versions, device, threads)[:16]}.json"
        kept = _kept(file)
        if kept is None:
            kept = _probe(backend, threads, watcher or (lambda _backend, _step: None))
            if kept.note is None and all(each.computes for each in kept.found):
                kept = _keep(file, kept)
        found[backend] = kept
    return found


def _key(backend: str, versions: dict[str, str], device: dict[str, Any], threads: int) -> str:
    files = sorted(probes.FILES.glob(f"{backend}-*"))
    return sha256_json(
        {
            "edgeq": __version__,
            "code": sha256_file(Path(probes.__file__)),
            "files": [[file.name, sha256_file(file)] for file in files],
            "versions": versions,
            "python": [sys.executable, sys.version],
            "device": {key: device.get(key) for key in ("slug", "machine", "cpu", "isa", "kernel", "emulated")},
            "environment": {name: os.environ.get(name) for name in _CHOOSING},
            "threads": threads,
        }
    )


def _kept(file: Path) -> BackendProbes | None:
    """A file that is absent or not whole only means that the probes run again."""
    try:
        return BackendProbes.model_validate_json(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError):
        return None


def _keep(file: Path, found: BackendProbes) -> BackendProbes:
    try:
        write_json(file, found.model_dump(mode="json"))
    except EdgeqError as error:
        return found.model_copy(update={"note": Note.of(error)})
    return found


def _probe(backend: str, threads: int, watcher: Watcher) -> BackendProbes:
    """Starts a child; where a probe's kernel kills it, another one for the probes that are left."""
    result = BackendProbes(backend=backend)
    left = list(probes.PROBES.get(backend, {}))
    while left:
        step, found, reason = _child(ProbingJob(backend=backend, names=left, threads=threads), watcher)
        result.found += found
        if reason is None:
            break
        if step not in left:
            result.note = reason
            break
        result.found.append(_blank(backend, step).model_copy(update={"notes": [reason]}))
        left = left[left.index(step) + 1 :]
    return result


def _child(job: ProbingJob, watcher: Watcher) -> tuple[str, list[Found], Note | None]:
    """The last step that was begun, what was found, and why it did not come to its end (None where it did)."""
    with tempfile.TemporaryDirectory(prefix="edgeq-probe-") as folder:
        job_file, log = Path(folder) / "job.json", Path(folder) / "child.log"
        write_json(job_file, job.model_dump(mode="json"))
        oom = oom_kills()
        child = Child.start("edgeq.run.probing", job_file, log, environment(job.threads))
        try:
            step, found, reason = _listen(child, job.backend, watcher)
        finally:
            child.kill()
        code = child.process.returncode
        if reason is None and code != 0:
            cause, text = cause_of_death(code, log, oom_kills().since(oom))
            reason = Note(code=cause, text=f"{job.backend}: {text} (in {step})", hint=_advice(job.backend, cause))
        return step, found, reason


def _listen(child: Child, backend: str, watcher: Watcher) -> tuple[str, list[Found], Note | None]:
    step = IMPORT
    found: list[Found] = []
    deadline = time.monotonic() + LIMIT_S
    watcher(backend, step)
    for event in child.events():
        if event is None:
            if time.monotonic() > deadline:
                text = f"{backend}: {step} had not ended after {LIMIT_S:.0f} s, and was stopped"
                return step, found, Note(code="hung", text=text, hint="run: edgeq doctor --no-probe")
            continue
        deadline = time.monotonic() + LIMIT_S
        if event["event"] == "phase":
            step = event["name"]
            watcher(backend, step)
        elif event["event"] == "found":
            found.append(Found.model_validate(event["value"]))
        elif event["event"] == "error":
            return step, found, Note(code=event["code"], text=f"{event['what']}: {event['why']}", hint=event["hint"])
    return step, found, None


#: Backend → what is known of wheels that die of an illegal instruction on ARM cores before ARMv8.2, such as a
#: Raspberry Pi 4's (pytorch/pytorch#132032, #146792, #176993; microsoft/onnxruntime#23957, #24112).
_WHEELS = {
    "pytorch": "torch 2.4 to 2.10 do so on ARM cores as old as a Raspberry Pi 4's: run: pip install 'torch>=2.11'",
    "onnxruntime": "1.21 does so on ARM cores as old as a Raspberry Pi 4's: run: pip install 'onnxruntime>=1.22'",
}


def _advice(backend: str, cause: str) -> str:
    if cause == "illegal-instruction":
        return _WHEELS.get(backend, "install another version of it, or leave this backend out: --backend …")
    if cause == "out-of-memory":
        return "end other programs, then run: edgeq doctor"
    return "run: edgeq doctor again; if it stays so, install another version of the framework"


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


def _work(job: ProbingJob) -> None:
    preload(job.backend)
    for name in job.names:
        emit("phase", name=name)
        emit("found", value=run(job.backend, name, job.threads).model_dump(mode="json"))


def main(argv: Sequence[str]) -> int:
    """Exit code 0 with every probe told of, 1 with the error told to the parent."""
    return serve(argv, ProbingJob, _work)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
