"""What ``edgeq doctor`` finds: the device, the frameworks beside it, and what to expect or to mend."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from edgeq.backends import REGISTRY, installed, probes
from edgeq.host.device import describe
from edgeq.run.probing import BackendProbes, Watcher, probe_backends
from edgeq.spec.note import Note


@dataclass(frozen=True)
class Finding:
    """One verdict line; ``wrong`` where the hint mends it, else a thing to know."""

    note: Note
    wrong: bool = False


@dataclass(frozen=True)
class Diagnosis:
    """The device, each backend's distributions and versions, its saturation probes, and the verdict lines."""

    device: dict[str, Any]
    backends: dict[str, dict[str, str]]
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
            "backends": self.backends,
            "probes": {backend: found.model_dump(mode="json") for backend, found in self.probes.items()},
            "findings": [{**finding.note.model_dump(), "wrong": finding.wrong} for finding in self.findings],
        }


def diagnose(*, probe: bool = True, watcher: Watcher | None = None) -> Diagnosis:
    """Looks at this device; imports no framework. With ``probe``, child processes do (see ``edgeq.run.probing``)."""
    device = describe()
    backends = {backend: installed(backend) for backend in REGISTRY}
    findings = [*_frameworks(backends), *_loadgen(), *_expectations(device)]
    found = probe_backends(backends, device, device["cores"], watcher) if probe else {}
    for result in found.values():
        findings += _probed(result, device["target"])
    return Diagnosis(device, backends, findings, found)


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


def _frameworks(backends: dict[str, dict[str, str]]) -> list[Finding]:
    found = []
    if not any(backends.values()):
        hint = "run: pip install -c constraints.txt 'edgeq[tflite]' (or openvino, onnxruntime, pytorch)"
        found.append(Finding(Note(code="no-backend", text="no framework is installed", hint=hint), wrong=True))
    tflite = backends.get("tflite", {})
    old_runtime = "tflite-runtime" in tflite and "ai-edge-litert" not in tflite
    if old_runtime and int(metadata.version("numpy").split(".")[0]) >= 2:
        text = f"tflite-runtime {tflite['tflite-runtime']} does not import beside numpy {metadata.version('numpy')}"
        hint = "run: pip install 'numpy<2' (or ai-edge-litert, which takes numpy 2)"
        found.append(Finding(Note(code="tflite-numpy", text=text, hint=hint), wrong=True))
    return found + _openvino_nncf(backends.get("openvino", {}))


#: The oldest of each that work together (trap 14, openvinotoolkit/nncf#4087): older ones import, and then break. They are
#: those of ``pyproject.toml``.
_OPENVINO, _NNCF = (2026, 4), (3, 4)


def _openvino_nncf(openvino: dict[str, str]) -> list[Finding]:
    try:
        nncf = metadata.version("nncf")
    except metadata.PackageNotFoundError:  # a device that only runs artifacts
        return []
    version = openvino.get("openvino")
    if version is None or (_release(version) >= _OPENVINO and _release(nncf) >= _NNCF):
        return []
    text = f"openvino {version} and nncf {nncf} are not a pair that edgeq was tested with: export may break"
    hint = "run: pip install -c constraints.txt 'edgeq[export]'"
    return [Finding(Note(code="openvino-nncf", text=text, hint=hint), wrong=True)]


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: 2026.4.1 → (2026, 4, 1)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _loadgen() -> list[Finding]:
    if importlib.util.find_spec("mlperf_loadgen") is not None:
        return []
    hint = "run: pip install -c constraints.txt mlcommons-loadgen (no wheel for ARM: first apt install g++ python3-dev)"
    return [Finding(Note(code="no-loadgen", text="MLPerf LoadGen is not installed", hint=hint), wrong=True)]


def _expectations(device: dict[str, Any]) -> list[Finding]:
    """What the ISA and the governor let one expect."""
    isa, found = set(device["isa"]), []
    if device["target"] == "x86_64":
        found.append(
            Note(
                code="no-vnni",
                text="no VNNI here: INT8 gains are small, and u8 x s8 products can saturate",
                hint="export --target host picks the recipes that do not saturate",
            )
        )
    if device["target"] == "aarch64" and "dotprod" not in isa:
        found.append(Note(code="no-dotprod", text="no dot-product instructions here: INT8 gains are small"))
    if not isa & {"fp16", "avx512_fp16"}:
        found.append(
            Note(code="no-fp16", text="no FP16 arithmetic here: fp16 halves storage and computes in fp32, or is slow")
        )
    if device["governor"] not in (None, "performance"):
        found.append(
            Note(
                code="governor",
                text=f"CPU governor {device['governor']}: figures will be unsteady",
                hint="run: sudo cpupower frequency-set -g performance",
            )
        )
    if device["emulated"]:
        found.append(Note(code="emulated", text=f"emulated ({device['emulated_how']}): times mean nothing here"))
    return [Finding(note) for note in found]
