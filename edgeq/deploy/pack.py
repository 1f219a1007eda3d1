"""``edgeq bundle``: one file that a device needs nothing but Python to unpack and check."""

from __future__ import annotations

import hashlib
import io
import json
import stat
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from edgeq import __version__
from edgeq.backends import REGISTRY
from edgeq.deploy import unpack
from edgeq.deploy.checkout import build_wheel, checkout, requirements
from edgeq.deploy.contents import SAMPLES, BundleRequest, Contents, Item, Progress, add_artifacts, add_samples
from edgeq.deploy.loadgen import Watcher, packed
from edgeq.deploy.wheels import wheels
from edgeq.files import atomic_path
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

_HERE = Path(__file__).parent
#: Python reads what lies before a zip only where the zip's end is missing: this is then the line that its error shows.
_PREFIX = b"#!/usr/bin/env python3\n# coding: latin-1\nthis bundle is not whole, copy it again: "
#: Bytes of the largest zip that any Python runs; larger ones only 3.13 and later (zipimport and ZIP64).
MOST_RUNNABLE = (1 << 32) - (1 << 20)
_DATE = (1980, 1, 1, 0, 0, 0)
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Bundle:
    """What was written."""

    path: Path
    listing: str
    notes: tuple[Note, ...]

    @property
    def start(self) -> str:
        """What to type on the device, where the file lies, to unpack it."""
        if self.path.stat().st_size < MOST_RUNNABLE:
            return f"python3 {self.path.name}"
        read = f"zipfile.ZipFile('{self.path.name}').read('{unpack.MAIN}')"
        return f'python3 -c "import zipfile; exec({read})" --bundle {self.path.name}'


def make_bundle(request: BundleRequest, out: Path, on_progress: Progress, on_step: Watcher) -> Bundle:
    """Packs what a device of ``request.target`` runs the artifacts with into ``out``. The same files give the same bundle.

    Raises:
        RequestError: nothing is exported, or a name can't be used.
        EdgeqError: edgeq does not run from a checkout, an artifact is damaged, or ``out`` can't be written.
    """
    root = checkout()
    contents = Contents()
    request = replace(request, models=add_artifacts(contents, request))
    add_samples(contents, request, on_progress)
    extras = [*(REGISTRY[backend].extra for backend in request.backends), "report"]
    lines = requirements(root, extras, request.machine)
    with tempfile.TemporaryDirectory(prefix="edgeq-bundle-") as scratch:
        loadgen, notes = packed(request.target, on_step)
        contents.notes += notes
        on_step("edgeq's wheel")
        for path in [*loadgen, build_wheel(root, Path(scratch))]:
            contents.add(f"wheels/{path.name}", "edgeq and LoadGen", path)
        for python in request.wheels:
            on_step(f"wheels for Python {python}")
            for path in wheels(lines, python, request.machine):
                contents.add(f"wheels/{path.name}", "wheels of all else", path)
        for name, text in (("requirements.txt", "\n".join(lines) + "\n"), ("README.txt", _readme(request))):
            contents.add(name, "edgeq", text.encode())
        contents.add("constraints.txt", "edgeq", root / "constraints.txt")
        contents.add("attend.py", "edgeq", _HERE / "attend.py")
        contents.add("run.sh", "edgeq", _HERE / "run.sh", 0o755)
        index, members = _write(out, request, list(contents.items.values()))
    return Bundle(out, unpack.listing(index, members), tuple(contents.notes))


def _readme(request: BundleRequest) -> str:
    dataset = f" --dataset {SAMPLES}" if request.dataset else ""
    return (
        f"edgeq {__version__} for {request.target}: {', '.join(request.models)}.\n"
        f"./run.sh{dataset} sets up once (a venv in .venv), then doctor, run, report; ./run.sh run --help has the options.\n"
        "./run.sh run --resume goes on after an interruption; records are in results/, tables in results/report/.\n"
        "EDGEQ_PYTHON=/path/to/python ./run.sh setup uses an environment that is there, and installs nothing.\n"
        "A newer bundle is unpacked over this one; results/ and .venv/ stay.\n"
    )


def _write(out: Path, request: BundleRequest, items: list[Item]) -> tuple[dict[str, object], list[unpack.Member]]:
    """Large files first, in an order that stays: where only edgeq's code changed, rsync finds all before it in place.

    Raises:
        EdgeqError: a name that the unpacker would refuse (code ``bad-name``), or ``out`` can't be written.
    """
    members: list[unpack.Member] = []
    index: dict[str, object] = {
        "schema": unpack.SCHEMA, "name": request.name, "target": request.target, "machine": request.machine,
        "edgeq": __version__, "models": list(request.models), "backends": list(request.backends),
        "schemes": list(request.schemes), "profiles": list(request.profiles),
        "dataset": str(request.dataset) if request.dataset else None,
    }  # fmt: skip
    with atomic_path(out) as temporary, temporary.open("wb") as stream:
        stream.write(_PREFIX)
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            for item in items:
                try:
                    unpack.check_name(item.name)
                except unpack.BadBundle as error:
                    raise EdgeqError(error.what, error.why, "give it another name", code="bad-name") from error
                members.append(_add(archive, item))
            index["members"] = [member._asdict() for member in members]
            _add(archive, Item(unpack.MAIN, "", (_HERE / "unpack.py").read_bytes()))
            _add(archive, Item(unpack.INDEX, "", (json.dumps(index, indent=1) + "\n").encode()))
    return index, members


def _add(archive: zipfile.ZipFile, item: Item) -> unpack.Member:
    """Copies a file into the archive, block by block, hashing what is written."""
    info = zipfile.ZipInfo(item.name, _DATE)
    info.create_system, info.external_attr, info.file_size = 3, (stat.S_IFREG | item.mode) << 16, item.size
    digest, count = hashlib.sha256(), 0
    with _open(item) as source, archive.open(info, "w") as sink:
        for block in _blocks(source):
            digest.update(block)
            count += len(block)
            sink.write(block)
    return unpack.Member(item.name, count, digest.hexdigest(), item.mode, item.part)


def _open(item: Item) -> BinaryIO:
    return io.BytesIO(item.source) if isinstance(item.source, bytes) else item.source.open("rb")


def _blocks(source: BinaryIO) -> Iterable[bytes]:
    while block := source.read(_CHUNK):
        yield block
