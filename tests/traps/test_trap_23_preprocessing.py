"""mlcommons/inference#201: 2.6 points of accuracy lost to a different resize.

The preprocessing stands in model.toml, and the hash of one preprocessed image is kept here: a change of Pillow, of the
order of steps or of a rounding shows as another hash.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from edgeq.data.preprocess import normalize, to_pixels
from edgeq.spec.model import load_model

# Taken from torchvision's ImageClassification preset (0.29.1, Pillow 13.0.0), not from edgeq.
GOLDEN_PIXELS = "88a99e8e95770d7f4db814d6528bbe17d916626ee20aa32d5f1b9c0e8509c435"
GOLDEN_SAMPLE = "651ca3e210eda63671cc3e81beaebd1e6f817d38686db699b32c0941b8e12469"


def _image() -> PIL.Image.Image:
    """500x375 pixels by integer arithmetic alone, the same on every machine: edges, ramps and fine detail."""
    y, x = np.mgrid[0:375, 0:500]
    channels = [(x * 7 + y * 3) % 256, (x * x // 97 + y * 11) % 256, ((x // 13 + y // 17) % 2) * 255]
    return PIL.Image.fromarray(np.stack(channels, axis=2).astype(np.uint8))


@pytest.mark.parametrize("model", ["mobilenet_v2", "vgg19", "densenet121"])
def test_the_hash_of_one_preprocessed_image(repo: Path, model: str) -> None:
    pre = load_model(repo / "models", model).preprocess
    pixels = to_pixels(_image(), pre)
    assert hashlib.sha256(pixels.tobytes()).hexdigest() == GOLDEN_PIXELS
    sample = normalize(pixels[None], pre, "NHWC")
    assert hashlib.sha256(sample.tobytes()).hexdigest() == GOLDEN_SAMPLE


def test_resizing_with_other_filters_would_show(repo: Path) -> None:
    pre = load_model(repo / "models", "mobilenet_v2").preprocess
    right = to_pixels(_image(), pre).astype(int)
    for other in ("bicubic", "nearest"):
        wrong = to_pixels(_image(), pre.model_copy(update={"interpolation": other})).astype(int)
        assert np.abs(wrong - right).mean() > 1
