"""What LoadGen needs of the thing under test and of its samples, and nothing more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Done = Callable[[int, Array], None]
Call = Callable[[], None]
Layout = Literal["NCHW", "NHWC"]


class System(Protocol):
    """A loaded model; ``edgeq.backends.session.Session`` is one."""

    @property
    def classes(self) -> int:
        """Number of logits a sample."""
        ...

    def infer(self, batch: Array) -> Array:
        """Float32 ``[n, *shape]`` → float32 logits ``[n, classes]``."""
        ...

    def bind(self, batch: Array, logits: Array) -> Call:
        """A call that infers ``batch``, float32 ``[1, *shape]``, into ``logits``, float32 ``[1, classes]``.

        The call holds both arrays. It raises where the model's output is of another shape. Made before it is timed: whatever
        a framework can prepare for a sample, it does here.
        """
        ...

    def infer_many(self, samples: Sequence[Array], done: Done) -> None:
        """Infers all samples (each ``[*shape]``); calls ``done(position of the first, logits [k, classes])`` a block.

        ``done`` may be called from any thread, and may raise: the system then stops and raises.
        """
        ...


class Library(Protocol):
    """Preprocessed samples, by index."""

    @property
    def count(self) -> int:
        """How many samples there are; indices are 0 to ``count - 1``."""
        ...

    def load_into(self, out: Array, indices: Sequence[int], layout: Layout) -> None:
        """Fills ``out``, float32 ``[len(indices), *shape]``, with the samples at ``indices`` in ``layout``."""
        ...
