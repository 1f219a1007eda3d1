"""Which cells may be ranked: decided here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable

from edgeq.run.record import loses_accuracy

#: A warning that takes a cell out of the ranking → why, in a few words. The cell is shown all the same, flagged so.
GATING: dict[str, str] = {
    "accuracy-loss": "loses too much accuracy",
    "low-agreement": "agrees too little with float",
    "output-differs": "its output is not the model's",
    "unstable-output": "the same input gave other outputs",
    "unsteady": "its figure is not steady",
    "throttled": "the device was throttled",
}

#: ``target-mismatch`` (made for another CPU) does not gate by itself: its speed here is real, and what it does to the
#: output is measured on this device and gates as ``output-differs``, ``low-agreement`` or ``accuracy-loss``.


def gate(status: str, codes: Iterable[str], top1_drop: float | None, stable: bool | None) -> tuple[str, ...]:
    """The codes that keep a cell out of the ranking, in the order of ``GATING``; empty where it may be ranked.

    Args:
        status: The record's status; anything but ``ok`` keeps it out, as itself.
        codes: Codes of the record's warnings.
        top1_drop: Top-1 lost against the same framework's fp32 in the same run (fraction), or None where unknown.
        stable: Whether the output was the same after the run as before it; None where unknown.
    """
    if status != "ok":
        return (status,)
    found = set(codes)
    if top1_drop is not None and loses_accuracy(0.0, top1_drop):
        found.add("accuracy-loss")
    if stable is False:
        found.add("output-differs")
    return tuple(code for code in GATING if code in found)


def explain(gates: Iterable[str]) -> str:
    """Why a cell has no rank, in words; empty where it has one."""
    return "; ".join(GATING.get(code, code) for code in gates)
