"""Which cells may be ranked: decided here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgeq.logits import LOW_SQNR_DB
from edgeq.run.record import MAX_TOP1_DROP, loses_accuracy

#: Of the images that fp32 was judged on too, the share on which a cell must give fp32's own top-1. Schemes that keep
#: top-1 within a point agree on 88 % (int8-dynamic of MobileNetV2) to 98 %; one that answers otherwise on every fourth
#: image is another network, whatever share of labels it hits.
LEAST_AGREEMENT = 0.75

#: So many labelled images say more of an output than the logits of a few samples do: with them a measured top-1 decides,
#: and not the SQNR. (MobileNetV2 int8-static per tensor, 8.7 dB, loses no top-1 worth the name.)
FEWEST_IMAGES = 100

#: What takes a cell out of the ranking → why, in a few words. The cell is shown all the same, flagged so. ``throttled``
#: stands for ``host.slowed_by`` of its record (and was a warning's code up to schema 3).
GATING: dict[str, str] = {
    "accuracy-loss": "loses too much accuracy",
    "low-agreement": "agrees too little with float",
    "output-differs": "its output is not the model's",
    "unstable-output": "the same input gave other outputs",
    "throttled": "the device held itself back",
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
#: nothing from the figure that is there. ``slow-clock`` and ``swapped`` tell how the device was set up and loaded, which is
#: alike for all cells of a run as a rule; where it changed meanwhile, ``drift`` gates.


#: What is asked of an output, for the legend of a ranking.
GATE_LEGEND = (
    f"No rank: top-1 more than {100 * MAX_TOP1_DROP:g} points below its own fp32; fp32's own top-1 on less than "
    f"{100 * LEAST_AGREEMENT:g} % of the images; or, where top-1 against fp32 is not known of {FEWEST_IMAGES} labelled "
    f"images or more, logits less than {LOW_SQNR_DB:g} dB (SQNR) from torch's float32."
)


@dataclass(frozen=True)
class Closeness:
    """How near an output lies to float: on images, and in the check of a few samples on this device."""

    agreement: float | None = None
    """Share of the images with fp32's own top-1 (0 to 1); None where it was not measured."""
    images: int | None = None
    """How many images top-1 and agreement are of."""
    checked: bool = False
    sqnr_db: float | None = None
    """Of the output check; None where that found no error at all."""


def too_far(of: Closeness, codes: Iterable[str], top1_drop: float | None) -> str:
    """Why a cell agrees too little with float, in a few words with the figure; empty where it does not.

    Decided by figures. That top-1 agrees on few of the check's samples is no reason: they are a handful. A warning
    ``low-agreement`` decides only where the record holds no check.
    """
    if of.agreement is not None and of.agreement < LEAST_AGREEMENT:
        return f"fp32's own top-1 on {100 * of.agreement:.0f} % of {of.images} images"
    if top1_drop is not None and (of.images or 0) >= FEWEST_IMAGES:
        return ""
    if not of.checked:
        return "as a warning says" if "low-agreement" in codes else ""
    low = of.sqnr_db is not None and of.sqnr_db < LOW_SQNR_DB
    return f"logits {of.sqnr_db:.1f} dB from float's" if low else ""


def gate(
    status: str, codes: Iterable[str], top1_drop: float | None, stable: bool | None, *, over_rounds: bool = False,
    closeness: Closeness | None = None,
) -> tuple[str, ...]:  # fmt: skip
    """The codes that keep a cell out of the ranking, in the order of ``ALL_GATING``; empty where it may be ranked.

    Args:
        status: The record's status; anything but ``ok`` keeps it out, as itself.
        codes: Codes of the record's warnings.
        top1_drop: Top-1 lost against the same framework's fp32 in the same run (fraction), or None where unknown.
        stable: Whether the output was the same after the run as before it; None where unknown.
        over_rounds: Whether the figure's interval is over rounds.
        closeness: What is known of the output; None for nothing but ``codes``.
    """
    if status != "ok":
        return (status,)
    found = set(codes)
    if top1_drop is not None and loses_accuracy(0.0, top1_drop):
        found.add("accuracy-loss")
    far = too_far(closeness or Closeness(), found, top1_drop)
    found = found | {"low-agreement"} if far else found - {"low-agreement"}
    if stable is False:
        found.add("output-differs")
    return tuple(code for code in (GATING if over_rounds else ALL_GATING) if code in found)


def explain(gates: Iterable[str], details: Mapping[str, str] | None = None) -> str:
    """Why a cell has no rank, in words, with what ``details`` tell of a code; empty where it has one."""
    told = {code: f" ({text})" for code, text in (details or {}).items() if text}
    return "; ".join(ALL_GATING.get(code, code) + told.get(code, "") for code in gates)
