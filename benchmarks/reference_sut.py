"""A plain system under test in the style of MLPerf's Python reference for vision: what edgeq's is compared with.

Written for the comparison from a description of how that harness works: LoadGen's callback cuts a query into items and puts
them into a queue; T threads take an item each, gather its samples into a batch, call the framework's one session, take the
best class of every sample, and hand LoadGen a response a sample, each with a buffer of its own.
"""

from __future__ import annotations

import array
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import Queue
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
#: ``[n, *shape]`` → logits ``[n, classes]``; called by all threads.
Predict = Callable[[Array], Array]


class QuerySample(Protocol):
    """LoadGen's."""

    @property
    def id(self) -> int: ...

    @property
    def index(self) -> int: ...


class ReferenceSut:
    """The queue and its threads.

    Attributes:
        error: The first exception of any thread; its samples are answered with class 0, so that LoadGen ends.
    """

    def __init__(
        self,
        predict: Predict,
        samples: Mapping[int, Array],
        threads: int,
        batch: int,
        complete: Callable[[list[Any]], None],
        response: Callable[[int, int, int], Any],
    ) -> None:
        """
        Args:
            predict: The framework's one session.
            samples: Sample index → ``[*shape]``; may be filled later.
            threads: How many call ``predict``.
            batch: Samples an item at most.
            complete: ``QuerySamplesComplete``.
            response: ``QuerySampleResponse``: id, address, bytes.
        """
        self._predict, self._samples, self._batch = predict, samples, batch
        self._complete, self._response = complete, response
        self._tasks: Queue[tuple[list[int], list[int]] | None] = Queue(maxsize=4 * threads)
        self.error: BaseException | None = None
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def issue(self, query: Sequence[QuerySample]) -> None:
        """LoadGen's callback: returns when the last item is in the queue."""
        ids, indices = [sample.id for sample in query], [sample.index for sample in query]
        for first in range(0, len(ids), self._batch):
            self._tasks.put((ids[first : first + self._batch], indices[first : first + self._batch]))

    def wait(self) -> None:
        """Until every item has been answered."""
        self._tasks.join()

    def close(self) -> None:
        """Ends the threads, once the queue is empty."""
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (item := self._tasks.get()) is not None:
            ids, indices = item
            try:
                batch = np.array([self._samples[index] for index in indices])
                classes = np.argmax(self._predict(batch), axis=1)
            except BaseException as error:
                self.error = self.error or error
                classes = np.zeros(len(ids), np.intp)
            self._answer(ids, classes)
            self._tasks.task_done()
        self._tasks.task_done()

    def _answer(self, ids: Sequence[int], classes: npt.NDArray[np.intp]) -> None:
        buffers, responses = [], []
        for identity, best in zip(ids, classes, strict=True):
            buffer = array.array("B", np.array([best], np.float32).tobytes())
            buffers.append(buffer)  # LoadGen reads them in ``complete``
            address, count = buffer.buffer_info()
            responses.append(self._response(identity, address, count))
        self._complete(responses)
