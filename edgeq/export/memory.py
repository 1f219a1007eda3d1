"""How much memory the export of one family takes, and how much there is for all that go on at once."""

from __future__ import annotations

from pathlib import Path

from edgeq.host import memory
from edgeq.host.reading import ROOT

#: Bytes that a family's child takes at its peak: so many, whatever the model (frameworks, activations of one sample, a
#: quantizer's statistics), and so many for each of its parameters (several float copies of them). Measured, the largest of
#: the four: MobileNetV2 1.3 GB and DenseNet-121 1.9 GB (TFLite), VGG-19, 144 million parameters, 4.8 GB (ONNX Runtime).
BYTES_AND, BYTES_A_PARAMETER = 2_000_000_000, 24
#: Of the memory that can be had without swapping; the rest is for whatever else grows meanwhile.
SHARE = 0.8


def family_bytes(parameters: int) -> int:
    """What a family of a model of so many parameters takes at most."""
    return BYTES_AND + BYTES_A_PARAMETER * parameters


def room(root: Path = ROOT) -> int | None:
    """Bytes for all families at work, within the limit of a control group; None where the machine does not tell."""
    free = memory.available(root)
    return None if free is None else int(SHARE * free)
