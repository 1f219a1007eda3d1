"""A network that FX can quantize, whatever classes it was written with: its layers become torch's own modules.

FX graph mode knows a layer by its exact class: ``Conv2d``, not a subclass that pads before it convolves; and an activation
by its module, which a network may call in many places. EfficientNet-Lite has both. FX then traces into each convolution
and finds a function called with a parameter, which it neither joins with its batch norm nor gives a clamp.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def with_own_modules(network: torch.nn.Module) -> torch.nn.Module:
    """The same network, with the same names of layers and parameters, in a form that FX can fuse and quantize.

    - A convolution or linear layer of another class becomes ``Conv2d`` or ``Linear``.
    - Zeros put around a convolution's input, as many on opposite sides, become the convolution's own padding.
    - An activation or another module without tensors that is called in several places becomes as many modules.

    Args:
        network: In eval mode; left as it is, but its parameters are shared.

    Returns:
        ``network`` itself, where nothing is to be done.

    Raises whatever ``torch.fx.symbolic_trace`` raises, as quantization by FX would.
    """
    import torch

    graph = torch.fx.symbolic_trace(network)
    changed = [_own_layer(graph, network, node) for node in list(graph.graph.nodes)]
    changed += [_own_padding(graph, node) for node in list(graph.graph.nodes)]
    changed += [_own_module(graph, node) for node in _repeated(graph)]
    if not any(changed):
        return network
    graph.graph.eliminate_dead_code()
    graph.graph.lint()
    graph.recompile()
    return graph.eval()


def _own_layer(graph: Any, network: torch.nn.Module, node: Any) -> bool:
    """``conv2d(x, layer.weight, …)`` or ``linear(x, layer.weight, …)`` → a call of the module ``layer``."""
    import torch

    functions = {torch.conv2d: _convolution, torch.nn.functional.linear: _linear}
    if node.op != "call_function" or node.target not in functions:
        return False
    weight, bias = _argument(node, 1, "weight"), _argument(node, 2, "bias")
    owner, _, leaf = getattr(weight, "target", "").rpartition(".") if _is_parameter(weight) else ("", "", "")
    if not owner or leaf != "weight" or not (bias is None or (_is_parameter(bias) and bias.target == f"{owner}.bias")):
        return False
    old = network.get_submodule(owner)
    layer = functions[node.target](node, old.weight)
    layer.weight, layer.bias = old.weight, (None if bias is None else old.bias)
    _move_children(graph, owner)
    _place(graph, owner, layer)
    source = _argument(node, 0, "input")
    node.op, node.target, node.args, node.kwargs = "call_module", owner, (source,), {}
    return True


def _is_parameter(value: Any) -> bool:
    """Whether ``value`` is the graph's node of a parameter that is used once."""
    return getattr(value, "op", "") == "get_attr" and len(value.users) == 1


def _argument(node: Any, position: int, name: str, default: Any = None) -> Any:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def _convolution(node: Any, weight: torch.Tensor) -> torch.nn.Module:
    import torch

    groups = _argument(node, 6, "groups", 1)
    stride, padding, dilation = (
        _argument(node, position, name, default)
        for position, name, default in ((3, "stride", 1), (4, "padding", 0), (5, "dilation", 1))
    )
    pair = [value if isinstance(value, int | str) else tuple(value) for value in (stride, padding, dilation)]
    with torch.device("meta"):
        return torch.nn.Conv2d(weight.shape[1] * groups, weight.shape[0], tuple(weight.shape[2:]), *pair, groups, False)


def _linear(node: Any, weight: torch.Tensor) -> torch.nn.Module:
    import torch

    with torch.device("meta"):
        return torch.nn.Linear(weight.shape[1], weight.shape[0], False)


def _own_padding(graph: Any, node: Any) -> bool:
    """Zeros around the input of a convolution without padding, as many on opposite sides → its own padding."""
    import torch

    layer = _module(graph, node)
    if type(layer) is not torch.nn.Conv2d or layer.padding not in (0, (0, 0)):
        return False
    (source,) = node.args
    left, right, top, bottom = _zeros_around(graph, source)
    if (left, top) != (right, bottom) or (left, top) == (0, 0) or min(left, top) < 0 or len(source.users) > 1:
        return False
    padded = torch.nn.Conv2d(
        layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, (top, left), layer.dilation,
        layer.groups, False, device="meta",
    )  # fmt: skip
    padded.weight, padded.bias = layer.weight, layer.bias
    _place(graph, node.target, padded)
    node.args = (_argument(source, 0, "input"),)
    return True


def _zeros_around(graph: Any, node: Any) -> tuple[int, int, int, int]:
    """What a node puts around its input: zeros at the left, right, top and bottom."""
    import torch

    layer = _module(graph, node)
    if isinstance(layer, torch.nn.ZeroPad2d):
        left, right, top, bottom = layer.padding
        return left, right, top, bottom
    if getattr(node, "target", None) is torch.nn.functional.pad and node.op == "call_function":
        sizes, mode = _argument(node, 1, "pad"), _argument(node, 2, "mode", "constant")
        value = _argument(node, 3, "value") or 0
        if mode == "constant" and value == 0 and len(sizes) == 4 and all(isinstance(size, int) for size in sizes):
            left, right, top, bottom = sizes
            return left, right, top, bottom
    return 0, 0, 0, 0


def _repeated(graph: Any) -> list[Any]:
    """The second and later calls of each module without tensors."""
    seen: set[str] = set()
    found = []
    for node in graph.graph.nodes:
        layer = _module(graph, node)
        if layer is None or layer.state_dict():
            continue
        if node.target in seen:
            found.append(node)
        seen.add(node.target)
    return found


def _own_module(graph: Any, node: Any) -> bool:
    name = _free_name(graph, node.target)
    graph.add_submodule(name, copy.deepcopy(graph.get_submodule(node.target)))
    node.target = name
    return True


def _module(graph: Any, node: Any) -> Any:
    return graph.get_submodule(node.target) if getattr(node, "op", "") == "call_module" else None


def _move_children(graph: Any, owner: str) -> None:
    """Modules that stood inside a layer, such as its padding, get a place beside it."""
    for node in graph.graph.nodes:
        if node.op == "call_module" and node.target.startswith(f"{owner}."):
            name = _free_name(graph, node.target.replace(f"{owner}.", f"{owner}_", 1))
            graph.add_submodule(name, graph.get_submodule(node.target))
            node.target = name


def _free_name(graph: Any, wanted: str) -> str:
    taken = {name for name, _ in graph.named_modules()}
    return next(name for name in (wanted, *(f"{wanted}_{n}" for n in range(1, 10_000))) if name not in taken)


def _place(graph: Any, name: str, layer: torch.nn.Module) -> None:
    parent, _, leaf = name.rpartition(".")
    setattr(graph.get_submodule(parent), leaf, layer)
