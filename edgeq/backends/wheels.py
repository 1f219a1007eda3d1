"""Published wheels that die on CPUs that are in use, by version, and what to install instead; written down here alone.

Imports no framework. Whether a framework does die here is found out by importing it in a child (``edgeq.run.imports``): one
that was built for the device may well carry the same version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgeq.installing import pip_install
from edgeq.spec.note import Note

Release = tuple[int, ...]


@dataclass(frozen=True)
class Deadly:
    """Versions of a distribution whose aarch64 wheels use instructions that some ARM cores lack."""

    backend: str
    distribution: str
    first: Release
    last: Release
    """Both included; as many numbers as count."""
    when: str
    cure: str
    threads: str


#: All need atomics (LSE) that came with ARMv8.1, or more, which a Raspberry Pi 4's Cortex-A72 (ARMv8.0) has not. Tried on an
#: emulated Cortex-A72: torch 2.4.0 and 2.10.0 died when they were imported, 2.6.0 at the first TorchScript; 2.9.1 imported,
#: and ran float, float16 and int8 (QNNPACK) layers. Later ones than 2.10 are said to be mended, but the index has only CUDA
#: builds of them for ARM, with gigabytes of libraries that a board has no use for.
DEADLY = (
    Deadly("pytorch", "torch", (2, 4, 0), (2, 4, 0), "when it is imported", "torch==2.9.1", "pytorch/pytorch#132032"),
    Deadly("pytorch", "torch", (2, 6, 0), (2, 6, 0), "in some operators", "torch==2.9.1", "pytorch/pytorch#146792"),
    Deadly(
        "pytorch", "torch", (2, 10, 0), (2, 10, 0), "when it is imported", "torch==2.9.1",
        "pytorch/pytorch#174344, #176993",
    ),
    Deadly(
        "onnxruntime", "onnxruntime", (1, 21), (1, 21), "when it is imported", "onnxruntime>=1.22",
        "microsoft/onnxruntime#23957, #24112",
    ),
)  # fmt: skip


def deadly(backend: str, versions: Mapping[str, str], device: Mapping[str, Any]) -> Note | None:
    """What is known of an installed framework on a device, before it is tried; None where nothing speaks against it.

    Args:
        versions: Distribution → version (``edgeq.backends.installed``).
        device: ``edgeq.host.describe()``.
    """
    if device["target"] != "aarch64" or "lse" in device["isa"]:
        return None
    for known in DEADLY:
        version = versions.get(known.distribution)
        if known.backend == backend and version is not None and _within(release(version), known):
            text = (
                f"{known.distribution} {version}: its published wheel uses instructions that this CPU lacks "
                f"({device['cpu']}), and dies {known.when} ({known.threads})"
            )
            return Note(code="deadly-wheel", text=text, hint=f"run: {pip_install(known.cure, pinned=False)}")
    return None


def advice(backend: str) -> str:
    """What to do about a framework that died of an illegal instruction."""
    known = [each for each in DEADLY if each.backend == backend]
    if not known:
        return f"install another version of it, or leave it out: name other backends by --backend (not {backend})"
    versions = ", ".join(_dotted(each.first) for each in known)
    return (
        f"{known[0].distribution} {versions} is known to die so on ARM cores as old as a Raspberry Pi 4's; run: "
        f"{pip_install(known[-1].cure, pinned=False)}"
    )


def _within(found: Release, known: Deadly) -> bool:
    return known.first <= found[: len(known.first)] and found[: len(known.last)] <= known.last


def _dotted(found: Release) -> str:
    return ".".join(map(str, found))


def release(version: str) -> Release:
    """The leading numbers of a version: ``2026.4.1+cpu`` → (2026, 4, 1); empty where it begins with none."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
