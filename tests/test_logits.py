from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.logits import alive, distance
from edgeq.spec.errors import EdgeqError


@given(st.integers(1, 8), st.integers(2, 20), st.integers(0, 99))
def test_equal_logits_have_no_distance(n: int, classes: int, seed: int) -> None:
    logits = np.random.default_rng(seed).normal(size=(n, classes)).astype(np.float32)
    gap = distance(logits, logits)
    assert (gap.sqnr_db, gap.max_rel_error, gap.top1_agreement, gap.n) == (None, 0.0, 1.0, n)


@given(st.floats(1e-3, 10), st.integers(0, 99))
def test_sqnr_falls_20_db_a_decade_of_noise(scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(4, 50)).astype(np.float32)
    noise = rng.normal(size=(4, 50)).astype(np.float32) * scale
    near, far = distance(logits + noise / 10, logits).sqnr_db, distance(logits + noise, logits).sqnr_db
    assert near is not None
    assert far is not None
    assert near - far == pytest.approx(20, abs=0.2)


def test_known_distance() -> None:
    expected = np.array([[3.0, 4.0], [0.0, -10.0]], np.float32)
    gap = distance(np.array([[3.0, 4.0], [1.0, -10.0]], np.float32), expected)
    assert gap.sqnr_db == pytest.approx(10 * np.log10(125))
    assert gap.max_rel_error == pytest.approx(0.1)
    assert gap.top1_agreement == 1.0


def test_logits_of_other_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        distance(np.zeros((1, 3), np.float32), np.zeros((1, 4), np.float32))


@pytest.mark.parametrize(
    ("logits", "why"),
    [
        ([[1.0, np.nan], [0.0, 1.0]], "finite"),
        ([[2.0, 2.0], [0.0, 1.0]], "equal"),
        ([[0.0, 1.0], [0.0, 1.0]], "different samples"),
    ],
)
def test_a_dead_output_is_found(logits: list[list[float]], why: str) -> None:
    with pytest.raises(EdgeqError, match=why) as caught:
        alive(np.array(logits, np.float32))
    assert caught.value.code == "dead-output"


def test_one_live_sample_is_alive() -> None:
    alive(np.array([[0.0, 1.0]], np.float32))
