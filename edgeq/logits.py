"""Logits against logits: is an output alive, and how far off is it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeq.spec.errors import EdgeqError

Array = npt.NDArray[np.float32]

#: Below this signal-to-quantization-noise ratio an artifact's logits are not to be trusted without a measured accuracy:
#: the noise has a tenth of the signal's power.
LOW_SQNR_DB = 10.0


@dataclass(frozen=True)
class Distance:
    """How far ``found`` logits lie from ``expected`` ones, both ``[n, classes]``."""

    n: int
    sqnr_db: float | None
    max_rel_error: float
    top1_agreement: float


def distance(found: Array, expected: Array) -> Distance:
    """Signal-to-quantization-noise ratio 10 log10(sum x² / sum (x - y)²), largest relative error, top-1 agreement.

    ``sqnr_db`` is None where the error is exactly zero. Raises ``ValueError`` where the shapes differ.
    """
    if found.shape != expected.shape:
        raise ValueError(f"logits of shape {found.shape}, expected {expected.shape}")
    error = found.astype(np.float64) - expected.astype(np.float64)
    noise, signal = float(np.sum(error**2)), float(np.sum(expected.astype(np.float64) ** 2))
    sqnr = None if noise == 0 else 10 * math.log10(max(signal, np.finfo(np.float64).tiny) / noise)
    scale = float(np.max(np.abs(expected)))
    return Distance(
        n=len(found),
        sqnr_db=sqnr,
        max_rel_error=float(np.max(np.abs(error))) / scale if scale else math.inf,
        top1_agreement=float(np.mean(found.argmax(1) == expected.argmax(1))),
    )


def alive(logits: Array) -> None:
    """Raises ``EdgeqError`` (code ``dead-output``) for logits that are not finite, or that do not vary.

    LoadGen calls a run with such a model VALID (it never looks at the responses), so edgeq must look.
    """
    why = None
    if not np.all(np.isfinite(logits)):
        why = "some logits are not finite"
    elif np.any(np.ptp(logits, axis=1) == 0):
        why = "all logits of a sample are equal"
    elif len(logits) > 1 and np.all(logits == logits[0]):
        why = "different samples give the same logits"
    if why:
        raise EdgeqError(
            "the artifact's output is dead",
            why,
            "export it anew; if that does not help, try another --target or calibration set",
            code="dead-output",
        )


def bad_output(why: str) -> EdgeqError:
    """The error for logits that can't be an answer."""
    return EdgeqError(
        "the model's output is not usable",
        why,
        "export the artifact again; if it persists, report it with the record",
        code="bad-output",
    )
