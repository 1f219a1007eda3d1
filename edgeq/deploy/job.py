"""``edgeq deploy``: look at the device, copy the bundle, unpack it, set it up. Each step may be repeated."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeq.deploy import unpack
from edgeq.deploy.rsync import Sent, send
from edgeq.deploy.ssh import Device, told
from edgeq.spec.errors import EdgeqError, RequestError

#: Shows a line to the user.
Say = Callable[[str], None]

#: Run there by ``sh -s``: what must be known before anything is copied. The newest of several unpacked bundles is meant.
_LOOK = r"""
dir=$1 python=$2
echo "machine=$(uname -m)"
echo "python=$("$python" -c 'import struct, sys
print("%d.%d.%d" % (sys.version_info[0], sys.version_info[1], struct.calcsize("P") * 8))' 2>/dev/null)"
echo "rsync=$(command -v rsync)"
there=$dir
while [ ! -d "$there" ]; do there=$(dirname -- "$there"); done
echo "free=$(df -Pk -- "$there" | awk 'NR == 2 { print $4 }')"
newest=$(ls -td -- "$dir"/edgeq-*/bundle.json 2>/dev/null | head -n 1)
echo "unpacked=$(dirname -- "${newest:-/}")"
for file in "$dir"/edgeq-*.pyz; do
    [ ! -f "$file" ] || echo "bytes:$(basename -- "$file")=$(wc -c <"$file" | tr -d ' ')"
done
"""


@dataclass(frozen=True)
class Look:
    """What a device is: ``python`` is its version and the bits of its pointers; None where a program is missing."""

    machine: str
    python: tuple[int, int, int] | None
    rsync: bool
    free: int
    unpacked: str | None
    """The folder of the newest bundle that was unpacked there."""
    copied: dict[str, int]
    """Bytes of each bundle that was copied there, wholly or in part."""


def look(device: Device, python: str = "python3") -> Look:
    """Asks the device. Raises ``EdgeqError`` where it can't be reached, or has no shell that answers."""
    done = device.run(["sh", "-s", "--", device.folder, python], _LOOK)
    said = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    if "free" not in said:
        raise told(device.address, done.stderr or done.stdout)
    version = [int(part) for part in said.get("python", "").split(".") if part.isdecimal()]
    return Look(
        machine=said.get("machine", ""),
        python=(version[0], version[1], version[2]) if len(version) == 3 else None,
        rsync=bool(said.get("rsync")),
        free=1024 * int(said["free"] or 0),
        unpacked=None if said.get("unpacked", "/") == "/" else said["unpacked"],
        copied={key.removeprefix("bytes:"): int(value) for key, value in said.items() if key.startswith("bytes:")},
    )


def find_bundle(machine: str, folder: Path = Path()) -> Path:
    """The bundle for a device of ``machine``, among those in ``folder``.

    Raises:
        RequestError: there is none (code ``no-bundle``), or several fit.
    """
    names = ("edgeq-aarch64.pyz",) if machine == "aarch64" else ("edgeq-x86_64.pyz", "edgeq-x86_64-vnni.pyz")
    found = [folder / name for name in names if (folder / name).is_file()]
    if len(found) == 1:
        return found[0]
    target = "aarch64" if machine == "aarch64" else "x86_64"
    if found:
        names_found = " and ".join(map(str, found))
        raise RequestError(
            f"both {names_found} are here", "either may be meant", "pass --bundle FILE", code="no-bundle"
        )
    raise RequestError(
        f"no bundle for {machine} in {folder.absolute()}", f"there is no {' or '.join(names)}",
        f"run: edgeq bundle --target {target}; or pass --bundle FILE", code="no-bundle",
    )  # fmt: skip


def deploy(device: Device, bundle: Path | None, python: str | None, say: Say) -> str:
    """Copies, unpacks and sets up a bundle; returns its folder on the device. What was done before is not done again.

    Args:
        bundle: By default the one for the device's CPU in the working folder.
        python: An environment on the device to use as it is, in place of one that is made from the bundle's list.

    Raises:
        RequestError: no bundle, or one for another CPU.
        EdgeqError: the device lacks something, or can't be reached. Typed again, it goes on where it stopped.
    """
    found = look(device, python or "python3")
    path = bundle or find_bundle(found.machine)
    index, size = _read(path)
    _check_fit(device, found, path, index, python or "python3")
    _check_room(device, found, path, size)
    _ok(device, ["mkdir", "-p", "--", device.folder])
    had = found.copied.get(path.name, 0)
    say(f"copying {path} ({path.stat().st_size / 1e6:.1f} MB) to {device.address}:{device.folder}/"
        + (f", where {had / 1e6:.1f} MB of it are" if had else ""))  # fmt: skip
    say(_words(send(device, path)))
    # This edgeq's unpacker, not the bundle's own: a Python before 3.13 could not start one of over 4 GiB.
    unpacking = [
        "sh",
        "-c",
        'cd -- "$1" && exec "$2" - --bundle "$3"',
        "sh",
        device.folder,
        python or "python3",
        path.name,
    ]
    done = _ok(device, unpacking, Path(unpack.__file__).read_text(encoding="utf-8"))
    say(done.splitlines()[0] if done else "unpacked")
    folder = f"{device.folder}/{index['name']}"
    choice = f"EDGEQ_PYTHON={shlex.quote(python)} " if python else ""
    device.show(["sh", "-c", f'cd -- "$1" && {choice}sh run.sh setup', "sh", folder], say)
    return folder


def _read(path: Path) -> tuple[dict[str, Any], int]:
    """A bundle's index, and how many bytes it unpacks to."""
    try:
        with unpack.open_bundle(path) as archive:
            index, members = unpack.read_index(archive)
    except unpack.BadBundle as error:
        raise RequestError(error.what, error.why, "make it anew: edgeq bundle", code="bad-bundle") from error
    return index, sum(member.bytes for member in members)


def _check_fit(device: Device, found: Look, path: Path, index: dict[str, Any], python: str) -> None:
    needed = ".".join(map(str, unpack.PYTHON))
    if found.machine != index["machine"]:
        raise RequestError(
            f"{path} is for {index['target']}", f"{device.address} is {found.machine}",
            f"run: edgeq bundle --target {'aarch64' if found.machine == 'aarch64' else 'x86_64'}", code="wrong-target",
        )  # fmt: skip
    if found.python is None:
        raise EdgeqError(
            f"no {python} on {device.address}", f"edgeq needs Python {needed} or newer",
            "there: sudo apt install python3 python3-venv; or pass --python PATH", code="no-tool",
        )  # fmt: skip
    if found.python[:2] < unpack.PYTHON:
        raise EdgeqError(
            f"{python} on {device.address} is Python {found.python[0]}.{found.python[1]}", f"edgeq needs {needed} or newer",
            "use a newer system there (Debian bookworm has 3.11), or pass --python PATH", code="old-python",
        )  # fmt: skip
    if found.python[2] != 64:
        raise EdgeqError(
            f"{device.address} has a system of {found.python[2]} bits", "the frameworks publish packages for 64 bits",
            "install a 64-bit system there (on a Raspberry Pi: the 64-bit Raspberry Pi OS)", code="unsupported-cpu",
        )  # fmt: skip
    if not found.rsync:
        raise EdgeqError(
            f"no rsync on {device.address}", "copies that can be resumed are rsync's work",
            f"run: ssh {device.address} sudo apt install rsync", code="no-tool",
        )  # fmt: skip


def _check_room(device: Device, found: Look, path: Path, unpacked: int) -> None:
    needed = max(0, path.stat().st_size - found.copied.get(path.name, 0)) + unpacked + unpack.SPARE
    if needed > found.free:
        raise EdgeqError(
            f"no room for the bundle on {device.address}",
            f"copied and unpacked it takes {needed / 1e6:,.0f} MB, and {found.free / 1e6:,.0f} MB are free there",
            f"free some space there, or pass another folder: --device-dir DIR (ssh {device.address} df -h)",
            code="disk-full",
        )


def _ok(device: Device, words: list[str], given: str = "") -> str:
    done = device.run(words, given)
    if done.returncode != 0:
        raise told(device.address, done.stderr or done.stdout)
    return done.stdout


def _words(sent: Sent) -> str:
    return f"copied: {sent.sent / 1e6:.1f} MB sent, {sent.there / 1e6:.1f} MB were there already"


def state(device: Device, folder: str) -> dict[str, Any]:
    """What ``attend.py state`` says of the last run in ``folder``."""
    said = attend(device, folder, "state")
    try:  # the last line: what comes before is what the user's shell says to everyone
        found: dict[str, Any] = json.loads(said.splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise told(device.address, said) from error
    return found


def attend(device: Device, folder: str, *words: str) -> str:
    """Runs ``attend.py`` in ``folder`` of the device; returns what it printed.

    Raises:
        EdgeqError: no connection, or no bundle there.
    """
    return _ok(device, attend_words(folder, *words))


def attend_words(folder: str, *words: str) -> list[str]:
    """The command line on the device."""
    script = 'cd -- "$1" && shift && exec "$(cat .state/python 2>/dev/null || echo python3)" attend.py "$@"'
    return ["sh", "-c", script, "sh", folder, *words]
