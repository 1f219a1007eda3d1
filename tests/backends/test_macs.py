from __future__ import annotations

import pytest

from edgeq.artifact import Layer
from edgeq.backends.macs import Executed, conv_macs, linear_macs, shares


def layers(*macs: int) -> list[Layer]:
    return [Layer(name=f"layer{index}", op="conv", macs=value) for index, value in enumerate(macs)]


@pytest.mark.parametrize(
    ("output", "weight", "macs"),
    [
        ([1, 8, 16, 16], [8, 3, 3, 3], 16 * 16 * 8 * 27),
        ([1, 16, 16, 8], [8, 3, 3, 3], 16 * 16 * 8 * 27),
        ([1, 8, 16, 16], [8, 1, 3, 3], 16 * 16 * 8 * 9),
        ([1, 8, 16, 16], [8, 1, 1, 3, 3], 16 * 16 * 8 * 9),
        ([1, 8, 16, 16], [2, 4, 6, 1, 1], 16 * 16 * 8 * 6),
    ],
    ids=["channels-first", "channels-last", "depthwise", "depthwise-with-groups", "grouped"],
)
def test_a_convolution_takes_one_kernel_an_output_value(output: list[int], weight: list[int], macs: int) -> None:
    assert conv_macs(output, weight) == macs


def test_a_linear_layer_takes_its_inputs_an_output_value() -> None:
    assert linear_macs([1, 1000], 1280) == 1_280_000


def test_shares_sum_to_one_and_account_for_every_layer() -> None:
    found, notes = shares([Executed("int8", 90), Executed("fp32", 10)], layers(90, 10))
    assert found == {"fp32": 0.1, "int8": 0.9}
    assert notes == ()


def test_a_missing_layer_is_not_passed_over() -> None:
    found, notes = shares([Executed("int8", 90)], layers(90, 10))
    assert found == {"int8": 1.0}
    assert [note.code for note in notes] == ["macs-unaccounted"]
    assert "90 multiply-adds were found, 100 expected" in notes[0].text


def test_padded_layers_weigh_what_the_model_asks_for() -> None:
    found, notes = shares([Executed("int8", 128), Executed("fp32", 100)], layers(100, 100))
    assert found == {"fp32": 0.5, "int8": 0.5}
    assert notes == ()


def test_layers_in_another_order_are_not_taken_for_padded_ones() -> None:
    found, notes = shares([Executed("int8", 10), Executed("fp32", 90)], layers(90, 10))
    assert found == {"fp32": 0.9, "int8": 0.1}
    assert notes == ()


def test_nothing_found_claims_nothing() -> None:
    found, notes = shares([], layers(100))
    assert found == {}
    assert [note.code for note in notes] == ["macs-unaccounted"]
