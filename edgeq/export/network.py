"""``model.toml`` → the network that its constructor builds, without weights; and its pretrained weights by name."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from edgeq.spec.errors import EdgeqError, nearest
from edgeq.spec.model import ModelSpec

if TYPE_CHECKING:
    import torch


def build_network(spec: ModelSpec, seed: int) -> torch.nn.Module:
    """The network in eval mode, float32, with its constructor's own initial weights, drawn by ``seed``.

    Raises:
        EdgeqError: the package is not installed (code ``not-installed``), it has no such constructor (``bad-source``),
            or the network has another number of parameters than ``spec`` says (``parameters-differ``).
    """
    import torch

    constructor = _attribute(spec, spec.source.constructor, "constructor")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module: torch.nn.Module = constructor(**_without_weights(constructor))
    _check_parameters(module, spec)
    return module.eval()


def named_weights(spec: ModelSpec) -> Any:
    """The member of torchvision's ``WeightsEnum`` that ``spec.source.weights`` names.

    Raises:
        EdgeqError: the model names none (code ``no-pretrained``), or the package has no such name (``bad-source``).
    """
    if spec.source.weights is None:
        raise EdgeqError(
            f"{spec.name} has no pretrained weights to download",
            "its model.toml names none under [source]",
            "pass --weights FILE (.safetensors or .pth), or --weights random",
            code="no-pretrained",
        )
    return _attribute(spec, spec.source.weights, "weights")


def hashed_tensors(state: Mapping[str, torch.Tensor]) -> Iterator[bytes]:
    """The bytes that ``WeightsInfo.sha256`` is over: each tensor's name, dtype, shape and values, in order of names.

    ``num_batches_tracked`` counts training steps and is left out: files differ in whether they have it.
    """
    for name in sorted(state):
        if name.endswith("num_batches_tracked"):
            continue
        tensor = state[name].detach().cpu().contiguous()
        yield f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode()
        yield tensor.numpy().tobytes()


def _package(spec: ModelSpec) -> ModuleType:
    name = spec.source.package
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise EdgeqError(
            f"cannot build {spec.name}: {name} is not installed here",
            str(error),
            "run: pip install -c constraints.txt 'edgeq[export]', or export on another machine and copy the artifacts",
            code="not-installed",
        ) from error


def _attribute(spec: ModelSpec, dotted: str, kind: str) -> Any:
    found: Any = _package(spec)
    for part in dotted.split("."):
        if not hasattr(found, part):
            close = nearest(part, [name for name in dir(found) if not name.startswith("_")])
            hint = f"did you mean {close!r}?" if close else "see the package's documentation"
            raise EdgeqError(
                f"{spec.name}: {spec.source.package} has no {dotted}",
                f"model.toml names it as {kind} under [source]",
                f"correct {kind} in models/{spec.name}/model.toml: {hint}",
                code="bad-source",
            )
        found = getattr(found, part)
    return found


def _without_weights(constructor: Any) -> dict[str, None]:
    parameters = inspect.signature(constructor).parameters
    return {"weights": None} if "weights" in parameters else {}


def _check_parameters(module: torch.nn.Module, spec: ModelSpec) -> None:
    count = sum(parameter.numel() for parameter in module.parameters())
    if count != spec.parameters:
        raise EdgeqError(
            f"{spec.name}: the network has {count:,} parameters, model.toml says {spec.parameters:,}",
            "the constructor builds another network than model.toml describes",
            f"correct source or parameters in models/{spec.name}/model.toml",
            code="parameters-differ",
        )
