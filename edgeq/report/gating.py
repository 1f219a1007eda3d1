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
    "throttled": "the device was throttled",
}

#: The same, where the figure comes from one round only: its interval, drawn from within that round, does not know of
#: them. Over rounds the interval holds what they do, and rounds are interleaved, so that what lasts bears on all alike.
GATING_ONE_ROUND: dict[str, str] = {
    "unsteady": "its figure is not steady",
    "drift": "its figure drifted during the measurement",
    "busy-neighbour": "something else used the CPU",
}

#: In the order in which they are said.
ALL_GATING = {**GATING, **GATING_ONE_ROUND}

#: What does not gate by itself, and why:
#: ``target-mismatch`` (made for another CPU) and ``saturation`` (the probe's convolution comes out wrong) say that the
#: output may be wrong. Whether it is, is measured on this device with this network, and gates as ``output-differs``,
#: ``low-agreement`` or ``accuracy-loss``; the speed is real. A network whose weights are small may not saturate at all.
#: ``bimodal``, ``outliers`` and ``rounds-differ`` tell of the spread, which the interval holds: of percentiles in
#: blocks, or of rounds. What a warm-up that was cut short (``not-steady``) does to the figure shows as ``drift``, which
#: gates; a slow network has no time for two windows, and is not wrong for that. ``round-lost`` and ``no-profile`` take
#: nothing from the figure that is there.


def gate(
    status: str, codes: Iterable[str], top1_drop: float | None, stable: bool | None, *, over_rounds: bool = False
) -> tuple[str, ...]:
    """The codes that keep a cell out of the ranking, in the order of ``ALL_GATING``; empty where it may be ranked.

    Args:
        status: The record's status; anything but ``ok`` keeps it out, as itself.
        codes: Codes of the record's warnings.
        top1_drop: Top-1 lost against the same framework's fp32 in the same run (fraction), or None where unknown.
        stable: Whether the output was the same after the run as before it; None where unknown.
        over_rounds: Whether the figure's interval is over rounds.
    """
    if status != "ok":
        return (status,)
    found = set(codes)
    if top1_drop is not None and loses_accuracy(0.0, top1_drop):
        found.add("accuracy-loss")
    if stable is False:
        found.add("output-differs")
    return tuple(code for code in (GATING if over_rounds else ALL_GATING) if code in found)


def explain(gates: Iterable[str]) -> str:
    """Why a cell has no rank, in words; empty where it has one."""
    return "; ".join(ALL_GATING.get(code, code) for code in gates)
