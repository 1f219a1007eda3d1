"""What ``edgeq doctor`` finds: the device and its state, the frameworks on it, and what to expect or to mend."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgeq.backends import REGISTRY, installed, probes, wheels
from edgeq.host.device import describe
from edgeq.host.reading import ROOT
from edgeq.run import condition, installation
from edgeq.run.expectations import expectations
from edgeq.run.probing import BackendProbes, Watcher, probe_backends
from edgeq.spec.note import Note


@dataclass(frozen=True)
class Finding:
    """One verdict line; ``wrong`` where the hint mends it, else a thing to know."""

    note: Note
    wrong: bool = False


@dataclass(frozen=True)
class Diagnosis:
    """The device, its state, each backend's distributions and versions, its saturation probes, and the verdict lines."""

    device: dict[str, Any]
    backends: dict[str, dict[str, str]]
    condition: dict[str, Any]
    """``edgeq.run.condition.condition()``."""
    findings: list[Finding] = field(default_factory=list)
    probes: dict[str, BackendProbes] = field(default_factory=dict)
    """By backend; empty where they were not asked for."""

    @property
    def wrong(self) -> bool:
        return any(finding.wrong for finding in self.findings)

    def exported_here(self, backend: str) -> str | None:
        """The int8-static recipe that ``edgeq export`` picks for this device, as a probe's name."""
        return probes.MADE_FOR.get(backend, {}).get(self.device["target"])

    def as_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "python": sys.version.split()[0],
            "condition": self.condition,
            "backends": self.backends,
            "probes": {backend: found.model_dump(mode="json") for backend, found in self.probes.items()},
            "findings": [{**finding.note.model_dump(), "wrong": finding.wrong} for finding in self.findings],
        }


def diagnose(
    *,
    probe: bool = True,
    watcher: Watcher | None = None,
    root: Path = ROOT,
    device: dict[str, Any] | None = None,
) -> Diagnosis:
    """Looks at this device; imports no framework. With ``probe``, child processes do (see ``edgeq.run.probing``).

    Args:
        root: Where ``/proc`` and ``/sys`` are read: the files of another device tell of that one, all but its frameworks.
        device: ``edgeq.host.describe()`` of that device, where it is not this one.
    """
    device = device or describe(root)
    backends = {backend: installed(backend) for backend in REGISTRY}
    now = condition.condition(root)
    findings = [Finding(note, wrong=True) for note in installation.broken(backends, device)]
    findings += [Finding(note, wrong) for note, wrong in condition.complaints(now)]
    found = probe_backends(backends, device, device["cores"], watcher) if probe else {}
    findings += _deadly(backends, device, found)
    for result in found.values():
        findings += _probed(result, device["target"])
    expected = [*installation.worth_knowing(backends), *expectations(device), *_emulated(device)]
    return Diagnosis(device, backends, now, [*findings, *map(Finding, expected)], found)


def _deadly(
    backends: Mapping[str, Mapping[str, str]], device: Mapping[str, Any], found: Mapping[str, BackendProbes]
) -> list[Finding]:
    """Wheels that are known to die here, unless they were tried: one that lives was built for this CPU."""
    notes = [wheels.deadly(backend, versions, device) for backend, versions in backends.items() if backend not in found]
    return [Finding(note, wrong=True) for note in notes if note is not None]


def _emulated(device: Mapping[str, Any]) -> list[Note]:
    if not device["emulated"]:
        return []
    return [Note(code="emulated", text=f"emulated ({device['emulated_how']}): times mean nothing here")]


def _probed(result: BackendProbes, target: str | None) -> list[Finding]:
    """What a backend's probes say: why they did not run, and which recipes are wrong here, with the cure."""
    backend = result.backend
    found = [] if result.note is None else [Finding(result.note, wrong=True)]
    for each in result.found:
        wrong = [note for note in each.notes if each.probe is None and each.scheme.startswith("int8")]
        found += [Finding(note) for note in wrong]
    saturating = result.saturating()
    if not saturating:
        return found
    made_for = probes.MADE_FOR[backend]
    here, cure = made_for.get(target or ""), made_for[probes.cure_target(target)]
    names = [probed.recipe for probed in saturating]
    # What export would write here is told of by itself; what it would not, in one line.
    first = next((probed for probed in saturating if probed.recipe == here), saturating[0])
    note = probes.probe_note(backend, first, target)
    others = [probes.words(backend, name) for name in names if name != first.recipe]
    if others:
        note = note.model_copy(update={"text": f"{note.text} (and: {'; '.join(others)})"})
    note = note.model_copy(update={"text": f"{backend} {note.text}"})
    if cure in names and first.recipe != cure:
        note = note.model_copy(update={"hint": f"{note.hint} (it saturates less, but does too)"})
    if here not in names and here is not None:
        hint = (
            f"edgeq export picks {probes.words(backend, here)} here, which is exact; for an artifact made elsewhere, "
        )
        note = note.model_copy(update={"hint": hint + note.hint})
    found.append(Finding(note, wrong=here in names and cure not in names))
    return found
