"""Small models and folders of images to test on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image

from edgeq.data import synthetic
from edgeq.spec.model import ModelSpec, Preprocess, Source

CROP = 32


def small_spec(**changes: Any) -> ModelSpec:
    """A model of ten classes that takes 32 by 32 pixels."""
    values: dict[str, Any] = {
        "name": "small",
        "title": "Small",
        "source": Source(package="tests.export.tiny", constructor="tiny"),
        "input_shape": (3, CROP, CROP),
        "classes": 10,
        "macs": 1,
        "parameters": 1,
        "preprocess": Preprocess(resize=40, crop=CROP, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    }
    return ModelSpec.model_validate({**values, **changes})


def picture(width: int, height: int, index: int = 0) -> PIL.Image.Image:
    """A seeded colour image of any size."""
    return PIL.Image.fromarray(synthetic.image(height, width, 7, index))


def write_pictures(folder: Path, count: int, size: tuple[int, int] = (CROP, CROP), ext: str = "jpg") -> list[str]:
    """Writes ``count`` different images and ``val_map.txt`` with labels 0, 1, …, 9, 0, …; returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"image {index:03}.{ext}" for index in range(count)]
    for index, name in enumerate(names):
        picture(*size, index).save(folder / name)
    lines = [f"{name} {index % 10}" for index, name in enumerate(names)]
    (folder / "val_map.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return names


def truncate(path: Path) -> None:
    """Cuts the last eighth off a file: its header stays whole."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 7 // 8])


def noise(*shape: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Seeded uint8 noise."""
    return np.random.default_rng(0).integers(0, 256, size=shape, dtype=np.uint8)
