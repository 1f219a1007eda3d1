from __future__ import annotations

import ctypes
import struct
import threading
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

from benchmarks.reference_sut import Array, Predict, ReferenceSut

CLASSES = 5


@dataclass(frozen=True)
class Sample:
    id: int
    index: int


class LoadGen:
    """Takes answers as LoadGen does: reads their memory while ``complete`` runs."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, float]] = []
        self.calls: list[int] = []

    def response(self, identity: int, address: int, size: int) -> tuple[int, int, int]:
        return identity, address, size

    def complete(self, responses: list[tuple[int, int, int]]) -> None:
        self.calls.append(len(responses))
        for identity, address, size in responses:
            (value,) = struct.unpack("f", ctypes.string_at(address, size))
            self.answers.append((identity, value))


def best_is_the_sample(batch: Array) -> Array:
    """Logits whose best class is the number that fills the sample."""
    return np.eye(CLASSES, dtype=np.float32)[batch[:, 0].astype(int)]


def answered(predict: Predict, count: int, batch: int, threads: int = 2) -> tuple[LoadGen, ReferenceSut]:
    lg = LoadGen()
    samples = {index: np.full(3, index, np.float32) for index in range(CLASSES)}
    sut = ReferenceSut(predict, samples, threads, batch, lg.complete, lg.response)
    sut.issue([Sample(1000 + position, position % CLASSES) for position in range(count)])
    sut.wait()
    sut.close()
    return lg, sut


@pytest.mark.parametrize(("count", "batch", "items"), [(12, 1, {1: 12}), (12, 5, {5: 2, 2: 1}), (3, 8, {3: 1})])
def test_every_sample_is_answered_once_with_its_best_class(count: int, batch: int, items: dict[int, int]) -> None:
    lg, sut = answered(best_is_the_sample, count, batch)
    assert sut.error is None
    assert sorted(lg.answers) == [(1000 + position, float(position % CLASSES)) for position in range(count)]
    assert Counter(lg.calls) == items


def test_samples_of_an_item_are_gathered_into_one_array() -> None:
    shapes: list[tuple[int, ...]] = []

    def predict(batch: Array) -> Array:
        shapes.append(batch.shape)
        assert batch.dtype == np.float32
        return best_is_the_sample(batch)

    _, sut = answered(predict, 6, 4, threads=1)
    assert sut.error is None
    assert shapes == [(4, 3), (2, 3)]


def test_its_threads_call_the_session_at_once() -> None:
    together = threading.Barrier(3, timeout=60)  # passes only where three callers meet

    def predict(batch: Array) -> Array:
        together.wait()
        return best_is_the_sample(batch)

    lg, sut = answered(predict, 6, 1, threads=3)
    assert sut.error is None
    assert len(lg.answers) == 6


def test_what_the_framework_raises_is_kept_and_every_sample_is_answered_all_the_same() -> None:
    def predict(batch: Array) -> Array:
        if batch[0, 0] == 1:
            raise RuntimeError("no kernel")
        return best_is_the_sample(batch)

    lg, sut = answered(predict, 10, 1)
    assert str(sut.error) == "no kernel"
    assert sorted(identity for identity, _ in lg.answers) == list(range(1000, 1010))
