"""The machine's limits, and how near to them a cell comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.peaks import Peaks, Rate, best, efficiency

HALF, NO_HALF = frozenset({"neon", "fp16"}), frozenset({"avx2", "avx512_vnni"})
GIGA = 1e9


def _peaks(**giga: float) -> Peaks:
    return best([Rate(name, f"of {name}", value * GIGA) for name, value in giga.items()], threads=2, isa=HALF)


def test_the_fastest_library_of_each_precision_counts() -> None:
    rates = [
        Rate("fp32", "a", 90 * GIGA), Rate("fp32", "b", 110 * GIGA), Rate("int8", "b", 300 * GIGA),
        Rate("int8", "c", 420 * GIGA), Rate("fp32", "c", 100 * GIGA),
    ]  # fmt: skip
    found = best(rates, threads=2, isa=HALF)
    assert {name: (peak.library, peak.macs_per_s) for name, peak in found.by.items()} == {
        "fp32": ("b", 110 * GIGA),
        "int8": ("c", 420 * GIGA),
    }
    assert found.words() == "fp32 110 GMAC/s (b), int8 420 GMAC/s (c), 2 threads"


def test_a_precision_is_no_slower_than_a_wider_one_and_says_whose_figure_that_is() -> None:
    found = _peaks(fp32=40, fp16=3.5, int8=35)
    assert {name: peak.macs_per_s / GIGA for name, peak in found.by.items()} == {"fp32": 40, "fp16": 40, "int8": 40}
    assert found.library("int8") == "of fp32 in fp32"
    assert found.words() == (
        "fp32 40 GMAC/s (of fp32), fp16 40 GMAC/s (of fp32 in fp32), int8 40 GMAC/s (of fp32 in fp32), 2 threads"
    )


def test_a_wider_one_is_no_faster_for_a_narrow_one() -> None:
    assert _peaks(fp32=40, int8=160).by["fp32"].macs_per_s == 40 * GIGA
    assert _peaks(fp32=40, fp16=80, int8=60).by["int8"].computed == "fp16"


def test_without_half_precision_arithmetic_fp16_has_the_peak_of_fp32_and_else_none_unmeasured() -> None:
    rates = [Rate("fp32", "a", GIGA)]
    assert best(rates, 1, NO_HALF).library("fp16") == "a in fp32"
    assert set(best(rates, 1, HALF).by) == {"fp32"}
    assert set(best(rates, 1, frozenset()).by) == {"fp32"}, "nothing is known of this CPU"
    assert best([], 1, NO_HALF).by == {}


def test_one_precision_is_the_achieved_rate_over_the_peak() -> None:
    found = efficiency({"fp32": 1.0}, 300_000_000, 100.0, _peaks(fp32=60))
    assert found is not None
    assert found.macs_per_s == pytest.approx(30 * GIGA)
    assert found.share == pytest.approx(0.5)
    assert found.library == "of fp32"


def test_several_precisions_are_weighed_by_the_time_that_each_takes_at_its_peak() -> None:
    # A sample of 1 GMAC: 0.9 of it in 3 ms of int8's peak, 0.1 in 1 ms of fp32's. It took 8 ms.
    found = efficiency({"int8": 0.9, "fp32": 0.1}, 10**9, 125.0, _peaks(int8=300, fp32=100))
    assert found is not None
    assert found.share == pytest.approx(0.5)
    assert found.library == "int8: of int8, fp32: of fp32"


def test_faster_than_the_peak_is_shown_as_it_is() -> None:
    found = efficiency({"fp32": 1.0}, 10**9, 150.0, _peaks(fp32=100))
    assert found is not None
    assert found.share == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("shares", "macs", "rate"),
    [({}, 10**9, 1.0), ({"bf16": 1.0}, 10**9, 1.0), ({"int8": 0.5, "fp16": 0.5}, 10**9, 1.0), ({"int8": 1.0}, 0, 1.0),
     ({"int8": 1.0}, 10**9, 0.0)],
)  # fmt: skip
def test_nothing_is_guessed(shares: dict[str, float], macs: int, rate: float) -> None:
    assert efficiency(shares, macs, rate, _peaks(fp32=100, int8=400)) is None


def test_a_precision_that_ran_nothing_needs_no_peak() -> None:
    assert efficiency({"fp32": 1.0, "int8": 0.0}, 10**9, 1.0, _peaks(fp32=100)) is not None


@given(st.floats(0, 1), st.floats(1, 1e3), st.floats(1, 1e3), st.floats(1e-3, 1e5), st.integers(1, 10**12))
def test_a_cell_at_its_limit_has_a_share_of_one(part: float, fp32: float, int8: float, scale: float, macs: int) -> None:
    peaks, shares = _peaks(fp32=fp32, int8=int8), {"int8": part, "fp32": 1 - part}
    ideal_s = sum(share * macs / peaks.by[name].macs_per_s for name, share in shares.items())
    found = efficiency(shares, macs, scale / ideal_s, peaks)
    assert found is not None
    assert found.share == pytest.approx(scale)


def test_peaks_are_json() -> None:
    peaks = _peaks(fp32=100, int8=400)
    assert Peaks.model_validate_json(peaks.model_dump_json()) == peaks
