"""A network with a layer of every kind that the exporters treat differently, and its export by one family."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from edgeq.artifact import CalibrationInfo, FileEntry, Manifest, Reference, WeightsInfo
from edgeq.export.family import Exporter, FloatSource
from edgeq.export.macs import layers
from edgeq.files import sha256_file
from edgeq.spec.model import ModelSpec
from edgeq.spec.quantization import DEFAULTS, QuantizationOptions

SHAPE, CLASSES = (3, 32, 32), 10


class Samples:
    """Seeded noise with low frequencies, in place of images."""

    def __init__(self, count: int, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        coarse = generator.standard_normal((count, SHAPE[0], 4, 4)).astype(np.float32)
        self.array: npt.NDArray[np.float32] = np.ascontiguousarray(coarse.repeat(8, axis=2).repeat(8, axis=3))

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[npt.NDArray[np.float32]]:
        return iter(self.array)


def network() -> Any:
    """conv+BN+ReLU6, depthwise+BN+ReLU6, 1x1 conv+BN with a residual, ReLU conv, pool, linear."""
    import torch
    from torch import nn

    class Small(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
            self.depth = nn.Sequential(
                nn.Conv2d(16, 16, 3, 1, 1, groups=16, bias=False), nn.BatchNorm2d(16), nn.ReLU6()
            )
            self.point = nn.Sequential(nn.Conv2d(16, 16, 1, bias=False), nn.BatchNorm2d(16))
            self.head = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())
            self.pool = nn.AdaptiveAvgPool2d(1)
            self.linear = nn.Linear(32, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stem(x)
            x = x + self.point(self.depth(x))
            return self.linear(torch.flatten(self.pool(self.head(x)), 1))

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        module = Small()
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.momentum = 1.0
        module.train()(torch.from_numpy(Samples(16, seed=1).array))
        # Outputs that differ from image to image by as much as they do from class to class.
        features = module.head(_residual(module.eval(), torch.from_numpy(Samples(16, seed=1).array)))
        pooled = features.mean(dim=(2, 3))
        module.linear.weight.div_(pooled.std(dim=0).clamp(min=1e-2))
        module.linear.bias.copy_(-(module.linear.weight @ pooled.mean(dim=0)))
    return module.eval()


def _residual(module: Any, x: Any) -> Any:
    x = module.stem(x)
    return x + module.point(module.depth(x))


def model_spec(macs: int = 1) -> ModelSpec:
    return ModelSpec.model_validate(
        {
            "name": "small",
            "title": "Small",
            "source": {"package": "nowhere", "constructor": "small"},
            "input_shape": SHAPE,
            "classes": CLASSES,
            "macs": macs,
            "parameters": 1,
            "preprocess": {"resize": 32, "crop": 32, "mean": (0, 0, 0), "std": (1, 1, 1)},
        }
    )


@dataclass(frozen=True)
class Exported:
    """One artifact as the product would have it, some samples, and what torch says to them."""

    manifest: Manifest
    path: Path
    samples: npt.NDArray[np.float32]
    """In the artifact's layout."""
    logits: npt.NDArray[np.float32]


def export(
    backend: str,
    scheme: str,
    folder: Path,
    module: Any = None,
    target: str = "x86_64-vnni",
    options: QuantizationOptions = DEFAULTS,
    calibration: Any = None,
) -> Exported:
    """Builds one artifact of ``module`` (the small network by default) in ``folder``; ``folder/work`` is shared."""
    import torch

    module = module or network()
    exporter = cast(Exporter, importlib.import_module(f"edgeq.export.{backend}"))
    recipe = exporter.recipe(scheme, target, options)
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    out = Path(tempfile.mkdtemp(dir=folder, prefix=f"{scheme}.{target}."))
    network_layers = layers(module, model_spec(layer_macs(module)))
    source = FloatSource(model_spec(), module, work, calibration or Samples(16), network_layers)
    built = exporter.build(source, scheme, recipe, out, scheme)
    samples = Samples(8, seed=2).array
    with torch.no_grad():
        logits = module(torch.from_numpy(samples)).numpy()
    manifest = Manifest(
        model="small",
        backend=backend,
        scheme=scheme,
        target=recipe.target,
        status="ok",
        files=[FileEntry(name=f.name, sha256=sha256_file(f), bytes=f.stat().st_size) for f in built.files],
        key="",
        weights=WeightsInfo(kind="random", name="random, seed 0", sha256="", seed=0),
        calibration=CalibrationInfo(kind="synthetic", count=16, seed=0, sha256=""),
        details={**recipe.settings, **built.details},
        input=built.input,
        classes=CLASSES,
        reference=Reference(file="", sha256=""),
        layers=network_layers,
    )
    order = (0, 1, 2, 3) if built.input.layout == "NCHW" else (0, 2, 3, 1)
    return Exported(manifest, built.files[0], np.ascontiguousarray(samples.transpose(order)), logits)


def layer_macs(module: Any) -> int:
    """Multiply-adds of one sample, counted by hooks: the specification against which ``layers`` checks itself."""
    import torch
    from torch import nn

    total = 0

    def count(part: Any, _inputs: Any, output: Any) -> None:
        nonlocal total
        total += output.numel() * part.weight[0].numel()

    hooks = [m.register_forward_hook(count) for m in module.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    with torch.no_grad():
        module(torch.zeros(1, *SHAPE))
    for hook in hooks:
        hook.remove()
    return total


def sqnr_db(found: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> float:
    """10 log10(signal power / error power)."""
    return float(10 * np.log10(np.square(expected).sum() / np.square(found - expected).sum()))
