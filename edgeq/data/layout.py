"""Sample layouts: NCHW is torch's and edgeq's own; an artifact may declare NHWC."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

Layout = Literal["NCHW", "NHWC"]


def to_layout(nchw: npt.NDArray[np.float32], layout: Layout) -> npt.NDArray[np.float32]:
    """``[n, C, H, W]`` → contiguous ``[n, C, H, W]`` or ``[n, H, W, C]``."""
    return np.ascontiguousarray(nchw if layout == "NCHW" else nchw.transpose(0, 2, 3, 1))
