"""No model: the same logits for every sample at once. For tests, and for what LoadGen and edgeq cost by themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeq.artifact import InputInfo
from edgeq.backends.session import Array, Call, Done, Effective, SessionOptions, bound

#: Samples that ``infer_many`` hands over at once: 4 MB of logits at 1000 classes.
_BLOCK = 1024


class NullSession:
    """A ``Session`` without a model."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        self._input = InputInfo(shape=shape, layout="NCHW")
        self._classes = classes
        row = np.linspace(-1, 1, classes, dtype=np.float32)
        self._block: Array = np.ascontiguousarray(np.broadcast_to(row, (_BLOCK, classes)))
        self._block.setflags(write=False)

    @property
    def input(self) -> InputInfo:
        return self._input

    @property
    def classes(self) -> int:
        return self._classes

    def infer(self, batch: Array) -> Array:
        """The logits -1 to 1, rising with the class, for each sample of ``batch``: float32 ``[n, classes]``."""
        n = len(batch)
        if n <= _BLOCK:
            return self._block[:n].copy()
        return np.repeat(self._block[:1], n, axis=0)

    def bind(self, batch: Array, logits: Array) -> Call:
        """``Session.bind``."""
        return bound(self.infer, batch, logits)

    def infer_many(self, samples: Sequence[Array], done: Done) -> None:
        """Calls ``done`` for up to 1024 samples at a time, in this thread."""
        for first in range(0, len(samples), _BLOCK):
            done(first, self._block[: min(_BLOCK, len(samples) - first)])

    def effective(self) -> Effective:
        """One thread, whatever was asked for, and no multiply-adds."""
        return Effective(threads=1, streams=1, batch=1, engine="none", macs={})

    def close(self) -> None:
        """Nothing to free."""


def open_null(options: SessionOptions, shape: tuple[int, int, int], classes: int) -> NullSession:
    """A session that runs nothing: ``options`` have nothing to act on, as its ``effective()`` says.

    Args:
        options: Ignored.
        shape: Channels, height, width of one sample (NCHW).
        classes: Number of logits a sample.
    """
    return NullSession(shape, classes)
