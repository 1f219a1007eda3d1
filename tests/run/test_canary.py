from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from edgeq.artifact import Check
from edgeq.backends.null import open_null
from edgeq.backends.session import Array, Call, Done, SessionOptions, bound
from edgeq.logits import LOW_SQNR_DB
from edgeq.run.canary import check_output, logits_of, time_queries
from edgeq.spec.errors import EdgeqError
from tests.manifests import manifest

EXPECTED = np.random.default_rng(0).normal(size=(4, 50)).astype(np.float32)


def _exported(sqnr_db: float | None) -> Check:
    return Check(
        n=4, sqnr_db=sqnr_db, max_rel_error=0, top1_agreement=1, macs={"fp32": 1}, quantized_macs=0, size_ratio=1
    )


def _noisy(scale: float) -> Array:
    return EXPECTED + scale * np.random.default_rng(1).normal(size=EXPECTED.shape).astype(np.float32)


def test_the_same_output_as_at_export_says_nothing() -> None:
    checked, notes = check_output(_noisy(0.1), EXPECTED, manifest(scheme="int8-static", check=_exported(20.0)))
    assert notes == []
    assert checked.sqnr_db == pytest.approx(20, abs=1)


def test_an_int8_output_far_from_exports_is_flagged() -> None:
    _, notes = check_output(_noisy(0.3), EXPECTED, manifest(scheme="int8-static", check=_exported(20.0)))
    assert [note.code for note in notes] == ["output-differs"]


@pytest.mark.parametrize("exported", [5.0, None], ids=["as poor as at export", "export did not tell"])
@pytest.mark.parametrize("scheme", ["fp16", "int8-static", "int8-dynamic"])
def test_an_output_too_far_from_float_is_flagged_wherever_that_comes_from(scheme: str, exported: float | None) -> None:
    check = None if exported is None else _exported(exported)
    checked, notes = check_output(_noisy(0.6), EXPECTED, manifest(scheme=scheme, check=check))
    assert [note.code for note in notes] == ["low-agreement"]
    assert checked.sqnr_db is not None
    assert checked.sqnr_db < LOW_SQNR_DB
    assert f"{checked.sqnr_db:.1f} dB" in notes[0].text
    assert "on this device" in notes[0].text


def test_an_output_that_is_much_worse_than_exports_and_too_far_is_both() -> None:
    _, notes = check_output(_noisy(0.6), EXPECTED, manifest(scheme="int8-static", check=_exported(20.0)))
    assert [note.code for note in notes] == ["output-differs", "low-agreement"]


@pytest.mark.parametrize("exported", [120.0, None], ids=["near", "exact"])
def test_a_float_output_far_from_exports_fails(exported: float | None) -> None:
    with pytest.raises(EdgeqError) as caught:
        check_output(_noisy(0.1), EXPECTED, manifest(check=_exported(exported)))
    assert caught.value.code == "output-differs"


def test_a_float_output_as_good_as_exact_passes() -> None:
    assert check_output(_noisy(1e-5), EXPECTED, manifest(check=_exported(None)))[1] == []


class Counting:
    """The null session, counting what it is asked."""

    def __init__(self) -> None:
        self._null = open_null(SessionOptions(threads=1), (3, 4, 4), 50)
        self.input, self.classes = self._null.input, self._null.classes
        self.single, self.many = 0, 0
        self.effective, self.close = self._null.effective, self._null.close

    def infer(self, batch: Array) -> Array:
        self.single += len(batch)
        return self._null.infer(batch)

    def bind(self, batch: Array, logits: Array) -> Call:
        return bound(self.infer, batch, logits)

    def infer_many(self, samples: Sequence[Array], done: Done) -> None:
        self.many += len(samples)
        self._null.infer_many(samples, done)


def test_a_query_is_timed_as_the_scenario_will_issue_it() -> None:
    sample = np.zeros((3, 4, 4), np.float32)
    one, eight = Counting(), Counting()
    settled = time_queries(one, [sample], budget_s=0.05)
    assert (one.single, one.many) == (settled.total, 0)
    settled = time_queries(eight, [sample] * 8, budget_s=0.05)
    assert (eight.single, eight.many) == (0, 8 * settled.total)


def test_a_model_that_eats_the_budget_is_asked_once() -> None:
    session = Counting()
    settled = time_queries(session, [np.zeros((3, 4, 4), np.float32)], budget_s=0.0)
    assert (session.single, settled.last, settled.total) == (1, 1, 1)
    assert settled.typical_s == settled.first_s


def test_both_ways_give_the_logits_in_order() -> None:
    session, samples = Counting(), np.zeros((5, 3, 4, 4), np.float32)
    assert np.array_equal(logits_of(session, samples, many=True), logits_of(session, samples, many=False))
