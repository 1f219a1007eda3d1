from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from edgeq.export.macs import layers
from edgeq.export.network import build_network
from edgeq.spec.errors import EdgeqError
from edgeq.spec.model import load_model
from tests.data.pictures import small_spec
from tests.export import tiny

SPEC = small_spec(macs=tiny.MACS, parameters=tiny.PARAMETERS)


def test_layers_stand_in_execution_order_with_their_multiply_adds() -> None:
    found = layers(build_network(SPEC, 0), SPEC)
    assert [(layer.name, layer.op, layer.macs) for layer in found] == [
        ("stem", "conv", 16 * 16 * 8 * 27),
        ("depthwise", "depthwise", 16 * 16 * 8 * 9),
        ("pointwise", "conv", 16 * 16 * 16 * 8),
        ("classifier", "linear", 160),
    ]


def test_no_hook_stays_behind() -> None:
    module = build_network(SPEC, 0)
    layers(module, SPEC)
    assert not any(layer._forward_hooks for layer in module.modules())


def test_a_layer_that_runs_twice_counts_twice() -> None:
    import torch

    module = build_network(SPEC, 0)
    twice = torch.nn.Sequential(module.get_submodule("stem"), torch.nn.Upsample(scale_factor=2))
    twice.append(torch.nn.Conv2d(8, 3, 1, bias=False)).append(module.get_submodule("stem"))
    one, pointwise = 16 * 16 * 8 * 27, 32 * 32 * 24
    found = layers(twice, small_spec(macs=2 * one + pointwise))
    assert [(layer.name, layer.macs) for layer in found] == [("0", 2 * one), ("2", pointwise)]


def test_another_sum_than_model_toml_s_is_an_error() -> None:
    with pytest.raises(EdgeqError) as caught:
        layers(build_network(SPEC, 0), small_spec(macs=tiny.MACS - 1))
    assert caught.value.code == "macs-differ"


@pytest.mark.parametrize(
    ("model", "counts"),
    [
        ("mobilenet_v2", {"conv": 35, "depthwise": 17, "linear": 1}),
        ("densenet121", {"conv": 120, "depthwise": 0, "linear": 1}),
        ("vgg19", {"conv": 16, "depthwise": 0, "linear": 3}),
    ],
)
def test_the_three_models_are_what_their_files_say(repo: Path, model: str, counts: dict[str, int]) -> None:
    pytest.importorskip("torchvision")
    spec = load_model(repo / "models", model)
    found = layers(build_network(spec, 0), spec)
    assert {op: sum(layer.op == op for layer in found) for op in counts} == counts
