"""Where the float32 weights come from: torchvision's download, a package, a file, or a seed."""

from __future__ import annotations

import enum
import hashlib
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgeq.artifact import WeightsInfo
from edgeq.export.download import fetch_state, packaged_file
from edgeq.export.network import build_network, hashed_tensors, how_to_install, named_weights
from edgeq.export.random_weights import make_sane
from edgeq.spec.errors import EdgeqError, RequestError, nearest
from edgeq.spec.model import ModelSpec
from edgeq.spec.note import Note

if TYPE_CHECKING:
    import torch

CHOICES = ("auto", "pretrained", "random")
SUFFIXES = (".safetensors", ".pth", ".pt")

#: torchvision published DenseNet weights under names that torch no longer allows ("norm.1"); its own loader renames
#: them in the same way (torchvision.models.densenet._load_state_dict).
_OLD_DENSENET = re.compile(
    r"^(.*denselayer\d+\.(?:norm|relu|conv))\.([12]\.(?:weight|bias|running_mean|running_var|num_batches_tracked))$"
)

Loaded = tuple["torch.nn.Module", WeightsInfo, list[Note]]


def load_weights(spec: ModelSpec, choice: str, *, seed: int = 0, timeout_s: float = 20) -> Loaded:
    """Builds the network of ``spec`` with its weights: float32, in eval mode.

    Args:
        choice: ``pretrained`` (those that model.toml names), ``random`` (see ``random_weights``), ``auto`` (pretrained, and
            where that can't be had random, with the note ``random-weights`` that says why), or a state dict's path.
        seed: Of random weights.
        timeout_s: How long a download may make no progress.

    Returns:
        The network; what its weights are; warnings.

    Raises:
        RequestError: no such file (code ``no-weights``), another kind of file (``bad-weights-suffix``), one that can't
            be read (``bad-weights``), or whose tensors are not the network's (``weights-mismatch``) or not finite
            (``weights-not-finite``).
        EdgeqError: no download (``no-network``, ``bad-download``, ``no-pretrained``), or the network can't be built
            (``not-installed``, ``bad-source``, ``parameters-differ``, ``degenerate-weights``).
    """
    if choice == "pretrained":
        return _pretrained(spec, seed, timeout_s)
    if choice == "random":
        return _random(spec, seed)
    if choice == "auto":
        return _auto(spec, seed, timeout_s)
    return _from_file(spec, Path(choice), seed)


def state_sha256(module: torch.nn.Module) -> str:
    """Hex SHA-256 of the network's tensors (see ``hashed_tensors``): the same whatever file they came in."""
    digest = hashlib.sha256()
    for block in hashed_tensors(module.state_dict()):
        digest.update(block)
    return digest.hexdigest()


def read_state(path: Path) -> dict[str, torch.Tensor]:
    """Reads a state dict: .safetensors, or .pth and .pt with ``weights_only`` (a dict, or one under ``state_dict``).

    Raises:
        RequestError: code ``no-weights``, ``bad-weights-suffix`` or ``bad-weights``.
    """
    _check_path(path)
    state = _read_safetensors(path) if path.suffix == ".safetensors" else _read_pth(path)
    import torch

    if not state or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise _bad_file(path, "it holds something other than named tensors")
    return state


def _pretrained(spec: ModelSpec, seed: int, timeout_s: float) -> Loaded:
    module = build_network(spec, seed)
    weights = named_weights(spec)
    if isinstance(weights, enum.Enum):
        name, state = str(spec.source.weights), fetch_state(weights, timeout_s)
    else:
        file = packaged_file(weights, str(spec.source.weights), how_to_install(spec))
        name, state = file.name, _packaged_state(spec, file)
    notes = _fill(module, state, name)
    return module, _info(module, "pretrained", name), notes


def _packaged_state(spec: ModelSpec, file: Path) -> Mapping[str, torch.Tensor]:
    try:
        return read_state(file)
    except RequestError as error:  # its hint speaks to whoever made the file; here that is not the user
        hint = f"run: {how_to_install(spec)} --force-reinstall, or pass --weights FILE (.safetensors or .pth)"
        raise EdgeqError(error.what, error.why, hint, code="bad-download") from error


def _random(spec: ModelSpec, seed: int) -> Loaded:
    module = build_network(spec, seed)
    make_sane(module, spec, seed)
    return module, _info(module, "random", f"random, seed {seed}", seed), []


def _auto(spec: ModelSpec, seed: int, timeout_s: float) -> Loaded:
    try:
        return _pretrained(spec, seed, timeout_s)
    except EdgeqError as error:
        if error.code not in ("no-network", "bad-download", "no-pretrained"):
            raise
        why = error
    module, info, notes = _random(spec, seed)
    note = Note(
        code="random-weights",
        text=f"{spec.name} runs with RANDOM weights (seed {seed}): {why}. Speed is real; accuracy means nothing",
        hint="pass --weights FILE (.safetensors or .pth), or run with a network for the pretrained weights",
    )
    return module, info, [note, *notes]


def _from_file(spec: ModelSpec, path: Path, seed: int) -> Loaded:
    state = read_state(path)
    module = build_network(spec, seed)
    notes = _fill(module, state, str(path))
    return module, _info(module, "file", path.name), notes


def _info(
    module: torch.nn.Module, kind: Literal["pretrained", "random", "file"], name: str, seed: int | None = None
) -> WeightsInfo:
    return WeightsInfo(kind=kind, name=name, sha256=state_sha256(module), seed=seed)


def _check_path(path: Path) -> None:
    if path.suffix in SUFFIXES and path.is_file():
        return
    if path.suffix in SUFFIXES or path.exists():
        known = path.suffix in SUFFIXES
        raise RequestError(
            f"cannot use {path} as weights",
            ("it is a folder" if path.is_dir() else "no such file")
            if known
            else f"its name ends in none of {', '.join(SUFFIXES)}",
            "pass --weights FILE with a state dict in .safetensors or .pth",
            code="no-weights" if known else "bad-weights-suffix",
        )
    close = nearest(str(path), CHOICES)
    raise RequestError(
        f"unknown weights {str(path)!r}",
        f"it is none of {', '.join(CHOICES)}, and no file",
        f"did you mean {close!r}?" if close else "pass pretrained, random, or a .safetensors or .pth file",
        code="no-weights",
    )


def _read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        state: dict[str, torch.Tensor] = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise _bad_file(path, f"not a whole safetensors file ({error})") from error
    return state


def _read_pth(path: Path) -> dict[str, torch.Tensor]:
    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        why = "it holds more than tensors, or is no torch file; edgeq does not run code from weights files"
        raise _bad_file(path, why) from error
    except (RuntimeError, OSError, ValueError, EOFError, KeyError, AttributeError) as error:
        raise _bad_file(
            path, f"not a whole torch file ({str(error).splitlines()[0] if str(error) else error!r})"
        ) from error
    if isinstance(found, Mapping) and isinstance(found.get("state_dict"), Mapping):
        found = found["state_dict"]
    if not isinstance(found, Mapping):
        raise _bad_file(path, f"it holds a {type(found).__name__}, not a state dict")
    return dict(found)


def _bad_file(path: Path, why: str) -> RequestError:
    return RequestError(
        f"cannot read weights from {path}",
        why,
        "save the network's state_dict() with torch.save or safetensors",
        code="bad-weights",
    )


def _fill(module: torch.nn.Module, state: Mapping[str, torch.Tensor], name: str) -> list[Note]:
    """Copies ``state`` into ``module`` after checking it key by key and shape by shape."""
    given = {_OLD_DENSENET.sub(r"\1\2", key): value for key, value in state.items()}
    wanted = module.state_dict()
    _check_keys(given, wanted, name)
    _check_values(given, name)
    casts = sorted({str(given[key].dtype) for key in given if given[key].dtype != wanted[key].dtype})
    module.load_state_dict({**wanted, **given})
    if not casts:
        return []
    return [
        Note(
            code="weights-cast",
            text=f"{name} holds {', '.join(casts)} tensors: converted to the network's float32",
            hint="use float32 weights for a faithful fp32 reference",
        )
    ]


def _check_keys(given: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor], name: str) -> None:
    # Old files lack num_batches_tracked, which only training reads.
    missing = [key for key in wanted if key not in given and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in given if key not in wanted]
    shapes = [
        f"{key} {list(given[key].shape)}, not {list(wanted[key].shape)}"
        for key in wanted
        if key in given and given[key].shape != wanted[key].shape
    ]
    groups = (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
    why = "; ".join(f"{len(keys)} {what}: {_some(keys)}" for what, keys in groups if keys)
    if why:
        raise RequestError(
            f"{name} does not fit the network",
            why,
            "pass the state dict of this very model (--model), unchanged",
            code="weights-mismatch",
        )


def _check_values(given: Mapping[str, torch.Tensor], name: str) -> None:
    counts = [key for key in given if key.endswith("num_batches_tracked")]
    values = {key: tensor for key, tensor in given.items() if key not in counts}
    not_float = [f"{key} ({tensor.dtype})" for key, tensor in values.items() if not tensor.is_floating_point()]
    if not_float:
        raise RequestError(
            f"{name} holds tensors that are not floating point",
            _some(not_float),
            "pass the float weights; edgeq quantizes them itself",
            code="weights-mismatch",
        )
    broken = [key for key, tensor in values.items() if not bool(tensor.float().isfinite().all())]
    if broken:
        raise RequestError(
            f"{name} holds NaN or infinite values",
            f"in {len(broken)} tensors: {_some(broken)}",
            "pass the weights of a finished training",
            code="weights-not-finite",
        )


def _some(names: list[str], limit: int = 3) -> str:
    return ", ".join(names[:limit]) + (", …" if len(names) > limit else "")
