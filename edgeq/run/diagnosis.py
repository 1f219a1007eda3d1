"""What ``edgeq doctor`` finds: the device, the frameworks beside it, and what to expect or to mend."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from edgeq.backends import REGISTRY, installed
from edgeq.host.device import describe
from edgeq.spec.note import Note


@dataclass(frozen=True)
class Finding:
    """One verdict line; ``wrong`` where the hint mends it, else a thing to know."""

    note: Note
    wrong: bool = False


@dataclass(frozen=True)
class Diagnosis:
    """The device, each backend's distributions and versions, and the verdict lines."""

    device: dict[str, Any]
    backends: dict[str, dict[str, str]]
    findings: list[Finding] = field(default_factory=list)

    @property
    def wrong(self) -> bool:
        return any(finding.wrong for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "backends": self.backends,
            "findings": [{**finding.note.model_dump(), "wrong": finding.wrong} for finding in self.findings],
        }


def diagnose() -> Diagnosis:
    """Looks at this device; imports no framework."""
    device = describe()
    backends = {backend: installed(backend) for backend in REGISTRY}
    return Diagnosis(device, backends, [*_frameworks(backends), *_loadgen(), *_expectations(device)])


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
    return found


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
