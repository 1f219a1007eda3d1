"""Copies to and from a device, by rsync over ssh."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeq.deploy.ssh import NO_CONNECTION, Device, connection_error, echo, present, to_terminal
from edgeq.spec.errors import EdgeqError

#: rsync's exit codes (rsync(1)): those of a link that broke, and of files that were gone before they were read.
_BROKEN = (NO_CONNECTION, 10, 12, 30, 35)
_VANISHED = 24


@dataclass(frozen=True)
class Sent:
    """Bytes of a file that went over the link, and that the device had already."""

    sent: int
    there: int


def send(device: Device, bundle: Path) -> Sent:
    """Copies ``bundle`` into the device's folder, which must exist; one that was interrupted goes on where it stopped.

    ``--inplace``: what arrives is written to its place, so that it is there to be built on whatever ends the copy, and
    the card needs no room for a second one. ``--ignore-times``: what is there is always compared, block by block by its
    checksum, and only what differs is sent; a file of the same size and date may be damaged. Not ``--append-verify``,
    which leaves a file as it is that is as long as the new one, or longer: an earlier bundle often is.

    Raises:
        EdgeqError: the connection failed or broke, the disk there is full, or rsync is missing.
    """
    options = ["--inplace", "--ignore-times", "--info=progress2", "--stats"]
    try:
        said = _rsync(device, [*options, str(bundle), f"{device.address}:{device.folder}/{bundle.name}"], _to_user)
    finally:
        if sys.stderr.isatty():
            to_terminal(b"\n")
    return Sent(_figure(said, "Literal data"), _figure(said, "Matched data"))


def bring(device: Device, folder: str, into: Path) -> None:
    """Makes ``into`` what is below ``folder`` of the device; only what is new is sent. Each file that appears is whole.

    At the lowest priority there, because a run may be at work. Files that it makes or removes meanwhile are left out.

    Raises:
        EdgeqError: as ``send``.
    """
    into.mkdir(parents=True, exist_ok=True)
    left_out = ["--exclude=.partial-*", "--exclude=.lock", "--exclude=/report/"]
    options = ["--recursive", "--times", "--delete", "--rsync-path=nice -n 19 rsync", *left_out]
    _rsync(device, [*options, f"{device.address}:{folder}/", f"{into}/"], lambda _: None)


def _rsync(device: Device, arguments: Sequence[str], show: Callable[[bytes], None]) -> str:
    command = ["rsync", "--protect-args", "--timeout=120", "-e", device.remote_shell, *arguments]
    with present("rsync"), tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints)
        said = bytearray()

        def take(block: bytes) -> None:
            said.extend(block)
            show(block)

        assert process.stdout is not None
        echo(process.stdout, take)
        code = process.wait()
        complaints.seek(0)
        complaint = complaints.read().decode(errors="replace")
    if code not in (0, _VANISHED):
        raise _failure(device, code, complaint)
    return said.decode(errors="replace")


def _to_user(block: bytes) -> None:
    """The progress, a line that is written over; not the statistics after it."""
    if sys.stderr.isatty() and b"%" in block:
        to_terminal(block.partition(b"\n")[0])


def _figure(said: str, name: str) -> int:
    found = re.search(rf"{name}: ([\d,.]+)", said)
    return int(re.sub(r"\D", "", found[1])) if found else 0


def _failure(device: Device, code: int, complaint: str) -> EdgeqError:
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    why = next(
        (line for line in lines if line.startswith("rsync:")), lines[-1] if lines else f"rsync ended with {code}"
    )
    if "No space left" in complaint or "Disk quota" in complaint:
        hint = f"free some space there, then type the same command again: ssh {device.address} df -h"
        return EdgeqError(f"the disk of {device.address} is full", why, hint, code="disk-full")
    if re.search(r"rsync: (command )?not found|rsync: No such file", complaint):
        return EdgeqError(f"no rsync on {device.address}", why, "there: sudo apt install rsync", code="no-tool")
    if code in _BROKEN:
        return connection_error(device.address, complaint)
    return EdgeqError(f"rsync failed with {device.address}", why, f"look there: ssh {device.address}", code="rsync")
