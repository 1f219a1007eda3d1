"""microsoft/onnxruntime#11576: a quantized model loses accuracy only where graph optimisation is on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.traps.cells import trial
from tests.traps.conftest import Artifact


def _options(session: Any) -> dict[str, Any]:
    found = session._sessions[0].get_session_options()
    names = [name for name in dir(found) if not name.startswith("_") and not callable(getattr(found, name))]
    return {name: getattr(found, name) for name in names if name != "intra_op_num_threads"}


def test_accuracy_and_speed_are_of_the_same_graph(artifact: Artifact, repo: Path, tmp_path: Path) -> None:
    made = artifact("onnxruntime", "int8-static")
    logits, options = [], []
    for mode, scenario in (("accuracy", "offline"), ("performance", "single-stream"), ("performance", "offline")):
        session: Any = trial(made, repo, tmp_path, mode=mode, scenario=scenario).load()  # type: ignore[arg-type]
        logits.append(np.concatenate([session.infer(sample[None]) for sample in made.samples]))
        options.append(_options(session))
        session.close()
    assert options[0]["graph_optimization_level"].name == "ORT_ENABLE_ALL"
    assert options[0] == options[1] == options[2]
    assert np.array_equal(logits[0], logits[1])
    assert np.array_equal(logits[0], logits[2])


def test_control_without_optimisations_it_is_another_graph(artifact: Artifact, tmp_path: Path) -> None:
    onnxruntime, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
    found = {}
    for level in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.optimized_model_filepath = str(tmp_path / f"{level}.onnx")
        options.log_severity_level = 3
        onnxruntime.InferenceSession(str(artifact("onnxruntime", "int8-static").path), options)
        found[level] = {node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node}
    assert "QLinearConv" in found["ORT_ENABLE_ALL"]
    assert "Conv" in found["ORT_DISABLE_ALL"]
    assert "QLinearConv" not in found["ORT_DISABLE_ALL"]
