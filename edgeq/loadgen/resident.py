"""LoadGen's sample library: what is resident while queries run, and the first failure of any callback."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FrameType

import numpy as np

from edgeq.loadgen.protocols import Array, Call, Layout, Library, System


class Failure:
    """The first exception of a run. None may pass into LoadGen, where it would be a segmentation fault."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def remember(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error

    @contextlib.contextmanager
    def interrupts(self) -> Iterator[None]:
        """While inside, Ctrl-C is remembered and stops the run between two answers, never amid one."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def remember(signum: int, frame: FrameType | None) -> None:
            self.remember(KeyboardInterrupt())

        before = signal.signal(signal.SIGINT, remember)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


class Resident:
    """The samples LoadGen asked to have in memory: one contiguous float32 array ``[n, *shape]`` and views of it.

    Attributes:
        batches: Sample index → view ``[1, *shape]``.
        calls: Sample index → call that infers it (``System.bind``); empty until ``bind``.
        samples: Sample index → view ``[*shape]``.
    """

    def __init__(self, library: Library, layout: Layout, shape: Sequence[int], failure: Failure) -> None:
        self._library, self._layout, self._shape = library, layout, tuple(shape)
        self._failure = failure
        self.batches: dict[int, Array] = {}
        self.samples: dict[int, Array] = {}
        self.calls: dict[int, Call] = {}
        self._bind: Callable[[Array], Call] | None = None
        self.cpu_s = self.wall_s = 0.0
        """Spent between loading and unloading, while queries were issued and answered."""
        self._since: tuple[float, float] | None = None

    def bind(self, system: System, logits: Array) -> None:
        """From now on each sample in memory has its call, which writes into ``logits``, ``[1, classes]``."""
        bind = self._bind = partial(system.bind, logits=logits)
        self.calls.update({index: bind(batch) for index, batch in self.batches.items()})

    def load(self, indices: list[int]) -> None:
        """LoadGen's callback. Multi-stream pads its list with repeats: each index is loaded once."""
        try:
            self.unload([])
            unique = list(dict.fromkeys(indices))
            block: Array = np.empty((len(unique), *self._shape), np.float32)
            self._library.load_into(block, unique, self._layout)
            for row, index in enumerate(unique):
                self.batches[index] = block[row : row + 1]
                self.samples[index] = block[row]
                if self._bind is not None:
                    self.calls[index] = self._bind(self.batches[index])
            self._since = time.process_time(), time.perf_counter()
        except BaseException as error:
            self._failure.remember(error)

    def unload(self, indices: list[int]) -> None:
        """LoadGen's callback; it always unloads all that it loaded."""
        if self._since is not None:
            self.cpu_s += time.process_time() - self._since[0]
            self.wall_s += time.perf_counter() - self._since[1]
            self._since = None
        self.batches.clear()
        self.samples.clear()
        self.calls.clear()
