from __future__ import annotations

import numpy as np
import pytest

from edgeq.data.synthetic import image


def test_images_differ_in_colour_and_use_the_range() -> None:
    images = np.stack([image(64, 64, 0, index) for index in range(16)]).astype(np.float32)
    means = images.mean(axis=(1, 2))
    assert means.std(axis=0).min() > 20
    assert images.std(axis=(1, 2)).mean() > 25
    assert images.min() == 0
    assert images.max() == 255


def test_neighbouring_pixels_are_alike_as_in_photographs() -> None:
    grey = image(224, 224, 0, 0).mean(axis=2)
    assert np.corrcoef(grey[:, :-1].ravel(), grey[:, 1:].ravel())[0, 1] > 0.9


@pytest.mark.parametrize(("height", "width"), [(1, 1), (7, 3), (96, 160)])
def test_any_size_will_do(height: int, width: int) -> None:
    assert image(height, width, 3, 4).shape == (height, width, 3)
