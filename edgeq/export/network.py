"""``model.toml`` → the network that its constructor builds, without weights; and its pretrained weights by name."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from edgeq.installing import pip_install
from edgeq.spec.errors import EdgeqError, nearest
from edgeq.spec.model import ModelSpec

if TYPE_CHECKING:
    import torch


def build_network(spec: ModelSpec, seed: int) -> torch.nn.Module:
    """The network in eval mode, float32, with its constructor's own initial weights, drawn by ``seed``.

    Raises:
        EdgeqError: the package is not installed (code ``not-installed``); it has no such constructor, or one that fails
            or gives something else than a network (``bad-source``); the network has another number of parameters than
            ``spec`` says (``parameters-differ``).
    """
    import torch

    constructor = _attribute(spec, spec.source.constructor, "constructor")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = _construct(spec, constructor)
    _check_parameters(module, spec)
    return module.eval()


def named_weights(spec: ModelSpec) -> Any:
    """What ``spec.source.weights`` names: a member of torchvision's ``WeightsEnum``, or a function that gives a path.

    Raises:
        EdgeqError: the model names none, or a package of weights is not installed (code ``no-pretrained``); or the
            package has no such name (``bad-source``).
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


def how_to_install(spec: ModelSpec) -> str:
    """The command that installs what ``spec.source`` needs."""
    return pip_install(*(spec.source.requires or ["edgeq[export]"]))


def _construct(spec: ModelSpec, constructor: Any) -> torch.nn.Module:
    import torch

    arguments = {**_without_weights(constructor), **spec.source.arguments}
    called = f"{spec.source.constructor}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
    try:
        module = constructor(**arguments)
    except Exception as error:  # somebody's package: it may raise anything
        raise _bad_source(spec, f"{called} failed", f"{type(error).__name__}: {error}") from error
    if not isinstance(module, torch.nn.Module):
        raise _bad_source(spec, f"{called} is no network", f"it is a {type(module).__name__}, not a torch.nn.Module")
    return module


def _bad_source(spec: ModelSpec, what: str, why: str) -> EdgeqError:
    hint = f"correct constructor or arguments under [source] in models/{spec.name}/model.toml"
    return EdgeqError(f"{spec.name}: {what}", why, hint, code="bad-source")


def _package(spec: ModelSpec, name: str, kind: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if kind == "weights":
            raise EdgeqError(
                f"{spec.name}'s pretrained weights are in {name}, which is not installed here",
                str(error),
                f"run: {how_to_install(spec)}, or pass --weights FILE (.safetensors or .pth), or --weights random",
                code="no-pretrained",
            ) from error
        raise EdgeqError(
            f"cannot build {spec.name}: {name} is not installed here",
            str(error),
            f"run: {how_to_install(spec)}, or export on another machine and copy the artifacts",
            code="not-installed",
        ) from error


def _attribute(spec: ModelSpec, named: str, kind: str) -> Any:
    """What ``dotted.name`` in the model's package, or ``package:dotted.name``, stands for."""
    package, _, dotted = named.rpartition(":")
    package = package or spec.source.package
    found: Any = _package(spec, package, kind)
    for part in dotted.split("."):
        if not hasattr(found, part):
            close = nearest(part, [name for name in dir(found) if not name.startswith("_")])
            hint = f"did you mean {close!r}?" if close else "see the package's documentation"
            raise EdgeqError(
                f"{spec.name}: {package} has no {dotted}",
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
