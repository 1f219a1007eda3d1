from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.spec.errors import RequestError
from edgeq.spec.names import BACKENDS, SCENARIOS, SCHEMES, Cell, check_names

MODELS = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True)


@given(MODELS, st.sampled_from(BACKENDS), st.sampled_from(SCHEMES), st.sampled_from(SCENARIOS))
def test_a_cell_reads_back_what_it_writes(model: str, backend: str, scheme: str, scenario: str) -> None:
    cell = Cell(model, backend, scheme, scenario)
    assert Cell.parse(str(cell)) == cell


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("m/openvin/fp32/offline", "openvino"),
        ("m/tflite/int8-statc/offline", "int8-static"),
        ("m/tflite/fp32/singlestream", "single-stream"),
    ],
)
def test_a_typo_in_a_cell_names_the_nearest_name(text: str, nearest: str) -> None:
    with pytest.raises(RequestError) as caught:
        Cell.parse(text)
    assert nearest in caught.value.hint
    assert caught.value.exit_code == 2


@given(st.text(max_size=30).filter(lambda text: text.strip("/").count("/") != 3))
def test_what_has_not_four_parts_is_no_cell(text: str) -> None:
    with pytest.raises(RequestError, match="is not a cell"):
        Cell.parse(text)


def test_names_lose_repeats_and_fp32_comes_first() -> None:
    assert check_names("scheme", ["int8-static", "fp32", "int8-static"], SCHEMES) == ("fp32", "int8-static")
