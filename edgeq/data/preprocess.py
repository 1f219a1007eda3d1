"""Image file → pixels → float32 sample, equal to torchvision's ``ImageClassification`` preset on a Pillow image."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edgeq.data.images import ImageSet
from edgeq.data.layout import Layout
from edgeq.spec.errors import RequestError
from edgeq.spec.model import ModelSpec, Preprocess

if TYPE_CHECKING:
    import PIL.Image

Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

#: Part of the key of every cache and hash of preprocessed pixels: raise it when the pixels of any image change.
VERSION = 1


def input_size(spec: ModelSpec) -> tuple[int, int]:
    """Height and width of a sample.

    Raises:
        RequestError: ``input_shape`` is not three channels of ``crop`` by ``crop`` pixels (code ``bad-value``).
    """
    channels, height, width = spec.input_shape
    crop = spec.preprocess.crop
    if (channels, height, width) != (3, crop, crop):
        raise RequestError(
            f"{spec.name}: input_shape {list(spec.input_shape)} and crop {crop} do not agree",
            "an image becomes three channels of crop by crop pixels",
            f"set input_shape = [3, {crop}, {crop}]",
            code="bad-value",
        )
    return height, width


def rule(images: ImageSet, spec: ModelSpec) -> str:
    """How this set becomes samples: as it is, where every image has the input's size; else resized and cropped.

    One rule holds for the whole set: a lone image that happens to have the input's size is treated like the others.
    """
    height, width = input_size(spec)
    if all(entry.size == (width, height) for entry in images.entries):
        return f"as is (already {width}x{height})"
    pre = spec.preprocess
    return f"resize {pre.resize}, crop {pre.crop}, {pre.interpolation}"


def is_as_is(preprocessing: str) -> bool:
    """Whether ``rule`` said that the images are not resized."""
    return preprocessing.startswith("as is")


def decode(data: bytes) -> PIL.Image.Image:
    """Decodes a whole image file as RGB. EXIF orientation is ignored, as torchvision's loader does.

    Raises:
        Exception: whatever Pillow raises on bytes that it can't decode to the end.
    """
    import PIL.Image

    with PIL.Image.open(io.BytesIO(data)) as image:
        return image.convert("RGB")


def to_pixels(image: PIL.Image.Image, pre: Preprocess, *, as_is: bool = False) -> Pixels:
    """RGB image → uint8 ``[crop, crop, 3]``: shorter side to ``pre.resize`` with antialias, then the centre.

    Sizes and rounding are those of ``torchvision.transforms.functional.resize`` and ``center_crop``. An image smaller
    than the crop after the resize (``resize < crop``) is padded with zeros, as there.
    """
    if as_is:
        return np.asarray(image, dtype=np.uint8)
    return _centre(np.asarray(_resize(image, pre), dtype=np.uint8), pre.crop)


def _resize(image: PIL.Image.Image, pre: Preprocess) -> PIL.Image.Image:
    from PIL.Image import Resampling

    width, height = image.size
    short, long = min(width, height), max(width, height)
    new_long = int(pre.resize * long / short)
    size = (pre.resize, new_long) if width <= height else (new_long, pre.resize)
    if size == image.size:
        return image
    methods = {"bilinear": Resampling.BILINEAR, "bicubic": Resampling.BICUBIC, "nearest": Resampling.NEAREST}
    return image.resize(size, methods[pre.interpolation])


def _centre(pixels: Pixels, crop: int) -> Pixels:
    height, width = pixels.shape[:2]
    if height < crop or width < crop:
        down, across = max(crop - height, 0), max(crop - width, 0)
        margins = ((down // 2, (down + 1) // 2), (across // 2, (across + 1) // 2), (0, 0))
        pixels = np.pad(pixels, margins)
        height, width = pixels.shape[:2]
    # Python's round (half to even), as torchvision: 31 rows too many start at row 16, 33 at row 16 too.
    top, left = round((height - crop) / 2.0), round((width - crop) / 2.0)
    return pixels[top : top + crop, left : left + crop]


def normalize(pixels: Pixels, pre: Preprocess, layout: Layout, out: Floats | None = None) -> Floats:
    """``(x/255 - mean) / std`` a channel, in float32 and in this order, as torchvision computes it.

    Args:
        pixels: uint8 ``[n, h, w, 3]``.
        layout: Of the result: ``NCHW`` gives ``[n, 3, h, w]``, ``NHWC`` gives ``[n, h, w, 3]``.
        out: Contiguous float32 of the result's shape to write into; made where None.

    Returns:
        ``out``.
    """
    mean, std = np.array(pre.mean, dtype=np.float32), np.array(pre.std, dtype=np.float32)
    if layout == "NCHW":
        pixels = pixels.transpose(0, 3, 1, 2)
        mean, std = mean.reshape(3, 1, 1), std.reshape(3, 1, 1)
    if out is None:
        out = np.empty(pixels.shape, dtype=np.float32)
    if out.shape != pixels.shape:
        raise ValueError(f"out has shape {out.shape}, the samples {pixels.shape}")
    np.divide(pixels, np.float32(255), out=out, dtype=np.float32)
    out -= mean
    out /= std
    return out
