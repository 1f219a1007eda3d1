"""Executed layers → the share of multiply-adds in each precision, checked against the float model's own count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgeq.artifact import Layer
from edgeq.spec.note import Note

#: Both channel counts of a layer rounded up to a block; beyond this it is another layer, not a padded one.
_MOST_PADDING = 4


@dataclass(frozen=True)
class Executed:
    """A convolution or linear layer as the framework ran it: its multiply-adds for one sample, and their precision."""

    precision: str
    macs: int


def conv_macs(output: Sequence[int], weight: Sequence[int]) -> int:
    """Multiply-adds of a two-dimensional convolution: every output value takes one weight kernel.

    Args:
        output: Shape of the output, channels first or last.
        weight: ``[O, I/groups, kh, kw]`` or ``[groups, O/groups, I/groups, kh, kw]``.
    """
    channels = math.prod(weight[:-3])
    return math.prod(output) * math.prod(weight) // channels


def linear_macs(output: Sequence[int], inner: int) -> int:
    """Multiply-adds of a matrix product: every output value takes ``inner`` of them."""
    return math.prod(output) * inner


def shares(executed: Sequence[Executed], layers: Sequence[Layer]) -> tuple[dict[str, float], tuple[Note, ...]]:
    """The share of multiply-adds in each precision, and a note where they are not the float model's.

    A framework may pad channels to whole blocks, and so execute more than the model asks for (ONNX Runtime's NCHWc
    layout, blocks of 8 or 16). Where the executed layers are ``layers`` one by one, in order, each with at least as
    many multiply-adds, the share is one of the model's own multiply-adds.

    The first result sums to 1 over the layers found (empty where none was). The second is empty where every layer was
    found, else the note ``macs-unaccounted``.
    """
    if _pair(executed, layers):
        executed = [Executed(ran.precision, layer.macs) for ran, layer in zip(executed, layers, strict=True)]
    found: dict[str, int] = {}
    for ran in executed:
        found[ran.precision] = found.get(ran.precision, 0) + ran.macs
    total = sum(found.values())
    expected = sum(layer.macs for layer in layers)
    notes = (unaccounted(f"{total:,} multiply-adds were found, {expected:,} expected"),) if total != expected else ()
    return {precision: macs / total for precision, macs in sorted(found.items()) if macs}, notes


def unaccounted(why: str) -> Note:
    """The warning that the shares of precisions are not of the whole model."""
    return Note(
        code="macs-unaccounted",
        text=f"the framework's graph does not add up to the float model: {why}",
        hint="do not rely on the shares of executed precisions; report this with the record",
    )


def _pair(executed: Sequence[Executed], layers: Sequence[Layer]) -> bool:
    return len(executed) == len(layers) and all(
        layer.macs <= ran.macs <= _MOST_PADDING * layer.macs for ran, layer in zip(executed, layers, strict=True)
    )
