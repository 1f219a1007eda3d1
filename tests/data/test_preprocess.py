from __future__ import annotations

import io
from typing import Any

import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeq.data.images import Image, ImageSet
from edgeq.data.preprocess import decode, normalize, rule, to_pixels
from edgeq.spec.errors import RequestError
from edgeq.spec.model import ModelSpec, Preprocess
from tests.data.pictures import CROP, noise, picture, small_spec

IMAGENET: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def _preset(pre: Preprocess) -> Any:
    transforms = pytest.importorskip("torchvision.transforms")
    presets = pytest.importorskip("torchvision.transforms._presets")
    return presets.ImageClassification(
        crop_size=pre.crop,
        resize_size=pre.resize,
        mean=pre.mean,
        std=pre.std,
        interpolation=transforms.InterpolationMode(pre.interpolation),
    )


@settings(max_examples=40, deadline=None)
@given(
    width=st.integers(1, 150),
    height=st.integers(1, 150),
    resize=st.integers(8, 64),
    crop=st.integers(8, 64),
    interpolation=st.sampled_from(["bilinear", "bicubic", "nearest"]),
)
def test_the_same_float_samples_as_torchvision_s_preset(
    width: int, height: int, resize: int, crop: int, interpolation: str
) -> None:
    pre = Preprocess.model_validate({"resize": resize, "crop": crop, "interpolation": interpolation, **IMAGENET})
    image = picture(width, height)
    pixels = to_pixels(image, pre)
    assert pixels.shape == (crop, crop, 3)
    theirs = _preset(pre)(image).numpy()
    np.testing.assert_array_equal(normalize(pixels[None], pre, "NCHW")[0], theirs)


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (256, 256), (224, 224), (257, 1000), (3000, 256)])
def test_the_same_pixels_as_torchvision_at_imagenet_s_size(size: tuple[int, int]) -> None:
    functional = pytest.importorskip("torchvision.transforms.functional")
    pre = Preprocess(resize=256, crop=224, **IMAGENET)
    image = picture(*size)
    theirs = functional.center_crop(functional.resize(image, 256, antialias=True), 224)
    np.testing.assert_array_equal(to_pixels(image, pre), np.asarray(theirs))


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "1", "LA"])
def test_every_colour_mode_becomes_rgb(mode: str) -> None:
    stream = io.BytesIO()
    picture(40, 40).convert(mode).save(stream, format="TIFF")
    assert decode(stream.getvalue()).mode == "RGB"


def test_exif_orientation_is_ignored_as_torchvision_does() -> None:
    stream = io.BytesIO()
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    picture(60, 40).save(stream, format="JPEG", exif=exif)
    assert decode(stream.getvalue()).size == (60, 40)


def test_layouts_hold_the_same_values_and_out_is_filled() -> None:
    pre = small_spec().preprocess
    pixels = noise(2, 5, 7, 3)
    nchw, nhwc = normalize(pixels, pre, "NCHW"), normalize(pixels, pre, "NHWC")
    assert nchw.shape == (2, 3, 5, 7)
    assert nchw.flags.c_contiguous
    assert nchw.dtype == nhwc.dtype == np.float32
    np.testing.assert_array_equal(nchw.transpose(0, 2, 3, 1), nhwc)
    out = np.empty_like(nchw)
    assert normalize(pixels, pre, "NCHW", out) is out
    np.testing.assert_array_equal(out, nchw)
    with pytest.raises(ValueError, match="shape"):
        normalize(pixels, pre, "NHWC", out)


def _images(*sizes: tuple[int, int]) -> ImageSet:
    from pathlib import Path

    entries = tuple(Image(f"{i}.jpg", Path(f"{i}.jpg"), None, str(i), size) for i, size in enumerate(sizes))
    return ImageSet(Path(), entries)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([(CROP, CROP)] * 3, "as is (already 32x32)"),
        ([(CROP, CROP), (CROP, CROP + 1)], "resize 40, crop 32, bilinear"),
        ([(640, 480)], "resize 40, crop 32, bilinear"),
    ],
)
def test_one_rule_for_the_whole_set(sizes: list[tuple[int, int]], expected: str) -> None:
    assert rule(_images(*sizes), small_spec()) == expected


@pytest.mark.parametrize("shape", [(1, CROP, CROP), (3, CROP, CROP + 1)])
def test_an_input_that_is_not_the_crop_is_refused(shape: tuple[int, int, int]) -> None:
    spec: ModelSpec = small_spec(input_shape=shape)
    with pytest.raises(RequestError, match="do not agree"):
        rule(_images((CROP, CROP)), spec)
