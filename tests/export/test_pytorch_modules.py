"""Networks written with classes of their own, as EfficientNet-Lite is, in a form that FX can quantize."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from edgeq.export.pytorch_int8 import quantize_static  # noqa: E402
from edgeq.export.pytorch_modules import with_own_modules  # noqa: E402
from tests.export.exported import Samples, network  # noqa: E402

SETTINGS = {
    "engine": "x86", "activation_bits": 8, "float_layers": "none", "calibration_method": "mse",
    "granularity": "per-channel",
}  # fmt: skip


class Same(nn.Conv2d):  # type: ignore[misc]
    """Pads by a module of its own before it convolves."""

    def __init__(self, *args: Any, pad: tuple[int, int, int, int], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.static_padding = nn.ZeroPad2d(pad)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.static_padding(x)
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Padding(nn.Conv2d):  # type: ignore[misc]
    """Pads by a function before it convolves."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(F.pad(x, [2, 2, 1, 1]), self.weight, self.bias, dilation=self.dilation)


class Standardized(nn.Conv2d):  # type: ignore[misc]
    """Convolves by other weights than it holds."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, self.weight - self.weight.mean(), self.bias)


class Head(nn.Linear):  # type: ignore[misc]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight, self.bias)


class Net(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.stem = Same(3, 16, 3, stride=2, bias=False, pad=(0, 1, 0, 1))
        self.norm = nn.BatchNorm2d(16)
        self.depth = Same(16, 16, 3, groups=16, bias=False, pad=(1, 1, 1, 1))
        self.norm2 = nn.BatchNorm2d(16)
        self.wide = Padding(16, 8, (2, 3), dilation=(2, 2))
        self.odd = Standardized(8, 8, 1)
        self.act = nn.ReLU6()
        self.head = Head(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.norm(self.stem(x)))
        x = self.act(self.norm2(self.depth(x)))
        x = self.act(self.odd(self.act(self.wide(x))))
        return self.head(x.mean(dim=(2, 3)))


@pytest.fixture
def net() -> Any:
    torch.manual_seed(0)
    module = Net()
    with torch.no_grad():
        module.train()(torch.from_numpy(Samples(16).array))
    return module.eval()


def test_the_same_outputs_and_the_same_names(net: Any) -> None:
    found = with_own_modules(net)
    batch = torch.from_numpy(Samples(4, seed=3).array)
    with torch.no_grad():
        torch.testing.assert_close(found(batch), net(batch), rtol=1e-5, atol=1e-6)
    state = found.state_dict()
    assert set(state) == set(net.state_dict())
    assert all(torch.equal(tensor, state[key]) for key, tensor in net.state_dict().items())


def test_layers_become_torch_s_own_and_symmetric_zeros_their_padding(net: Any) -> None:
    found = dict(with_own_modules(net).named_modules())
    assert {name: type(found[name]) for name in ("stem", "depth", "wide", "head")} == {
        "stem": nn.Conv2d, "depth": nn.Conv2d, "wide": nn.Conv2d, "head": nn.Linear,
    }  # fmt: skip
    assert (found["stem"].padding, found["depth"].padding, found["wide"].padding) == ((0, 0), (1, 1), (1, 2))
    # What convolves by other weights than its own is left as it is.
    assert type(found.get("odd")) is not nn.Conv2d
    # An activation called four times has become four.
    assert sum(isinstance(layer, nn.ReLU6) for layer in found.values()) == 4


def test_the_network_given_is_left_as_it_was(net: Any) -> None:
    before = [(name, type(layer)) for name, layer in net.named_modules()]
    with_own_modules(net)
    assert [(name, type(layer)) for name, layer in net.named_modules()] == before


def test_a_network_of_torch_s_own_modules_is_returned_itself() -> None:
    module = network()
    assert with_own_modules(module) is module


def test_fx_fuses_what_it_could_not_fuse_before(net: Any) -> None:
    """As it is, FX sees functions with parameters where the two padded convolutions are."""
    module = _fit_for_fx(net)
    called = {node.target for node in torch.fx.symbolic_trace(module).graph.nodes if node.op == "call_module"}
    assert not called & {"stem", "depth"}
    found, done = quantize_static(with_own_modules(module), Samples(16), SETTINGS)
    assert done["relu6_fused"] == 3
    assert not any("BatchNorm" in type(layer).__name__ for layer in found.modules())
    batch = Samples(8, seed=2).array
    with torch.no_grad():
        expected = module(torch.from_numpy(batch)).numpy()
        torch.backends.quantized.engine = "x86"
        error = found(torch.from_numpy(batch)).numpy() - expected
    assert 10 * np.log10(np.square(expected).sum() / np.square(error).sum()) > 15


def _fit_for_fx(net: Any) -> Any:
    """Without the two layers that FX can't quantize in any form: one for its weights, one for its missing stride."""
    net.wide, net.odd = nn.Conv2d(16, 8, 1), nn.Identity()
    return net.eval()
