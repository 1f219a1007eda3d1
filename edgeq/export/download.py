"""A model's pretrained weights: torchvision's own download, with a bounded wait; or a file that a package brings."""

from __future__ import annotations

import contextlib
import http.client
import pickle
import socket
import ssl
import sys
import threading
import urllib.error
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeq.files import sha256_file, write_error
from edgeq.spec.errors import EdgeqError

if TYPE_CHECKING:
    import torch

#: HTTPError is an URLError. torch says "invalid hash value" and all that it finds in a file as RuntimeError.
_NETWORK_ERRORS = (urllib.error.URLError, TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException)
_BROKEN_FILE_ERRORS = (RuntimeError, pickle.UnpicklingError, EOFError, ValueError)
#: Fewer bytes than this in a whole waiting time count as a stall.
_LEAST_BYTES = 1 << 14
_ALTERNATIVES = "pass --weights FILE (.safetensors or .pth), or --weights random"


def fetch_state(weights: Any, timeout_s: float) -> Mapping[str, torch.Tensor]:
    """The state dict of a member of torchvision's ``WeightsEnum``, from torch's own cache or from its URL.

    The wait is bounded by progress, not by the whole time: a large file on a slow line may take as long as it needs, a
    server that gives next to nothing for ``timeout_s`` may not. That covers name resolution and all addresses tried.

    Raises:
        EdgeqError: the server can't be reached, refuses, or stalls (code ``no-network``), the file is not the one that
            its name promises (``bad-download``), or it can't be stored (``disk-full``, ``cannot-write``).
    """
    file = _cached_file(weights)
    with _quiet_stdout(), _socket_timeout(timeout_s):
        state = _watched(lambda: _get(weights, file), file, timeout_s, weights.url)
    return state


def packaged_file(weights: Any, named: str, install: str) -> Path:
    """The file that a package of weights says it holds; its hash is checked where its name gives one, as torch's do.

    Args:
        weights: A function without arguments that gives a path.
        named: What model.toml calls it.
        install: The command that installs the package.

    Raises:
        EdgeqError: it is no such function (code ``bad-source``), the file is not there (``no-pretrained``), or it is
            not the one that its name promises (``bad-download``).
    """
    if not callable(weights):
        raise _no_weights(named, f"it is a {type(weights).__name__}, neither a WeightsEnum's member nor a function")
    try:
        file = Path(weights())
    except Exception as error:  # somebody's package: it may raise anything
        raise _no_weights(named, f"calling it without arguments: {type(error).__name__}: {error}") from error
    mend = f"run: {install} --force-reinstall"
    if not file.is_file():
        hint = f"{mend}; or {_ALTERNATIVES}"
        raise EdgeqError(f"{named} gave {file}", "there is no such file", hint, code="no-pretrained")
    _check_hash(file, mend)
    return file


def _no_weights(named: str, why: str) -> EdgeqError:
    return EdgeqError(
        f"{named} gives no weights",
        why,
        "correct weights under [source] in model.toml: a WeightsEnum's member, or a function that gives a file's path",
        code="bad-source",
    )


def _get(weights: Any, file: Path) -> Mapping[str, torch.Tensor]:
    if file.exists():
        _check_hash(file, f"delete {file} and run again")
    state: Mapping[str, torch.Tensor] = weights.get_state_dict(
        progress=sys.stderr.isatty(), check_hash=True, weights_only=True, map_location="cpu"
    )
    return state


def _cached_file(weights: Any) -> Path:
    """Where torch keeps the file (``torch.hub.load_state_dict_from_url``)."""
    import torch

    return Path(torch.hub.get_dir()) / "checkpoints" / Path(urllib.parse.urlparse(weights.url).path).name


def _check_hash(file: Path, mend: str) -> None:
    """torch checks the hash in a file's name only while it downloads it, not when it finds the file in its cache."""
    import torch

    match = torch.hub.HASH_REGEX.search(file.name)
    if match and not sha256_file(file).startswith(match.group(1)):
        raise EdgeqError(
            f"{file} is not what its name promises",
            f"its sha256 does not begin with {match.group(1)}: a broken or altered download",
            f"{mend}, or {_ALTERNATIVES}",
            code="bad-download",
        )


def _watched(
    get: Callable[[], Mapping[str, torch.Tensor]], file: Path, timeout_s: float, url: str
) -> Mapping[str, torch.Tensor]:
    """Runs ``get`` in a thread and gives up when it makes no progress.

    A thread, because no socket timeout covers name resolution, nor a server that sends a byte now and then. One that is
    given up ends with the process.
    """
    outcome: list[Mapping[str, torch.Tensor] | BaseException] = []
    thread = threading.Thread(target=_keep_outcome, args=(get, outcome), name="weights-download", daemon=True)
    thread.start()
    before = _bytes_beside(file)
    while not outcome:
        thread.join(timeout_s)
        now = _bytes_beside(file)
        if not outcome and not file.exists() and now - before < _LEAST_BYTES:
            raise _unreachable(url, f"next to nothing arrived for {timeout_s:g} s")
        before = now
    return _result(outcome[0], file, url)


def _keep_outcome(
    get: Callable[[], Mapping[str, torch.Tensor]], outcome: list[Mapping[str, torch.Tensor] | BaseException]
) -> None:
    try:
        outcome.append(get())
    except BaseException as error:  # Whatever it is, it is the waiting thread's to raise.
        outcome.append(error)


def _result(outcome: Mapping[str, torch.Tensor] | BaseException, file: Path, url: str) -> Mapping[str, torch.Tensor]:
    if not isinstance(outcome, BaseException):
        return outcome
    if isinstance(outcome, _NETWORK_ERRORS):
        raise _unreachable(url, str(outcome) or type(outcome).__name__) from outcome
    if isinstance(outcome, OSError):
        raise write_error(file, outcome) from outcome
    if isinstance(outcome, _BROKEN_FILE_ERRORS):
        raise EdgeqError(
            f"the download of {url} is broken",
            str(outcome).splitlines()[0] if str(outcome) else type(outcome).__name__,
            f"delete {file} if it is there and run again, or {_ALTERNATIVES}",
            code="bad-download",
        ) from outcome
    raise outcome


def _unreachable(url: str, why: str) -> EdgeqError:
    return EdgeqError(f"cannot download {url}", why, f"{_ALTERNATIVES}; or try again with a network", code="no-network")


def _bytes_beside(file: Path) -> int:
    """Bytes of all files in torch's cache: a growing partial file, whatever torch calls it, is progress."""
    total = 0
    for path in file.parent.glob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


@contextlib.contextmanager
def _socket_timeout(timeout_s: float) -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(timeout_s)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


@contextlib.contextmanager
def _quiet_stdout() -> Iterator[None]:
    """torch announces a download on stdout, where ``--json`` needs to be alone: it goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        yield
