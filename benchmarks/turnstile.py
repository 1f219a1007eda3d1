"""Two measurements that are processes of their own, on one machine, one at a time: while one runs, the other stands still.

A shared machine is fast in one second and slow in the next. Processes that are measured one after the other are compared by
that as much as by anything else; in slices of a fifth of a second, both see the same machine. An inference in whose middle
its process is stopped (SIGSTOP) seems a long one: medians don't notice one in a hundred, sums and rates would.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psutil

from benchmarks.bars import Measured

SLICE_S = 0.2


class Turnstile:
    """While open, the child processes of this one run in turn, ``slice_s`` each; theirs, such as a sampler, run on.

    A child that is started meanwhile joins; one that has ended leaves.
    """

    def __init__(self, slice_s: float = SLICE_S) -> None:
        self._slice_s = slice_s

    def __enter__(self) -> Turnstile:
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._turn, name="turnstile")
        self._stopped: set[psutil.Process] = set()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def _turn(self) -> None:
        this, number = psutil.Process(), 0
        while not self._closing.wait(self._slice_s):
            children = sorted(this.children(), key=lambda child: child.create_time())
            number += 1
            for index, child in enumerate(children):
                self._let(child, run=index == number % len(children))
        for child in list(self._stopped):
            self._let(child, run=True)

    def _let(self, child: psutil.Process, *, run: bool) -> None:
        with suppress(psutil.NoSuchProcess):
            if run and child in self._stopped:
                child.resume()
                self._stopped.discard(child)
            elif not run and child not in self._stopped:
                child.suspend()
                self._stopped.add(child)


def side_by_side(ours: Callable[[], float], theirs: Callable[[], float]) -> Measured:
    """Both at once, each waiting for a process of its own, which the turnstile lets run in turn.

    Raises:
        EdgeqError: one of them did; the other has ended by then.
    """
    with Turnstile(), ThreadPoolExecutor(2) as pool:
        first, other = pool.submit(ours), pool.submit(theirs)
        return Measured(first.result(), other.result())
