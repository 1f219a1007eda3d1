"""Files that are whole or absent: atomic writes, content hashes, and a full disk said in words."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgeq.spec.errors import EdgeqError

_CHUNK = 1 << 20


def cache_dir() -> Path:
    """Where edgeq keeps what is worth keeping: ``$EDGEQ_CACHE``, else ``$XDG_CACHE_HOME/edgeq``, else ``~/.cache/edgeq``."""
    if own := os.environ.get("EDGEQ_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "edgeq"


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Gives a temporary path beside ``path``; renames it to ``path`` on success, removes it on any failure.

    The temporary name keeps the suffix, because several tools choose the format by it.

    Raises:
        EdgeqError: the disk is full or the folder can't be written (code ``disk-full`` or ``cannot-write``).
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".partial-", suffix=path.suffix)
    except OSError as error:
        raise write_error(path, error) from error
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text atomically. Raises ``EdgeqError`` as ``atomic_path`` does."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes strict JSON (no NaN) atomically. Raises ``EdgeqError`` as ``atomic_path`` does."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_error(path: Path, error: OSError) -> EdgeqError:
    """An ``OSError`` while writing ``path``, as the user's error."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return EdgeqError(
            f"cannot write {path}",
            "the disk is full",
            "free some space, then run the same command again (with --resume for a run): what is finished is kept",
            code="disk-full",
        )
    return EdgeqError(
        f"cannot write {path}",
        error.strerror or str(error),
        f"check that {path.parent} can be written",
        code="cannot-write",
    )


@contextlib.contextmanager
def only_one(folder: Path, what: str) -> Iterator[None]:
    """Holds the lock of ``folder`` (made where missing) while inside.

    Raises:
        EdgeqError: another process holds it (code ``busy``), or the folder can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise write_error(folder, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise EdgeqError(
                f"{folder} is in use",
                f"another {what} is at work there",
                "wait until it ends, then try again",
                code="busy",
            ) from error
        yield


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes, read in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_CHUNK):
            digest.update(block)
    return digest.hexdigest()


def sha256_json(value: Any) -> str:
    """Hex SHA-256 of a JSON value, independent of key order."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
