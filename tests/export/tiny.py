"""A package of one small model, such as ``[source]`` of a model.toml may name: a ``package`` to build from."""

from __future__ import annotations

import enum
from typing import Any

import torch
from torch import nn

#: Of ``TinyNet``: what a right model.toml says.
PARAMETERS = 8 * 3 * 9 + 8 * 2 + 8 * 9 + 8 * 2 + 16 * 8 + 16 * 10 + 10
MACS = 16 * 16 * (8 * 27) + 16 * 16 * 8 * 9 + 16 * 16 * 16 * 8 + 16 * 10


class TinyNet(nn.Module):  # type: ignore[misc]
    """Convolution, depthwise, pointwise and linear layers on 32 by 32 pixels, ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(16, 10)
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.norm2 = nn.BatchNorm2d(8)
        self.pointwise = nn.Conv2d(8, 16, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(self.norm2(self.depthwise(x)))
        return self.classifier(torch.relu(self.pointwise(x)).mean(dim=(2, 3)))


def tiny(*, weights: Any = None) -> nn.Module:
    """The constructor. edgeq never lets it download."""
    if weights is not None:
        raise AssertionError("edgeq loads weights itself")
    return TinyNet()


def bare() -> nn.Module:
    """A constructor that knows no weights."""
    return TinyNet()


class Fake:
    """Stands in for ``torchvision.models._api.Weights``; tests set the address of their own server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.transforms = None
        self.meta: dict[str, Any] = {}


def weights_enum(url: str) -> type[enum.Enum]:
    """A ``WeightsEnum`` with the member ``V1`` at ``url``: its ``get_state_dict`` is torchvision's own."""
    from torchvision.models._api import WeightsEnum

    members: type[enum.Enum] = WeightsEnum("Tiny_Weights", {"V1": Fake(url)})
    return members
