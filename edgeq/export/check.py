"""An artifact against torch's float32 logits: is it alive, and how far off is it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from edgeq.artifact import Check, Manifest
from edgeq.backends.session import Array, Session
from edgeq.data.layout import to_layout
from edgeq.logits import LOW_SQNR_DB, Distance, alive, distance
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

#: DESIGN: the float artifact's logits agree with torch's to this maximum relative error.
FLOAT32_MAX_REL_ERROR = 1e-3
#: Ten mantissa bits give each operator about 66 dB; a network of float16 operators that falls below this is broken.
FLOAT16_MIN_SQNR_DB = 25.0
#: Seconds that one artifact's comparison may take beyond its first sample: a reference kernel may need a minute each.
CHECK_BUDGET_S = 5.0


def run_samples(session: Session, samples: Array, budget_s: float = CHECK_BUDGET_S) -> Array:
    """Logits of as many of ``samples`` (NCHW) as fit into ``budget_s``, at least of one."""
    batch = to_layout(samples, session.input.layout)
    started, found = time.monotonic(), []
    for index in range(len(batch)):
        found.append(session.infer(np.ascontiguousarray(batch[index : index + 1])))
        if time.monotonic() - started > budget_s:
            break
    return np.concatenate(found)


def check(
    session: Session, manifest: Manifest, samples: Array, expected: Array, fp32_bytes: int | None
) -> tuple[Check, list[Note]]:
    """Runs the artifact on calibration samples (NCHW) and compares it with torch's float32 logits for them.

    Returns the figures, and the warning ``low-agreement`` where they are poor. What the session warns of is about this
    machine; each device says its own.

    Raises:
        EdgeqError: a dead output; a float32 artifact that is not torch's network (``float-differs``); a float16 one
            that is far off (``fp16-differs``); layers to be kept in float that run in int8 (``layers-not-kept``). INT8
            loss is not an error: it is a figure, and the tables gate on it.
    """
    found = run_samples(session, samples)
    alive(found)
    gap = distance(found, expected[: len(found)])
    _float_agrees(manifest.scheme, gap)
    effective = session.effective()
    _layers_kept(manifest, effective.macs)
    checked = Check(
        **gap.__dict__,
        macs=effective.macs,
        quantized_macs=effective.macs.get("int8", 0.0),
        size_ratio=manifest.bytes / fp32_bytes if fp32_bytes else None,
    )
    return checked, list(_far_off(checked))


def _layers_kept(manifest: Manifest, macs: dict[str, float]) -> None:
    """Raises where more multiply-adds run in int8 than the layers kept in float leave."""
    kept = manifest.details.get("kept_float", [])
    total = sum(layer.macs for layer in manifest.layers)
    share = sum(layer.macs for layer in manifest.layers if layer.name in kept) / total if kept else 0.0
    if macs.get("int8", 0.0) > 1 - share + 1e-6:
        raise EdgeqError(
            f"layers kept in float run in int8: {', '.join(kept)}",
            f"{macs['int8']:.2%} of the multiply-adds run in int8, where these leave at most {1 - share:.2%}",
            "report this with the manifest; without --keep-float and --max-top1-drop the export is as it was",
            code="layers-not-kept",
        )


def _far_off(found: Check) -> Iterator[Note]:
    if found.sqnr_db is not None and found.sqnr_db < LOW_SQNR_DB:
        yield Note(
            code="low-agreement",
            text=f"logits lie {found.sqnr_db:.1f} dB from float32 (SQNR on {found.n} calibration samples; "
            f"top-1 agrees on {found.top1_agreement:.0%})",
            hint="measure accuracy with --dataset before trusting this artifact",
        )


def _float_agrees(scheme: str, gap: Distance) -> None:
    again = "report this with the manifest: the conversion changed the network"
    if scheme == "fp32" and gap.max_rel_error > FLOAT32_MAX_REL_ERROR:
        raise EdgeqError(
            "the float32 artifact is not torch's network",
            f"largest relative error {gap.max_rel_error:.1e}, at most {FLOAT32_MAX_REL_ERROR:.0e} allowed",
            again,
            code="float-differs",
        )
    if scheme == "fp16" and gap.sqnr_db is not None and gap.sqnr_db < FLOAT16_MIN_SQNR_DB:
        raise EdgeqError(
            "the float16 artifact is far from torch's network",
            f"SQNR {gap.sqnr_db:.1f} dB, at least {FLOAT16_MIN_SQNR_DB:.0f} dB expected",
            again,
            code="fp16-differs",
        )
