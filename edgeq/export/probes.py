"""Writes the packaged saturation probes: ``python -m edgeq.export.probes [OUT]`` (see ``edgeq/backends/probes.py``).

Each is made by the exporter that makes the artifacts, from a recipe of its own, so that probe and artifact meet the same
kernels.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from edgeq.artifact import TARGETS
from edgeq.backends import probes
from edgeq.export.family import Exporter, FloatSource, Recipe
from edgeq.spec.model import ModelSpec, Preprocess, Source

if TYPE_CHECKING:
    import torch


class Ones:
    """The calibration set: the probe's own input, twice. Every tool's ranges hold zero as well, so they are 0 to the
    largest value; a sample of zeros would halve them in tools that take the mean over samples."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[npt.NDArray[np.float32]]:
        shape = (probes.CHANNELS, probes.HEIGHT, probes.WIDTH)
        for _ in range(len(self)):
            yield np.ones(shape, np.float32)


def spec() -> ModelSpec:
    """The probe as a model; ``macs`` are those of ``probes.LAYERS``."""
    return ModelSpec(
        name="probe",
        title="probe",
        source=Source(package="", constructor=""),
        input_shape=(probes.CHANNELS, probes.HEIGHT, probes.WIDTH),
        classes=sum(probes.PATHS.values()),
        macs=sum(layer.macs for layer in probes.LAYERS),
        parameters=0,
        preprocess=Preprocess(resize=probes.HEIGHT, crop=probes.HEIGHT, mean=(0, 0, 0), std=(1, 1, 1)),
    )


def network() -> torch.nn.Module:
    """The float32 network: every output is ``probes.EXPECTED`` for an input of ones."""
    import torch
    from torch import nn

    inner, wide, outputs = probes.INNER, probes.WIDE, probes.OUTPUTS

    class Probe(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(probes.CHANNELS, inner, 1)
            self.signed_stem = nn.Conv2d(probes.CHANNELS, inner, 1)
            self.point = nn.Conv2d(inner, outputs, 1)
            self.signed_point = nn.Conv2d(inner, outputs, 1)
            self.spatial = nn.Conv2d(inner, outputs, 3)
            self.depthwise = nn.Conv2d(inner, inner, 3, padding=1, groups=inner)
            self.wide_stem = nn.Conv2d(probes.CHANNELS, wide, 1)
            self.wide_depthwise = nn.Conv2d(wide, wide, 3, padding=1, groups=wide)
            self.linear = nn.Linear(inner, outputs)
            self.relu = nn.ModuleList([nn.ReLU() for _ in range(6)])
            self.mean = nn.ModuleList([nn.AdaptiveAvgPool2d(1) for _ in range(4)])
            # At the edge padding takes taps away: the answer is the largest value.
            self.largest = nn.ModuleList([nn.MaxPool2d((probes.HEIGHT, probes.WIDTH)) for _ in range(2)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            ones = self.relu[0](self.stem(x))
            pooled = [
                self.mean[0](self.relu[1](self.point(ones))),
                self.mean[1](self.signed_point(self.signed_stem(x))),
                self.mean[2](self.relu[2](self.spatial(ones))),
                self.largest[0](self.relu[3](self.depthwise(ones))),
                self.largest[1](self.relu[4](self.wide_depthwise(self.relu[5](self.wide_stem(x))))),
            ]
            found = [torch.flatten(value, 1) for value in pooled]
            found.append(self.linear(torch.flatten(self.mean[3](ones), 1)))
            return torch.cat(found, dim=1)

    module = Probe().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        sign = _signs()
        # One weight an output: whatever pairs the kernel makes, its first layer saturates nowhere.
        module.stem.weight[:, 0] = module.wide_stem.weight[:, 0] = 1.0
        module.signed_stem.weight[:, 0, 0, 0] = sign
        row = torch.tensor(probes.WEIGHTS).repeat(inner // 2)
        module.point.weight[:] = row[None, :, None, None]
        module.signed_point.weight[:] = (row * sign)[None, :, None, None]
        module.spatial.weight[:] = row[None, :, None, None] / 9
        module.linear.weight[:] = row[None]
        taps = row[:9].reshape(3, 3)
        module.depthwise.weight[:] = module.wide_depthwise.weight[:] = taps * (probes.EXPECTED / taps.sum())
    return module


def _signs() -> torch.Tensor:
    """Four channels up, four down: kernels sum two or four neighbours at once."""
    import torch

    return torch.tensor([1.0] * 4 + [-1.0] * 4).repeat(probes.INNER // 8)


def recipe_of(backend: str, name: str) -> Recipe:
    """The exporter's own recipe where it is one of some target's; else that of a CPU with VNNI, with this one's settings."""
    known, exporter = probes.PROBES[backend][name], exporter_of(backend)
    for target in TARGETS:
        recipe = exporter.recipe(known.scheme, target)
        if known.details.items() <= recipe.settings.items():
            return recipe
    recipe = exporter.recipe(known.scheme, "x86_64-vnni")
    return Recipe(recipe.target, recipe.settings | known.details)


def exporter_of(backend: str) -> Exporter:
    return cast(Exporter, importlib.import_module(f"edgeq.export.{backend}"))


def write(backend: str, names: Sequence[str], out: Path) -> list[Path]:
    """Makes the probes ``names`` of ``backend`` in the folder ``out``; returns all files, each probe's first one first."""
    written = []
    with tempfile.TemporaryDirectory() as folder:
        source = FloatSource(spec(), network(), Path(folder), Ones())
        for name in names:
            known = probes.PROBES[backend][name]
            built = exporter_of(backend).build(source, known.scheme, recipe_of(backend, name), out, f"{backend}-{name}")
            drop_source_places(built.files)
            written += built.files
    return written


def drop_source_places(files: Sequence[Path]) -> None:
    """Takes out of TorchScript archives among ``files`` where each line of code stood on the machine that traced it."""
    for file in files:
        if file.suffix == ".pt":
            _drop_source_places(file)


def _drop_source_places(file: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        kept = {name: archive.read(name) for name in archive.namelist() if not name.endswith(".debug_pkl")}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in kept.items():
            archive.writestr(zipfile.ZipInfo(name), content)


def write_packaged(
    what: str,
    named: Mapping[str, Mapping[str, object]],
    out: Path,
    write: Callable[[str, Sequence[str], Path], list[Path]],
) -> None:
    """The command that writes packaged networks: ``[OUT] [--backend NAME]``.

    Args:
        what: They are, for its help.
        named: Backend → the networks there are of it, by name.
        out: Where they go, unless the command line says otherwise.
    """
    parser = argparse.ArgumentParser(description=f"Writes the packaged {what}.")
    parser.add_argument("out", nargs="?", type=Path, default=out)
    parser.add_argument("--backend", action="append", choices=list(named))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for backend in asked.backend or named:
        for file in write(backend, list(named[backend]), asked.out):
            print(f"{file} ({file.stat().st_size:,} bytes)")


if __name__ == "__main__":
    write_packaged("saturation probes", probes.PROBES, probes.FILES, write)
