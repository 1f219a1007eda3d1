"""The ``__main__.py`` of a bundle: ``python3 edgeq-aarch64.pyz [DIR]`` unpacks it, ``--list`` shows what is in it.

Packed as it is, so it knows the standard library alone, and is written for Python 3.9 although edgeq needs a newer one:
an old Python must still be able to read it, and to say that it is too old.

Nothing is put in its place before everything was read, hashed and found to be what ``bundle.json`` says.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

INDEX, MAIN, SUMS = "bundle.json", "__main__.py", "SHA256SUMS"
SCHEMA = 1
#: What edgeq needs; a test holds it equal to pyproject.toml.
PYTHON = (3, 11)
MODES = (0o644, 0o755)
#: Folders of an unpacked bundle that are the device's own: no bundle writes there.
KEPT = ("results", ".venv", ".state")
#: Bytes to leave free on the disk.
SPARE = 32 << 20
_CHUNK = 1 << 20
#: What zipfile raises on bytes that are no archive's, or no more. Some offsets of a damaged one can't be sought to.
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError)
_AGAIN = "copy it again (make deploy, or rsync, sends only what differs), then unpack again"
_UNSAFE = "do not use this bundle: make it anew with edgeq bundle"


class BadBundle(Exception):
    """What went wrong, why, and what to do: three lines for the user, without a traceback."""

    def __init__(self, what: str, why: str, hint: str) -> None:
        super().__init__(f"{what}: {why}")
        self.what, self.why, self.hint = what, why, hint


class Member(NamedTuple):
    """A file of the bundle; ``name`` is relative to the folder it is unpacked to, ``part`` is what it belongs to."""

    name: str
    bytes: int
    sha256: str
    mode: int
    part: str


def check_name(name: Any) -> str:
    """``name``, where it can only lie inside the folder that it is joined to.

    Raises:
        BadBundle: absolute, ``..``, empty parts, backslashes, control characters, too long, or in a folder of ``KEPT``.
    """
    why = "it would not lie safely in its own folder"
    if isinstance(name, str) and name.isprintable() and "\\" not in name and len(os.fsencode(name)) <= 2048:
        parts = name.split("/")
        if all(part not in ("", ".", "..") and len(os.fsencode(part)) <= 255 for part in parts):
            if parts[0] not in (*KEPT, INDEX, MAIN, SUMS):
                return name
            why = "that name is the device's own, or the unpacker's"
    raise BadBundle(f"the bundle names a file {name!r}", why, _UNSAFE)


def open_bundle(bundle: Path) -> zipfile.ZipFile:
    """The archive. Raises ``BadBundle`` where it can't be read, or is cut short."""
    try:
        return zipfile.ZipFile(bundle)
    except _DAMAGED as error:
        if isinstance(error, OSError) and not bundle.is_file():
            raise BadBundle(f"cannot read {bundle}", error.strerror or str(error), "check its name") from error
        why = f"{bundle.stat().st_size:,} bytes, and no list of contents at their end ({error})"
        raise BadBundle(f"{bundle} is not whole", why, _AGAIN) from error


def read_index(archive: zipfile.ZipFile) -> tuple[dict[str, Any], list[Member]]:
    """``bundle.json`` and its members, once names, kinds, sizes and modes agree with the archive's own directory.

    Raises:
        BadBundle: they do not; a name is unsafe, twice there, a link, a folder, or in one of the two lists alone.
    """
    try:
        index = json.loads(archive.read(INDEX).decode("utf-8"))
        listed = [Member(*(each[field] for field in Member._fields)) for each in index["members"]]
        name, schema = str(index["name"]), index["schema"]
    except (*_DAMAGED, KeyError, TypeError) as error:
        raise BadBundle(f"the bundle's {INDEX} can't be read", f"{type(error).__name__}: {error}", _AGAIN) from error
    if schema != SCHEMA:
        raise BadBundle(f"the bundle has schema {schema}", f"this unpacker reads {SCHEMA}", _UNSAFE)
    if "/" in check_name(name):
        raise BadBundle(f"the bundle is called {name!r}", "that is no folder's name", _UNSAFE)
    names = {check_name(member.name) for member in listed}
    for inner in names:
        if any("/".join(inner.split("/")[:depth]) in names for depth in range(1, inner.count("/") + 1)):
            raise BadBundle(f"the bundle names a file {inner!r}", "what it lies in is a file, too", _UNSAFE)
    found, expected = sorted(archive.namelist()), sorted([*(member.name for member in listed), INDEX, MAIN])
    if found != expected:
        odd = next(each for each in [*found, *expected] if found.count(each) != 1 or expected.count(each) != 1)
        why = f"{odd!r} is not exactly once in both lists, the archive's and {INDEX}"
        raise BadBundle("the bundle holds other files than it says", why, _UNSAFE)
    for member in listed:
        _check_entry(archive.getinfo(member.name), member)
    return index, listed


def _check_entry(info: zipfile.ZipInfo, member: Member) -> None:
    mode = info.external_attr >> 16
    if stat.S_IFMT(mode) != stat.S_IFREG or info.compress_type != zipfile.ZIP_STORED:
        raise BadBundle(f"{member.name!r} is not a plain file", "it is a link, or packed in another way", _UNSAFE)
    if member.mode not in MODES or stat.S_IMODE(mode) != member.mode or info.file_size != member.bytes:
        raise BadBundle(f"{member.name!r} is not what the bundle says", f"mode or size differ from {INDEX}'s", _UNSAFE)


def unpack(bundle: Path, into: Path) -> Path:
    """Unpacks ``bundle`` to ``into/<its name>``, and returns that folder.

    A new folder appears whole, by one rename. In one that is there, the files of the earlier bundle are replaced one by
    one, or removed where the new bundle lacks them; all else (records, the environment, what was tuned) stays. Interrupted
    in between, it is neither the old bundle nor the new: ``SHA256SUMS``, which ``run.sh`` checks first, says so.

    Raises:
        BadBundle: the bundle is damaged or unsafe, a run is at work in the folder, or the disk is full. Nothing has changed
            then, unless the disk failed while files were being replaced.
    """
    with open_bundle(bundle) as archive:
        index, members = read_index(archive)
        folder = into / str(index["name"])
        try:
            into.mkdir(parents=True, exist_ok=True)
            _check_place(folder, members)
            _check_space(into, sum(member.bytes for member in members))
            fresh = Path(tempfile.mkdtemp(dir=into, prefix=f".partial-{index['name']}-"))
            try:
                _extract(archive, members, fresh)
                fresh.chmod(0o755)
                _put_in_place(fresh, folder, members)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
        except OSError as error:
            raise _write_error(into, error) from error
    return folder


def _check_place(folder: Path, members: list[Member]) -> None:
    """Raises ``BadBundle`` where a link would lead out of ``folder``, or where a run is at work there."""
    parents = {
        folder.joinpath(*member.name.split("/")[:depth])
        for member in members
        for depth in range(member.name.count("/") + 1)
    }
    for parent in sorted(parents):
        if parent.is_symlink() or (parent.exists() and not parent.is_dir()):
            raise BadBundle(
                f"{parent} is a link or a file", "the bundle has a folder there", "move it away, then unpack again"
            )
    for lock in (*folder.glob("results/*/.lock"), *folder.glob(".state/lock")):  # edgeq run and attend.py hold them
        with lock.open() as held:
            try:
                fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                why = "a run is at work there, with the files to be replaced"
                raise BadBundle(f"{folder} is in use", why, "wait until it ends, then unpack again") from None


def _check_space(into: Path, needed: int) -> None:
    free = shutil.disk_usage(into).free
    if free < needed + SPARE:
        why = f"it takes {(needed + SPARE) / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are free"
        raise BadBundle(f"no room for the bundle in {into}", why, "free some space, then unpack again")


def _extract(archive: zipfile.ZipFile, members: list[Member], fresh: Path) -> None:
    """Writes all members to ``fresh``, which is empty; raises ``BadBundle`` at the first with other bytes than listed."""
    for member in members:
        target = fresh.joinpath(*member.name.split("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        digest, why = hashlib.sha256(), f"its sha256 is not the one that {INDEX} lists"
        with target.open("xb") as sink:
            try:
                for block in _blocks(archive, member.name):
                    digest.update(block)
                    sink.write(block)
            except Unreadable as error:
                digest, why = hashlib.sha256(b"damaged"), str(error)
            sink.flush()
            os.fsync(sink.fileno())
        if digest.hexdigest() != member.sha256:
            raise BadBundle(f"{member.name!r} is damaged in the bundle", why, _AGAIN)
        target.chmod(member.mode)
    (fresh / INDEX).write_bytes(archive.read(INDEX))
    (fresh / SUMS).write_text(_sums(members, archive.read(INDEX)), encoding="utf-8")


class Unreadable(Exception):
    """A member can't be read to its end."""


def _blocks(archive: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    try:
        with archive.open(name) as source:
            while block := source.read(_CHUNK):
                yield block
    except _DAMAGED as error:
        raise Unreadable(str(error)) from error


def _sums(members: list[Member], index: bytes) -> str:
    """What ``sha256sum --check`` reads: every file of the bundle but this one."""
    lines = [(member.sha256, member.name) for member in members]
    return "".join(f"{digest}  {name}\n" for digest, name in [*lines, (hashlib.sha256(index).hexdigest(), INDEX)])


def _put_in_place(fresh: Path, folder: Path, members: list[Member]) -> None:
    if not folder.exists():
        fresh.rename(folder)
        return
    old, new = _earlier(folder), [member.name for member in members]
    # The new sums come first, the new index last: a mixture is told by the sums, and what to remove is not forgotten.
    for name in [SUMS, *new, INDEX]:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(fresh / name, target)
    for name in old.difference(new):
        gone = folder / name
        if gone.is_file() and not any(parent.is_symlink() for parent in gone.parents if folder in parent.parents):
            gone.unlink()


def _earlier(folder: Path) -> set[str]:
    """The files of the bundle that was unpacked in ``folder`` before; none where nothing there says so."""
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        return {check_name(each["name"]) for each in index["members"]}
    except (OSError, KeyError, TypeError, ValueError, BadBundle):
        return set()


def _write_error(into: Path, error: OSError) -> BadBundle:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return BadBundle(f"cannot write to {into}", "the disk is full", "free some space, then unpack again")
    return BadBundle(
        f"cannot write to {error.filename or into}", error.strerror or str(error), "check who may write there"
    )


def listing(index: dict[str, Any], members: list[Member]) -> str:
    """What a bundle holds, part by part, with sizes in 10^6 bytes."""
    parts: dict[str, list[Member]] = {}
    for member in members:
        parts.setdefault(member.part, []).append(member)
    lines = []
    for part, held in parts.items():
        lines.append(f"{_megabytes(held)}  {part}")
        lines += [f"{_megabytes([member])}      {member.name}" for member in held]
    lines.append(f"{_megabytes(members)}  {index['name']}: {len(members)} files")
    return "\n".join(lines)


def _megabytes(members: list[Member]) -> str:
    return f"{sum(member.bytes for member in members) / 1e6:10.3f} MB"


def main(arguments: list[str]) -> int:
    """Exit code 0, or 1 with three lines on standard error."""
    itself = Path(sys.argv[0]).absolute()
    parser = argparse.ArgumentParser(prog=f"python3 {itself.name}", description="Unpacks this bundle of edgeq's.")
    # Before Python 3.13, none runs a zip of over 4 GiB; it is then told where the bundle is.
    parser.add_argument("--bundle", type=Path, default=itself, help=argparse.SUPPRESS)
    parser.add_argument("into", nargs="?", type=Path, metavar="DIR", help="where its folder is made; default: here")
    parser.add_argument("--list", action="store_true", help="show what is in it, with sizes; write nothing")
    asked = parser.parse_args(arguments)
    bundle = asked.bundle.absolute()
    try:
        if asked.list:
            with open_bundle(bundle) as archive:
                print(listing(*read_index(archive)))
            return 0
        if sys.version_info[:2] < PYTHON:
            _too_old(bundle)
        folder = unpack(bundle, asked.into or bundle.parent)
    except BadBundle as error:
        print(f"error: {error.what}\n  why: {error.why}\n  try: {error.hint}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    print(f"unpacked and checked: {folder}\nnext: {folder / 'run.sh'}")
    return 0


def _too_old(bundle: Path) -> NoReturn:
    here, needed = (".".join(map(str, each)) for each in (sys.version_info[:2], PYTHON))
    hint = f"use a newer system (Debian bookworm has 3.11), or: python{needed} {bundle.name}"
    raise BadBundle(f"Python {here} is too old", f"edgeq needs Python {needed} or newer", hint)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
