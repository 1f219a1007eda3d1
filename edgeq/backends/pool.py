"""Several streams of blocking inferences at once: threads that share one counter of positions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from types import TracebackType

from edgeq.backends.session import Array, Done

#: ``work(stream, position)`` gives the logits ``[1, classes]`` of the sample at ``position``. Each stream number is
#: used by one thread at a time, so that per-stream state (an interpreter, a buffer) needs no lock.
Work = Callable[[int, int], Array]


class StreamPool:
    """``streams`` streams whose threads live from one ``run`` to the next, because starting one costs about 100 µs.

    The calling thread is stream 0, so a pool of one stream has no thread and no hand-over at all. Frameworks release
    Python's lock while they infer; only the hand-out of positions is serial.
    """

    def __init__(self, streams: int) -> None:
        """Starts ``streams - 1`` threads. Raises ``ValueError`` where ``streams`` is below 1."""
        if streams < 1:
            raise ValueError(f"streams must be at least 1, not {streams}")
        self.streams = streams
        self._inboxes: list[SimpleQueue[_Job | None]] = [SimpleQueue() for _ in range(streams - 1)]
        self._threads = [
            threading.Thread(target=_serve, args=(inbox, stream), name=f"edgeq-stream-{stream}", daemon=True)
            for stream, inbox in enumerate(self._inboxes, start=1)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, count: int, work: Work, done: Done) -> None:
        """Calls ``done(position, work(stream, position))`` once for each position in ``range(count)``.

        Returns when all are done. The first exception, of ``work`` or ``done``, stops every stream before its next
        sample; it is raised here after all streams have stopped, so nothing touches ``done`` afterwards.
        """
        job = _Job(count, work, done)
        helpers = self._inboxes[: max(0, count - 1)]
        for inbox in helpers:
            inbox.put(job)
        job.take(0)
        for _ in helpers:
            job.wait_one()
        if job.error is not None:
            raise job.error

    def close(self) -> None:
        """Ends the threads. May be called again; ``run`` may not."""
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            thread.join()
        self._inboxes, self._threads = [], []

    def __enter__(self) -> StreamPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def run_streams(count: int, streams: int, work: Work, done: Done) -> None:
    """``StreamPool(streams).run(count, work, done)`` with threads that end with the call."""
    with StreamPool(min(streams, max(count, 1))) as pool:
        pool.run(count, work, done)


class _Job:
    """One ``run``: the positions left, and the first error."""

    __slots__ = ("_done", "_finished", "_lock", "_positions", "_work", "error")

    def __init__(self, count: int, work: Work, done: Done) -> None:
        self._positions: Iterator[int] = iter(range(count))
        self._work, self._done = work, done
        self._lock = threading.Lock()
        self._finished: SimpleQueue[None] = SimpleQueue()
        self.error: BaseException | None = None

    def take(self, stream: int) -> None:
        """Works through positions until none is left or any stream has failed. Never raises."""
        positions, work, done, lock = self._positions, self._work, self._done, self._lock
        try:
            while self.error is None:
                with lock:
                    position = next(positions, None)
                if position is None:
                    return
                done(position, work(stream, position))
        except BaseException as error:
            self._fail(error)

    def serve(self, stream: int) -> None:
        """``take`` in a helper thread."""
        self.take(stream)
        self._finished.put(None)

    def wait_one(self) -> None:
        """Waits until one more helper has stopped, through an interrupt (Ctrl-C) too: it becomes the error."""
        try:
            self._finished.get()
        except BaseException as error:
            self._fail(error)
            self._finished.get()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self.error is None:
                self.error = error


def _serve(inbox: SimpleQueue[_Job | None], stream: int) -> None:
    while (job := inbox.get()) is not None:
        job.serve(stream)
        del job  # A waiting thread must not keep the last job's samples alive.
