"""Samples that lie apart → batches, on several streams at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgeq.backends.pool import StreamPool
from edgeq.backends.session import Array, Done, Session

#: ``run(stream, batch)`` gives the logits ``[k, classes]`` of ``batch``, ``[k, *shape]`` and contiguous.
Run = Callable[[int, Array], Array]


class Batches:
    """Hands ``batch`` samples a call to each of ``streams`` streams.

    A batch of one is the sample itself, as a view. A larger one is gathered in a buffer of the stream's, made once: samples
    of a query lie anywhere in memory, and the copy (in the stream's own thread, without Python's lock) is part of what a
    batch costs.
    """

    def __init__(self, streams: int, batch: int, shape: tuple[int, ...], *, fixed: bool = False) -> None:
        """``fixed``: the model takes exactly ``batch`` samples; the last batch of a query is filled up with its last sample,
        whose further logits are dropped."""
        self._pool = StreamPool(streams)
        self.batch, self._fixed = batch, fixed
        self._buffers: list[Array] = [np.empty((batch, *shape), np.float32) for _ in range(streams if batch > 1 else 0)]

    def run(self, samples: Sequence[Array], infer: Run, done: Done) -> None:
        """``Session.infer_many`` by way of ``infer``."""
        size = self.batch
        if size == 1:
            self._pool.run(len(samples), lambda stream, position: infer(stream, samples[position][np.newaxis]), done)
            return

        def block(stream: int, position: int) -> Array:
            first = position * size
            count = min(size, len(samples) - first)
            buffer = self._buffers[stream]
            for row in range(size if self._fixed else count):
                sample = samples[first + min(row, count - 1)]
                if sample.shape != buffer.shape[1:]:  # a smaller one would be broadcast
                    raise ValueError(f"a sample has shape {sample.shape}, not {buffer.shape[1:]}")
                np.copyto(buffer[row], sample)
            if self._fixed:
                return infer(stream, buffer)[:count]
            return infer(stream, buffer[:count])

        self._pool.run(-(-len(samples) // size), block, lambda position, logits: done(position * size, logits))

    def close(self) -> None:
        """Ends the streams' threads."""
        self._pool.close()


def one_by_one(session: Session, batch: Array) -> Array:
    """Logits of all of ``batch``, each sample's by the call that is bound to it: float32 ``[n, classes]``."""
    logits: Array = np.full((len(batch), session.classes), np.nan, np.float32)
    for index in range(len(batch)):
        session.bind(batch[index : index + 1], logits[index : index + 1])()
    return logits


def collect(session: Session, batch: Sequence[Array] | Array) -> Array:
    """Logits of all of ``batch`` by way of ``infer_many``: float32 ``[n, classes]``, NaN where a sample was not answered."""
    logits: Array = np.full((len(batch), session.classes), np.nan, np.float32)

    def keep(position: int, block: Array) -> None:
        logits[position : position + len(block)] = block

    session.infer_many(list(batch), keep)
    return logits
