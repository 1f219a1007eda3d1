"""Seeded colour images with the look of natural ones, for runs without a dataset.

Smooth noise whose amplitude falls with frequency, as in photographs (D. J. Field 1987, "Relations between the
statistics of natural images…"), under a few opaque shapes that give it edges (dead leaves: Lee, Mumford, Huang 2001).
White noise would do neither: convolutions average it away, and quantization ranges measured on it mean nothing.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from edgeq.data.preprocess import Pixels

#: Part of every hash of synthetic samples: raise it when the pixels of any change.
VERSION = 1

_Plane = npt.NDArray[np.float32]


def image(height: int, width: int, seed: int, index: int) -> Pixels:
    """Image ``index`` of the sequence ``seed``: uint8 ``[height, width, 3]``, made without making the others.

    Only elementwise float arithmetic, so that the result does not hang on a BLAS or on the order of a sum.
    """
    rng = np.random.default_rng([VERSION, seed, index])
    base = rng.uniform(40, 215, size=3).astype(np.float32)
    contrast = np.float32(rng.uniform(25, 90))
    colour = np.float32(rng.uniform(0.1, 0.6))
    texture = _texture(rng, height, width, colour)
    picture = base + contrast * texture
    for _ in range(int(rng.integers(2, 9))):
        _paint(picture, rng, texture, contrast)
    return np.clip(np.rint(picture), 0, 255).astype(np.uint8)


def _texture(rng: np.random.Generator, height: int, width: int, colour: np.float32) -> _Plane:
    """Noise of about [-1, 1], ``[height, width, 3]``: octaves of grey, with some colour, each weaker than the last."""
    decay = rng.uniform(0.45, 0.85)
    picture: _Plane = np.zeros((height, width, 3), dtype=np.float32)
    total = np.float32(0)
    for octave in range(7):
        cells, weight = 2 ** (octave + 1), np.float32(decay**octave)
        grey = rng.uniform(-1, 1, size=(cells + 1, cells + 1, 1))
        tint = rng.uniform(-1, 1, size=(cells + 1, cells + 1, 3))
        grid = ((1 - colour) * grey + colour * tint).astype(np.float32)
        picture += weight * _enlarge(grid, height, width)
        total += weight
    # A sum of octaves rarely comes near its bound: spread it over the range; what goes beyond is clipped later.
    picture *= np.float32(2.5) / total
    return picture


def _enlarge(grid: _Plane, height: int, width: int) -> _Plane:
    """Bilinear interpolation of ``[cells + 1, cells + 1, 3]`` values at the corners of cells."""
    cells = grid.shape[0] - 1
    top, down = _steps(height, cells)
    left, right = _steps(width, cells)
    rows = grid[top] * (1 - down)[:, None, None] + grid[top + 1] * down[:, None, None]
    enlarged = rows[:, left] * (1 - right)[None, :, None] + rows[:, left + 1] * right[None, :, None]
    return enlarged.astype(np.float32, copy=False)


def _steps(pixels: int, cells: int) -> tuple[npt.NDArray[np.intp], _Plane]:
    """The cell of each pixel's centre, and how far into the cell it lies."""
    at = (np.arange(pixels) + 0.5) * cells / pixels
    cell = np.minimum(at.astype(np.intp), cells - 1)
    return cell, (at - cell).astype(np.float32)


def _paint(picture: _Plane, rng: np.random.Generator, texture: _Plane, contrast: np.float32) -> None:
    """Covers an ellipse or a turned rectangle of ``picture`` with another colour and a mirrored texture, in place."""
    height, width = picture.shape[:2]
    centre_y, centre_x = rng.uniform(0, height), rng.uniform(0, width)
    radius_y, radius_x = (rng.uniform(0.06, 0.35, size=2) * (height, width)).tolist()
    across, along = rng.uniform(-1, 1, size=2).tolist()
    length = math.hypot(across, along) + 1e-6
    cosine, sine = across / length, along / length
    y = (np.arange(height) - centre_y).astype(np.float32)[:, None]
    x = (np.arange(width) - centre_x).astype(np.float32)[None, :]
    u, v = (x * cosine + y * sine) / radius_x, (y * cosine - x * sine) / radius_y
    inside = u * u + v * v <= 1 if rng.uniform() < 0.5 else (np.abs(u) <= 1) & (np.abs(v) <= 1)
    fill = rng.uniform(10, 245, size=3).astype(np.float32)
    strength = contrast * np.float32(rng.uniform(0.1, 0.8))
    picture[inside] = fill + strength * texture[::-1, ::-1][inside]
