from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.loadgen.accuracy import Predictions, read_accuracy
from edgeq.loadgen.log import ACCURACY
from edgeq.loadgen.sut import best_classes
from edgeq.spec.errors import EdgeqError


def entry(index: int, *classes: int) -> dict[str, Any]:
    return {"seq_id": 0, "qsl_idx": index, "data": np.array(classes, "<i4").tobytes().hex().upper()}


def as_loadgen_writes(entries: list[Any]) -> str:
    return "[\n" + ",\n".join(json.dumps(each) for each in entries) + "\n]\n"


def write(folder: Path, entries: list[Any]) -> Path:
    (folder / ACCURACY).write_text(as_loadgen_writes(entries))
    return folder


def test_predictions_by_sample_index(tmp_path: Path) -> None:
    write(tmp_path, [entry(1, 9, 8, 7, 6, 5), entry(0, 1, 2, 3, -1, -1), entry(1, 9, 8, 7, 6, 5)])
    found = read_accuracy(tmp_path, 2)
    assert found.best.tolist() == [[1, 2, 3, -1, -1], [9, 8, 7, 6, 5]]
    assert (found.n, found.repeats) == (2, 1)
    assert found.top1([1, 5]) == 0.5
    assert found.top5([3, 5]) == 1
    assert found.top5([9, 1]) == 0


def test_agreement() -> None:
    a = Predictions(np.array([[1, 2, 3, 4, 5], [2, 1, 3, 4, 5]], np.int32), 0)
    b = Predictions(np.array([[1, 9, 8, 7, 6], [1, 2, 3, 4, 5]], np.int32), 0)
    assert a.agreement(a) == 1
    assert a.agreement(b) == b.agreement(a) == 0.5


def test_labels_must_be_as_many_as_samples() -> None:
    with pytest.raises(ValueError, match="shape"):
        Predictions(np.zeros((2, 5), np.int32), 0).top1([1])


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([entry(0, 1, 2, 3, 4, 5)], "1 of 2 samples are missing, the first is 1"),
        ([entry(0, 1, 2, 3, 4, 5), entry(2, 1, 2, 3, 4, 5)], "holds sample 2"),
        ([entry(-1, 1, 2, 3, 4, 5)], "holds sample -1"),
        ([entry(0, 1, 2, 3, 4, 5), entry(0, 2, 1, 3, 4, 5)], "two different answers"),
        ([entry(0, 1, 2, 3, 4)], "4 classes"),
        ([{"qsl_idx": 0, "data": "xyz"}], "hex"),
        ([{"qsl_idx": 0}], "data"),
        (["text"], "indices"),
    ],
)
def test_damage_is_named(tmp_path: Path, entries: list[Any], why: str) -> None:
    with pytest.raises(EdgeqError, match=why) as caught:
        read_accuracy(write(tmp_path, entries), 2)
    assert caught.value.code == "loadgen-log"


def test_missing_and_truncated_logs(tmp_path: Path) -> None:
    with pytest.raises(EdgeqError):
        read_accuracy(tmp_path, 1)
    text = as_loadgen_writes([entry(0, 1, 2, 3, 4, 5), entry(1, 1, 2, 3, 4, 5)])
    for end in range(len(text) - 1):  # without its last newline it is whole
        (tmp_path / ACCURACY).write_text(text[:end])
        with pytest.raises(EdgeqError):
            read_accuracy(tmp_path, 2)


@pytest.mark.parametrize(("was", "becomes"), [("},", "}"), ("]\n", "]\n]\n"), ("}\n]", "},\n]"), ("[\n", "")])
def test_a_log_that_is_no_list_is_refused(tmp_path: Path, was: str, becomes: str) -> None:
    text = as_loadgen_writes([entry(0, 1, 2, 3, 4, 5), entry(1, 1, 2, 3, 4, 5)])
    assert text.count(was) == 1
    (tmp_path / ACCURACY).write_text(text)
    assert read_accuracy(tmp_path, 2).n == 2
    (tmp_path / ACCURACY).write_text(text.replace(was, becomes))
    with pytest.raises(EdgeqError):
        read_accuracy(tmp_path, 2)


@given(st.lists(st.lists(st.integers(-3, 3), min_size=7, max_size=7), min_size=1, max_size=4))
def test_best_classes_are_a_stable_sort(rows: list[list[int]]) -> None:
    expected = [sorted(range(7), key=lambda i: (-row[i], i))[:5] for row in rows]
    assert best_classes(np.array(rows, np.float32)).tolist() == expected


def test_best_of_few_classes() -> None:
    assert best_classes(np.array([[0.5, 2.0, 1.0]], np.float32)).tolist() == [[1, 2, 0, -1, -1]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logit_that_is_no_number(bad: float) -> None:
    with pytest.raises(EdgeqError) as caught:
        best_classes(np.array([[0.0, bad]], np.float32))
    assert caught.value.code == "bad-output"
