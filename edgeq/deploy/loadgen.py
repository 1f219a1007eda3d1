"""MLPerf LoadGen for a device: no wheel of it is published for ARM, so one is built here by a cross compiler, and kept."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from edgeq.deploy.headers import DEBIAN, RELEASES, python_headers
from edgeq.deploy.pip import pip, telling
from edgeq.files import cache_dir
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

#: The distribution, and what its sdist asks for to be built; a device that builds it gets these along.
NAME, BUILDERS = "mlcommons-loadgen", ("setuptools", "wheel", "pybind11==2.11.1")

_NOT_BUILT, _COMPILER = "LoadGen could not be built", "check the compiler, then run the same command again"

#: Told what is being done: it takes a minute or two.
Watcher = Callable[[str], None]


def packed(target: str, watcher: Watcher) -> tuple[list[Path], list[Note]]:
    """What a bundle carries of LoadGen: its sdist with what builds it, and a wheel for each Python of ``RELEASES``.

    Returns:
        The files, and for each wheel that could not be had a note of why: the device then builds it. Nothing for x86-64,
        for which wheels are published.

    Raises:
        EdgeqError: the sdist can't be had (code ``no-loadgen``).
    """
    if target not in DEBIAN:
        return [], []
    version = metadata.version(NAME)
    watcher("LoadGen's source")
    files, notes = [sdist(version), *builders()], []
    for python in RELEASES:
        try:
            watcher(f"LoadGen for Python {python} on {target} (a minute or two, once)")
            files.append(wheel(version, python, target))
        except EdgeqError as error:
            text = f"the bundle has no LoadGen built for Python {python}: {error.what}: {error.why}"
            notes.append(Note(code=error.code, text=text, hint=error.hint))
    return files, notes


def sdist(version: str) -> Path:
    """LoadGen's source, from the package index or as it was kept. Raises ``EdgeqError`` (code ``no-loadgen``)."""
    folder = cache_dir() / "wheels" / "source"
    asked = ["--no-binary", NAME, f"{NAME}=={version}"]
    return _had(folder, f"mlcommons_loadgen-{version}.tar.gz", asked)[0]


def builders() -> list[Path]:
    """Wheels, of any platform, of what the sdist is built with. Raises ``EdgeqError`` (code ``no-loadgen``)."""
    return _had(cache_dir() / "wheels" / "builders", "*.whl", ["--only-binary", ":all:", *BUILDERS])


def _had(folder: Path, pattern: str, asked: Sequence[str]) -> list[Path]:
    if not list(folder.glob(pattern)):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-") as temporary:
            pip(
                ["download", "--no-deps", "--dest", temporary, *asked],
                what="the source of LoadGen can't be had", hint="check the network, then run the same command again",
                code="no-loadgen",
            )  # fmt: skip
            folder.mkdir(exist_ok=True)
            for file in Path(temporary).iterdir():
                file.replace(folder / file.name)
    return sorted(folder.glob(pattern))


def wheel(version: str, python: str, target: str) -> Path:
    """LoadGen's wheel for one Python, cross-compiled from the sdist (a minute and a half), or as it was kept.

    It is tagged by the C library that its symbols ask for, so that pip on an older device refuses it.

    Args:
        version: Of LoadGen.
        python: Such as ``3.11``.
        target: A key of ``DEBIAN``.

    Raises:
        EdgeqError: no cross compiler (code ``no-cross-compiler``), no headers (``no-headers``), no source
            (``no-loadgen``), or the build fails (``build-failed``).
    """
    tag = f"cp{python.replace('.', '')}"
    folder = cache_dir() / "wheels"
    kept = sorted(folder.glob(f"mlcommons_loadgen-{version}-{tag}-{tag}-*_{target}.whl"))
    if kept:
        return kept[0]
    triplet = DEBIAN[target][1]
    compiler = shutil.which(f"{triplet}-g++")
    if compiler is None:
        raise EdgeqError(
            f"LoadGen can't be built for {target} here",
            f"there is no {triplet}-g++",
            f"run: sudo apt install g++-{triplet} (or build it on the device: sudo apt install g++ python3-dev there)",
            code="no-cross-compiler",
        )
    environment = _environment(compiler, triplet, python, target, python_headers(python, target))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as temporary:
        source = sdist(version)
        pip(
            ["wheel", "--no-deps", "--wheel-dir", temporary, str(source)],
            what=_NOT_BUILT, hint=_COMPILER, code="build-failed", environment=environment,
        )  # fmt: skip
        (built,) = Path(temporary).glob("*.whl")
        tagged = _retag(built, tag, target)
        return tagged.replace(folder / tagged.name)


def _environment(compiler: str, triplet: str, python: str, target: str, include: Path) -> dict[str, str]:
    """What makes setuptools compile for another machine: its compiler, its headers before ours, its file names."""
    command = f"{compiler} -I{include / f'python{python}'} -I{include}"
    # The device's own libstdc++ may be older than the compiler's, so it is linked in; and kept to itself, or the one that
    # torch brings takes some of its symbols, and streams refuse to print numbers (LoadGen's log ended in its first line).
    link = f"{compiler} -shared -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL"
    return {
        "CC": command,
        "CXX": command,
        "LDSHARED": link,
        "LDCXXSHARED": link,
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{python.replace('.', '')}-{triplet}.so",
        "_PYTHON_HOST_PLATFORM": f"linux-{target}",
    }


def _retag(built: Path, python_tag: str, target: str) -> Path:
    with zipfile.ZipFile(built) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".so"))
        library = archive.read(name)
    major, minor = newest_glibc(library)
    tags = [
        "--python-tag",
        python_tag,
        "--abi-tag",
        python_tag,
        "--platform-tag",
        f"manylinux_{major}_{minor}_{target}",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "wheel", "tags", "--remove", *tags, str(built)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise EdgeqError(_NOT_BUILT, telling(done.stderr or done.stdout), _COMPILER, code="build-failed")
    return built.with_name(done.stdout.split()[-1])


def newest_glibc(library: bytes) -> tuple[int, int]:
    """The newest version of glibc whose symbols an ELF file asks for, (2, 17) at least: what manylinux tags begin with."""
    found = re.findall(rb"GLIBC_(\d+)\.(\d+)", library)
    return max([(2, 17), *((int(major), int(minor)) for major, minor in found)])
