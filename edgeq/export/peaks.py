"""Writes the packaged peak networks: ``python -m edgeq.export.peaks [OUT]`` (see ``edgeq/backends/peaks.py``).

Each is made by the exporter that makes the artifacts, and by its recipe, so that it meets the same kernels.
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edgeq.backends import peaks, probes
from edgeq.backends.peaks import Shape
from edgeq.export.family import FloatSource, Recipe
from edgeq.export.probes import drop_source_places, exporter_of, write_packaged
from edgeq.export.probes import recipe_of as probe_recipe
from edgeq.spec.model import ModelSpec, Preprocess, Source

if TYPE_CHECKING:
    import torch

#: Numbers in a weight's pattern: few, so that files pack well, and enough that no two output channels are alike nearby.
PATTERN = 64


class Noise:
    """The calibration set: two samples like those that are timed."""

    def __init__(self, shape: Shape) -> None:
        self._shape = (peaks.INPUTS, shape.size, shape.size)

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[npt.NDArray[np.float32]]:
        random = np.random.default_rng(0)
        for _ in range(len(self)):
            yield random.standard_normal(self._shape).astype(np.float32)


def spec(shape: Shape) -> ModelSpec:
    """The network as a model."""
    return ModelSpec(
        name="peak",
        title="peak",
        source=Source(package="", constructor=""),
        input_shape=(peaks.INPUTS, shape.size, shape.size),
        classes=peaks.OUTPUTS,
        macs=sum(layer.macs for layer in shape.macs()),
        parameters=0,
        preprocess=Preprocess(resize=shape.size, crop=shape.size, mean=(0, 0, 0), std=(1, 1, 1)),
    )


def network(shape: Shape) -> torch.nn.Module:
    """The float32 network, whose activations have about unit scale in every layer."""
    import torch
    from torch import nn

    class Stack(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(peaks.INPUTS, peaks.CHANNELS, 1)
            body = [nn.Conv2d(peaks.CHANNELS, peaks.CHANNELS, shape.kernel) for _ in range(shape.layers)]
            self.body = nn.ModuleList(body)
            self.relu = nn.ModuleList([nn.ReLU() for _ in range(shape.layers + 1)])
            self.pool = nn.AdaptiveAvgPool2d(1)
            self.head = nn.Linear(peaks.CHANNELS, peaks.OUTPUTS)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.relu[0](self.stem(x))
            for relu, layer in zip(list(self.relu)[1:], self.body, strict=True):
                x = relu(layer(x))
            return self.head(torch.flatten(self.pool(x), 1))

    module = Stack().eval()
    with torch.no_grad():
        x = torch.from_numpy(np.stack(list(Noise(shape))))
        for seed, layer in enumerate([module.stem, *module.body, module.head]):
            if layer is module.head:
                x = torch.flatten(module.pool(x), 1)
            layer.weight[:] = _pattern(tuple(layer.weight.shape), seed)
            layer.bias.zero_()
            layer.weight /= layer(x).std()
            x = torch.relu(layer(x))
    return module


def _pattern(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Weights ``[outputs, inputs, …]`` of ``PATTERN`` random numbers, which lie in another order in each output channel.

    Half of them are the others' negatives: inputs are positive, and a sum that leaned to one side would be all or nothing.
    """
    import torch

    half = torch.randn(PATTERN // 2, generator=torch.Generator().manual_seed(seed))
    numbers = torch.cat([half, -half])[torch.randperm(PATTERN, generator=torch.Generator().manual_seed(seed))]
    places = torch.zeros(shape, dtype=torch.long)
    for axis, (length, step) in enumerate(zip(shape, (7, 1, 3, 5), strict=False)):
        places += step * torch.arange(length).reshape([-1 if each == axis else 1 for each in range(len(shape))])
    return numbers[places % PATTERN]


def recipe_of(backend: str, name: str) -> Recipe:
    """The recipe of the saturation probe of that name; the exporter's own for fp32, of which there is no probe."""
    if name in probes.PROBES[backend]:
        return probe_recipe(backend, name)
    return exporter_of(backend).recipe(peaks.NETS[backend][name].scheme, "x86_64-vnni")


def write(backend: str, names: Sequence[str], out: Path) -> list[Path]:
    """Makes the networks ``names`` of ``backend`` in the folder ``out``, packed; returns all files."""
    written = []
    for name in names:
        net = peaks.NETS[backend][name]
        with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as folder:
            source = FloatSource(spec(net.shape), network(net.shape), Path(work), Noise(net.shape))
            built = exporter_of(backend).build(
                source, net.scheme, recipe_of(backend, name), Path(folder), f"{backend}-{name}"
            )
            drop_source_places(built.files)
            for file in built.files:
                packed = out / f"{file.name}{peaks.PACKED}"
                packed.write_bytes(gzip.compress(file.read_bytes(), mtime=0))
                written.append(packed)
    return written


if __name__ == "__main__":
    write_packaged("peak networks", peaks.NETS, peaks.FILES, write)
