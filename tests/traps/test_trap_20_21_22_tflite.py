"""TFLite: one thread unless told (tensorflow/tensorflow#53146), delegation that proves nothing (#48751, #55525), and
integer inputs fed as they are (#52318).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeq.backends import open_session
from edgeq.backends.session import SessionOptions
from edgeq.run.steadiness import cpu_notes
from edgeq.spec.errors import EdgeqError
from tests.traps.cells import trial
from tests.traps.conftest import Artifact


def test_trap_20_threads_are_passed(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    made = artifact("tflite", "fp32")
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    given: list[int] = []
    original = interpreter.Interpreter

    class Watched(original):  # type: ignore[misc]
        def __init__(self, *args: Any, num_threads: int | None = None, **kwargs: Any) -> None:
            given.append(num_threads or 0)
            super().__init__(*args, num_threads=num_threads, **kwargs)

    monkeypatch.setattr(interpreter, "Interpreter", Watched)
    for threads, streams in ((3, 1), (4, 2)):
        session = open_session(made.manifest, made.path, SessionOptions(threads, streams))
        assert session.effective().threads == threads
        session.close()
    assert given == [3, 2, 2]


def test_trap_20_threads_that_did_no_work_are_told() -> None:
    assert [note.code for note in cpu_notes(1.0, threads=4)] == ["cpu-time"]
    assert cpu_notes(3.6, threads=4) == []


@pytest.mark.parametrize("scheme", ["fp32", "int8-static", "int8-dynamic"])
def test_trap_21_delegated_nodes_are_counted(artifact: Artifact, scheme: str) -> None:
    made = artifact("tflite", scheme)
    session = open_session(made.manifest, made.path, SessionOptions(threads=1))
    found = session.effective()
    session.close()
    assert found.engine == f"XNNPACK ({found.extra['delegated_nodes']} of {found.extra['nodes']} nodes delegated)"
    # The dynamic-range graph is in one piece: a layer that XNNPACK misses would break it into more.
    assert (found.extra["delegated_nodes"], found.extra["delegate_partitions"]) == (found.extra["nodes"], 1)


def test_trap_22_float32_in_and_out(artifact: Artifact, repo: Path, tmp_path: Path) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    made = artifact("tflite", "int8-static")
    raw = interpreter.Interpreter(model_path=str(made.path))
    assert {detail["dtype"] for detail in (*raw.get_input_details(), *raw.get_output_details())} == {np.float32}
    assert {str(np.dtype(detail["dtype"])) for detail in raw.get_tensor_details()} >= {"int8"}
    trial(made, repo, tmp_path).load().close()


def test_trap_22_a_file_that_takes_integers_is_refused(artifact: Artifact, tmp_path: Path) -> None:
    from litert_quantizer import quantizer
    from litert_quantizer import recipe as recipes

    made = artifact("tflite", "fp32")
    raw, file = quantizer.Quantizer(str(made.path), recipes.static_wi8_ai8()), tmp_path / "int8.tflite"
    feed = [{"args_0": sample[None]} for sample in made.samples]
    raw.quantize(raw.calibrate({"serving_default": feed})).export_model(str(file))
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter(model_path=str(file))
    # The control: the tool's own recipe takes int8, whose scale and zero point somebody would have to apply.
    assert interpreter.get_input_details()[0]["dtype"] == np.int8
    with pytest.raises(EdgeqError) as caught:
        open_session(made.manifest, file, SessionOptions(threads=1))
    assert caught.value.code == "integer-input"
