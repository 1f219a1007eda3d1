from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from edgeq.report.output import print_overlap
from edgeq.report.overlap import overlap
from edgeq.report.runs import load_runs
from edgeq.run.record import Record
from edgeq.spec.errors import RequestError
from tests.report.factory import PI, artifact, record, run_info, study, write_run

S = "single-stream"


def two(results: Path, first: list[Record], second: list[Record]) -> None:
    write_run(results, first, run="a")
    write_run(results, second, run="b")


def test_the_share_of_cells_whose_intervals_overlap(tmp_path: Path) -> None:
    cells = [f"m/{backend}/fp32/{S}" for backend in ("openvino", "tflite", "onnxruntime", "pytorch")]
    two(
        tmp_path,
        [record(cell, 10.0) for cell in cells],
        [record(cell, ms) for cell, ms in zip(cells, (10.1, 10.3, 9.8, 11.0), strict=True)],
    )
    found = overlap(*load_runs(tmp_path, [Path("a"), Path("b")]))
    assert found.share == pytest.approx(0.75)
    assert [str(pair.cell) for pair in found.apart] == [cells[3]]
    assert found.left_out == {}


def test_what_cannot_be_compared_is_left_out_with_a_reason(tmp_path: Path) -> None:
    base = [record("m/tflite/fp32/offline"), record(f"m/tflite/fp32/{S}"), record("m/tflite/fp32/multi-stream")]
    other = [record("m/tflite/fp32/offline", spread=None), record(f"m/tflite/fp32/{S}", percentile=0.99),
             record("m/tflite/fp32/multi-stream", samples=64 * 4)]  # fmt: skip
    two(tmp_path, [*base, record(f"m/tflite/fp16/{S}")], other)
    found = overlap(*load_runs(tmp_path, [Path("a"), Path("b")]))
    assert (found.pairs, found.share) == ([], None)
    assert {str(cell): why for cell, why in found.left_out.items()} == {
        "m/tflite/fp32/offline": "no interval in both runs",
        f"m/tflite/fp32/{S}": "judged at p90 in the first run, at p99 in the second",
        "m/tflite/fp32/multi-stream": "queries of another size",
        f"m/tflite/fp16/{S}": "not in both runs",
    }


def test_it_prints_every_cell_and_the_share(tmp_path: Path) -> None:
    two(tmp_path, study(), [each.model_copy(update={"run": run_info("b")}) for each in study()])
    console = Console(width=160, file=io.StringIO(), record=True)
    print_overlap(tmp_path, [Path("a"), Path("b")], console)
    text = console.export_text()
    assert (
        "42 of 42 cells overlap (100 %); 6 left out: 3 failed in both runs, 2 skipped in both runs, 1 invalid" in text
    )
    assert "mobilenet_v2/openvino/int8-static/offline" in text
    assert "385 ±8" in text
    assert "left out: failed in both runs" in text
    assert "use --rounds 3" in " ".join(text.split())


def test_the_cells_apart_come_first_and_are_named(tmp_path: Path) -> None:
    two(tmp_path, [record("m/tflite/fp32/offline"), record(f"m/tflite/fp32/{S}", 10.0)],
        [record("m/tflite/fp32/offline"), record(f"m/tflite/fp32/{S}", 20.0)])  # fmt: skip
    console = Console(width=160, file=io.StringIO(), record=True)
    print_overlap(tmp_path, [Path("a"), Path("b")], console)
    text = console.export_text()
    assert f"1 of 2 cells overlap (50 %); apart: m/tflite/fp32/{S}." in text
    assert text.index(f"m/tflite/fp32/{S}") < text.index("m/tflite/fp32/offline")


@pytest.mark.parametrize("names", [[], ["a"], ["a", "a"], ["a", "b", "c"]])
def test_it_takes_two_runs(names: list[str], tmp_path: Path) -> None:
    two(tmp_path, [record("m/tflite/fp32/offline")], [record("m/tflite/fp32/offline")])
    with pytest.raises(RequestError) as caught:
        print_overlap(tmp_path, [Path(name) for name in names])
    assert caught.value.code == "bad-value"


def test_runs_with_nothing_in_common_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path, [record("m/tflite/fp32/offline", spread=None)], run="a")
    write_run(tmp_path, [record("m/tflite/fp32/offline", device=PI)], device=PI, run="b")
    with pytest.raises(RequestError, match="1 another device") as caught:
        print_overlap(tmp_path, [Path("a"), Path("b")])
    assert caught.value.code == "nothing-in-common"


def test_different_things_are_not_compared(tmp_path: Path) -> None:
    cells = [f"m/{backend}/fp32/{S}" for backend in ("openvino", "tflite", "onnxruntime", "pytorch")]
    base = [*(record(cell, 10.0) for cell in cells), record("m/tflite/fp32/offline")]
    threads = base[2].effective
    assert threads is not None
    other = [
        record(cells[0], 10.0, device=PI),
        record(cells[1], 10.0, artifact=artifact("fp32").model_copy(update={"key": "new"})),
        record(cells[2], 10.0, effective=threads.model_copy(update={"threads": 1})),
        record(cells[3], 10.0, run=run_info("b").model_copy(update={"profile": "paper"})), record("m/tflite/fp32/offline"),
    ]  # fmt: skip
    two(tmp_path, base, other)
    found = overlap(*load_runs(tmp_path, [Path("a"), Path("b")]))
    assert list(found.left_out.values()) == [
        "another device", "another artifact", "another number of threads", "another profile",
    ]  # fmt: skip
    assert len(found.pairs) == 1
