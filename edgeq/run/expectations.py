"""What a device's instruction sets let one expect of its figures: said once a run, and by ``edgeq doctor``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from edgeq.spec.names import SCHEMES
from edgeq.spec.note import Note


def expectations(device: Mapping[str, Any], schemes: Collection[str] = SCHEMES) -> list[Note]:
    """Of a run of ``schemes``. None of it makes a figure wrong, so that none of it is a warning in a record.

    Args:
        device: ``edgeq.host.describe()``.
    """
    isa, found = set(device["isa"]), []
    whole = any(scheme.startswith("int8") for scheme in schemes)
    if whole and device["target"] == "x86_64":
        found.append(
            Note(
                code="no-vnni",
                text="no VNNI here: INT8 gains are small, and u8 x s8 products can saturate",
                hint="export --target host picks the recipes that do not saturate",
            )
        )
    if whole and device["target"] == "aarch64" and "dotprod" not in isa:
        found.append(
            Note(
                code="no-dotprod",
                text=f"no dot-product instructions here ({device['cpu']}): INT8 gains are small, though files are a quarter "
                "as large",
            )
        )
    if "fp16" in schemes and not isa & {"fp16", "avx512_fp16"}:
        found.append(
            Note(code="no-fp16", text="no FP16 arithmetic here: fp16 halves storage and computes in fp32, or is slow")
        )
    return found
