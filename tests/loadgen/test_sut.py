from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgeq.loadgen import sut
from edgeq.loadgen.protocols import Array
from edgeq.loadgen.resident import Failure, Resident
from edgeq.loadgen.settings import loadgen_module
from edgeq.loadgen.times import Clock
from edgeq.spec.errors import EdgeqError
from tests.loadgen.worker import SHAPE, Classifier, Numbered


def resident(failure: Failure) -> Resident:
    samples = Resident(Numbered(9), "NCHW", SHAPE, failure)
    samples.load([3, 4, 3, 5])
    return samples


def fake() -> tuple[Any, list[int]]:
    """A LoadGen that only keeps the ids answered."""
    answered: list[int] = []
    lg = SimpleNamespace(
        QuerySampleResponse=lambda i, address, size: i, QuerySamplesComplete=lambda answers: answered.extend(answers)
    )
    return lg, answered


@pytest.mark.parametrize("accuracy", [False, True])
@pytest.mark.parametrize("kind", [sut.single_stream, sut.many])
def test_every_id_is_answered_once_before_and_after_a_failure(kind: Any, accuracy: bool) -> None:
    class Failing(Classifier):
        def infer(self, batch: Array) -> Array:
            if self.calls == 2:
                raise RuntimeError("third")
            return super().infer(batch)

    lg, answered = fake()
    failure = Failure()
    issue = kind(lg, Failing(), resident(failure), failure, Clock(), accuracy)
    for number in range(5):
        issue([number], [3])
    assert answered == list(range(5))
    assert isinstance(failure.error, RuntimeError)


@pytest.mark.parametrize("first", [-1, 3])
def test_answer_to_no_sample(first: int) -> None:
    class Astray(Classifier):
        def infer_many(self, samples: Any, done: Any) -> None:
            done(first, self.infer(samples[0][None]))

    lg, answered = fake()
    failure = Failure()
    sut.many(lg, Astray(), resident(failure), failure, Clock(), False)([7, 8, 9], [3, 4, 5])
    assert sorted(answered) == [7, 8, 9]
    assert isinstance(failure.error, EdgeqError)


def test_failure_that_the_system_swallows_is_still_raised() -> None:
    class Swallowing(Classifier):
        def infer_many(self, samples: Any, done: Any) -> None:
            try:
                done(0, np.zeros((1, 3), np.float32))
            except EdgeqError:
                super().infer_many(samples[:0], done)

    lg, answered = fake()
    failure = Failure()
    sut.many(lg, Swallowing(), resident(failure), failure, Clock(), False)([7, 8], [3, 4])
    assert sorted(answered) == [7, 8]
    assert isinstance(failure.error, EdgeqError)
    assert "shape" in failure.error.why


def test_resident_samples_are_one_block_and_are_freed() -> None:
    samples = resident(Failure())
    assert sorted(samples.samples) == [3, 4, 5]
    assert samples.samples[5].base is samples.batches[3].base
    assert (samples.batches[4] == 4).all()
    assert samples.batches[4].shape == (1, *SHAPE)
    samples.unload([3, 4, 5])
    assert samples.samples == samples.batches == samples.calls == {}


@pytest.mark.parametrize("loaded_first", [True, False])
def test_each_resident_sample_has_its_call_once_it_is_bound(loaded_first: bool) -> None:
    samples, system, logits = (
        Resident(Numbered(9), "NCHW", SHAPE, Failure()),
        Classifier(),
        np.zeros((1, 2500), np.float32),
    )
    for step in sorted(("bind", "load"), reverse=loaded_first):
        samples.load([3, 5]) if step == "load" else samples.bind(system, logits)
    for index in (3, 5):
        samples.calls[index]()
        assert logits.argmax() == index


def test_a_call_that_writes_nothing_does_not_answer_with_the_last_samples_classes() -> None:
    class Silent(Classifier):
        def bind(self, batch: Array, logits: Array) -> Any:
            return super().bind(batch, logits) if batch[0, 0, 0, 0] == 3 else lambda: None

    lg, answered = fake()
    failure = Failure()
    issue = sut.single_stream(lg, Silent(), resident(failure), failure, Clock(), accuracy=True)
    issue([1], [3])
    assert failure.error is None
    issue([2], [4])
    assert answered == [1, 2]
    assert isinstance(failure.error, EdgeqError)
    assert failure.error.code == "bad-output"


def test_answer_cost_is_measured() -> None:
    assert 0 < sut.answer_cost(loadgen_module()) < math.inf
