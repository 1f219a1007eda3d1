from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeq.artifact import TARGETS
from edgeq.backends.pytorch import open_session
from edgeq.backends.session import SessionOptions
from edgeq.export import pytorch
from edgeq.export.pytorch_int8 import quantize_static
from edgeq.spec.names import SCHEMES
from tests.export.exported import Exported, Samples, export, network, sqnr_db

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pytorch")


@pytest.fixture(scope="module")
def artifacts(folder: Path) -> dict[str, Exported]:
    return {scheme: export("pytorch", scheme, folder) for scheme in SCHEMES}


def logits(exported: Exported) -> np.ndarray[Any, np.dtype[np.float32]]:
    session = open_session(exported.manifest, exported.path, SessionOptions(threads=1))
    try:
        return session.infer(exported.samples)
    finally:
        session.close()


def test_only_int8_static_depends_on_the_target() -> None:
    for scheme in SCHEMES:
        recipes = [pytorch.recipe(scheme, target) for target in TARGETS]
        assert [recipe.target for recipe in recipes] == (list(TARGETS) if scheme == "int8-static" else ["any"] * 3)
    assert pytorch.recipe("int8-static", "x86_64").settings["activation_bits"] == 7
    engines = {target: pytorch.recipe("int8-static", target).settings["engine"] for target in TARGETS}
    assert engines == {"x86_64": "x86", "x86_64-vnni": "onednn", "aarch64": "qnnpack"}


def test_recipes_need_no_torch() -> None:
    code = "import sys, edgeq.export.pytorch as p; p.recipe('int8-static', 'x86_64'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("scheme", "least_db"), [("fp32", 90), ("fp16", 45), ("int8-static", 18), ("int8-dynamic", 20)]
)
def test_artifacts_stay_close_to_float(artifacts: dict[str, Exported], scheme: str, least_db: float) -> None:
    exported = artifacts[scheme]
    assert sqnr_db(logits(exported), exported.logits) > least_db
    assert (exported.manifest.input.shape, exported.manifest.input.layout) == ((3, 32, 32), "NCHW")


@pytest.mark.parametrize("target", ["x86_64", "aarch64"])
def test_other_targets_quantize_too(tmp_path: Path, target: str) -> None:
    exported = export("pytorch", "int8-static", tmp_path, target=target)
    assert sqnr_db(logits(exported), exported.logits) > 12


def test_seven_bit_activations_use_no_level_above_127(tmp_path: Path) -> None:
    """Trap 1: 2 × 127 × 127 fits the 16 bits in which FBGEMM adds where there is no VNNI; 2 × 255 × 127 does not."""
    exported = export("pytorch", "int8-static", tmp_path, target="x86_64")
    scale, zero_point = first_grid(exported)
    calibrated = Samples(16).array
    assert round(float(calibrated.max()) / scale) + zero_point <= 128
    assert exported.manifest.details["float_layer_names"] == ["depth.0"]


def first_grid(exported: Exported) -> tuple[float, int]:
    graph = torch.jit.load(str(exported.path)).inlined_graph
    node = next(node for node in graph.nodes() if node.kind() == "aten::quantize_per_tensor")
    _, scale, zero_point, _ = (value.toIValue() for value in node.inputs())
    return float(scale), int(zero_point)


def test_relu6_is_computed_by_the_convolution_before_it(artifacts: dict[str, Exported]) -> None:
    graph = torch.jit.load(str(artifacts["int8-static"].path)).inlined_graph
    kinds = [node.kind() for node in graph.nodes()]
    assert artifacts["int8-static"].manifest.details["relu6_fused"] == 2
    assert kinds.count("quantized::conv2d_relu") == 3
    assert not [kind for kind in kinds if "hardtanh" in kind or "relu6" in kind]


def test_a_fused_relu6_clamps_at_six(tmp_path: Path) -> None:
    """Values beyond 6 are the rule here, so a fused layer that only did ReLU would be far off."""
    module = network()
    module.stem[1].weight.data *= 8
    exported = export("pytorch", "int8-static", tmp_path, module)
    assert sqnr_db(logits(exported), exported.logits) > 12


def test_a_relu6_after_an_addition_is_left_alone(tmp_path: Path) -> None:
    class Sum(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = torch.nn.Conv2d(3, 8, 3, 4), torch.nn.Conv2d(3, 8, 3, 4)
            self.clamp, self.linear = torch.nn.ReLU6(), torch.nn.Linear(512, 10)

        def forward(self, x: Any) -> Any:
            return self.linear(torch.flatten(self.clamp(self.one(x) + self.two(x)), 1))

    torch.manual_seed(0)
    exported = export("pytorch", "int8-static", tmp_path, Sum().eval())
    assert exported.manifest.details["relu6_fused"] == 0
    assert sqnr_db(logits(exported), exported.logits) > 18


def test_export_leaves_the_network_and_the_engine_as_they_were() -> None:
    module, engine = network(), torch.backends.quantized.engine
    before = {name: value.clone() for name, value in module.state_dict().items()}
    quantize_static(module, Samples(4), pytorch.recipe("int8-static", "aarch64").settings)
    after = module.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert torch.backends.quantized.engine == engine


def test_export_warns_of_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scheme in SCHEMES:
            export("pytorch", scheme, tmp_path)
    assert capfd.readouterr().out == ""
