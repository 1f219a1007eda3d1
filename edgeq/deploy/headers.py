"""Python's C headers for another architecture: Debian's own packages, unpacked, nothing installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from edgeq.files import cache_dir, write_text
from edgeq.spec.errors import EdgeqError

#: Target → Debian's name of the architecture, and the triplet of its compiler.
DEBIAN = {"aarch64": ("arm64", "aarch64-linux-gnu")}

#: Python → the Debian release that carries it: what 64-bit Raspberry Pi OS is made of since 2023 and since 2025.
RELEASES = {"3.11": "bookworm", "3.13": "trixie"}

_SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d")
_WHOLE = ".whole"


def python_headers(python: str, target: str) -> Path:
    """The folder ``include`` with ``python3.x/Python.h`` for ``target``; downloaded once, then kept in the cache.

    Taken from ``libpython3.x-dev`` of the Debian release that carries this Python, by ``apt-get`` with lists of its own,
    so that it needs no privileges and changes nothing of this machine's.

    Args:
        python: Such as ``3.11``.
        target: A key of ``DEBIAN``.

    Raises:
        EdgeqError: no Debian release carries this Python, apt is not there, or it can't be had (code ``no-headers``).
    """
    architecture, triplet = DEBIAN[target]
    folder = cache_dir() / "headers" / f"python{python}-{architecture}"
    include = folder / "usr/include"
    if (folder / _WHOLE).is_file():
        return include
    if python not in RELEASES:
        raise _no_headers(python, f"none of {', '.join(RELEASES.values())} carries Python {python}")
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise _no_headers(python, "they come as Debian packages, and this machine has no apt-get")
    shutil.rmtree(folder, ignore_errors=True)
    packages = _download(folder, python, architecture)
    for package in packages:
        _call(["dpkg-deb", "--extract", str(package), str(folder)], python)
    if not (include / f"python{python}/Python.h").is_file() or not (include / triplet / f"python{python}").is_dir():
        raise _no_headers(python, f"{', '.join(package.name for package in packages)} hold no Python.h for {target}")
    write_text(folder / _WHOLE, "")
    return include


def _download(folder: Path, python: str, architecture: str) -> list[Path]:
    state = folder / "apt"
    for each in ("lists/partial", "cache/archives/partial", "sources.list.d", "packages"):
        (state / each).mkdir(parents=True, exist_ok=True)
    write_text(state / "sources.list", "".join(f"{line}\n" for line in _sources(RELEASES[python])))
    write_text(state / "status", "")
    apt = [
        "apt-get", "-qq",
        "-o", f"Dir::Etc::sourcelist={state / 'sources.list'}",
        "-o", f"Dir::Etc::sourceparts={state / 'sources.list.d'}",
        "-o", f"Dir::State::lists={state / 'lists'}",
        "-o", f"Dir::State::status={state / 'status'}",
        "-o", f"Dir::Cache={state / 'cache'}",
        "-o", f"APT::Architecture={architecture}",
        "-o", f"APT::Architectures={architecture}",
        "-o", "Acquire::Languages=none",
    ]  # fmt: skip
    _call([*apt, "update"], python)
    _call([*apt, "download", f"libpython{python}-dev"], python, cwd=state / "packages")
    return sorted((state / "packages").glob("*.deb"))


def _sources(release: str) -> Iterator[str]:
    """This machine's own Debian archive, as a line of ``sources.list`` for another release; nothing where it has none."""
    for entry in _entries():
        if line := re.match(r"deb\s+(?:\[(?P<options>[^]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s", entry):
            options, uri, suite = line["options"], line["uri"], line["suite"]
        else:
            fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.+)$", entry, re.MULTILINE))
            uri, suite = (fields.get(name, "").split(" ")[0] for name in ("URIs", "Suites"))
            key = fields.get("Signed-By", "")
            options = f"signed-by={key}" if key.startswith("/") else None
        if uri and suite in RELEASES.values():
            yield f"deb [{options}] {uri} {release} main" if options else f"deb {uri} {release} main"
            return


def _entries() -> Iterator[str]:
    """Lines of ``*.list`` files, paragraphs of ``*.sources`` files."""
    for place in map(Path, _SOURCES):
        for file in sorted(place.iterdir()) if place.is_dir() else [place]:
            if file.is_file() and file.suffix in (".list", ".sources"):
                text = file.read_text(encoding="utf-8", errors="replace")
                yield from text.splitlines() if file.suffix == ".list" else re.split(r"\n\s*\n", text)


def _call(command: list[str], python: str, cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise _no_headers(python, f"{' '.join(command[:1] + command[-2:])}: {said}")


def _no_headers(python: str, why: str) -> EdgeqError:
    return EdgeqError(
        f"no C headers of Python {python} for another architecture",
        why,
        "without them LoadGen is built on the device (sudo apt install g++ python3-dev there)",
        code="no-headers",
    )
