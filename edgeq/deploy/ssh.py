"""A device that is reached by ssh: commands on it, and what can go wrong, in three lines."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from edgeq.spec.errors import EdgeqError, RequestError

#: ssh's own exit code where the connection is the matter; everything else is the command's.
NO_CONNECTION = 255
#: A dead link is noticed after a minute. ssh takes the first value that it is given: the user's own come before.
_PATIENCE = ("-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4")


class LostConnection(EdgeqError):
    """The device can't be reached, or no more: the same command may work later."""


@dataclass(frozen=True)
class Device:
    """``address`` as ssh takes it; ``folder`` on the device, from the user's home; ``program``: ssh and its options."""

    address: str
    folder: str
    program: tuple[str, ...] = ("ssh",)

    @classmethod
    def parse(cls, address: str, folder: str, program: str) -> Device:
        """Reads what the options hold.

        Raises:
            RequestError: an address that ssh would take for an option, an empty folder, or unbalanced quotes.
        """
        if not re.fullmatch(r"[^\s:'\"-][^\s:'\"]*", address) or address.endswith("@"):
            raise RequestError(
                f"--device {address!r} is not an address", "it is written as for ssh: user@host, or a name of ~/.ssh/config",
                "pass --device pi@raspberrypi.local; a port goes into --ssh 'ssh -p 2222'",
            )  # fmt: skip
        try:
            words = tuple(shlex.split(program))
        except ValueError:
            words = ()
        if not words or not folder or folder.startswith("-"):
            raise RequestError(
                f"--ssh {program!r} with --device-dir {folder!r}", "a program with its options, and a folder on the device",
                "pass --ssh 'ssh -p 2222 -i key' --device-dir edgeq",
            )  # fmt: skip
        return cls(address, folder, words)

    @property
    def remote_shell(self) -> str:
        """For rsync's ``-e``."""
        return shlex.join([*self.program, *_PATIENCE])

    def command(self, words: Sequence[str]) -> list[str]:
        """The command line, here, of ``words`` on the device; its shell sees each word as it is."""
        return [*self.program, *_PATIENCE, self.address, shlex.join(words)]

    def run(self, words: Sequence[str], given: str = "") -> subprocess.CompletedProcess[str]:
        """Runs ``words`` on the device with ``given`` on its standard input; what it prints is kept apart.

        Raises:
            EdgeqError: the connection failed (see ``connection_error``). The command's own exit code is the caller's matter.
        """
        with present(self.program[0]):
            done = subprocess.run(
                self.command(words), input=given, capture_output=True, text=True, errors="replace", check=False
            )
        if done.returncode == NO_CONNECTION:
            raise connection_error(self.address, done.stderr)
        return done

    def show(self, words: Sequence[str], say: Callable[[str], None]) -> None:
        """Runs ``words`` on the device and shows each line that it prints as it comes.

        Raises:
            EdgeqError: as ``run``; or it failed, with the three lines that it ended with.
        """
        with present(self.program[0]):
            process = subprocess.Popen(
                self.command(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, errors="replace",
            )  # fmt: skip
        lines: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if not lines[-1].startswith(("error: ", "  why: ", "  try: ")):
                say(lines[-1])
        if process.wait() == NO_CONNECTION:
            raise connection_error(self.address, "\n".join(lines))
        if process.returncode != 0:
            raise told(self.address, "\n".join(lines))


@contextlib.contextmanager
def present(program: str) -> Iterator[None]:
    """Turns the absence of a program on this machine into three lines."""
    try:
        yield
    except (FileNotFoundError, PermissionError) as error:
        package = "rsync" if program == "rsync" else "openssh-client"
        raise EdgeqError(
            f"no program {program} here", error.strerror or "not found", f"sudo apt install {package}", code="no-tool"
        ) from error


def connection_error(address: str, said: str) -> EdgeqError:
    """What ssh said before it gave up, as one of: ``permission-denied``, ``host-key``, ``unreachable``, ``lost-connection``.

    The last two are ``LostConnection``.
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"denied|refused|resolve|timed out|route|key|closed|ssh:", line)]
    why = [*(lines[-1:] or ["the connection ended"]), *telling][-1]
    if re.search(r"permission denied|too many authentication failures", said, re.IGNORECASE):
        return EdgeqError(
            f"{address} does not let this user in", why, f"ssh-copy-id {address}, or pass a key: --ssh 'ssh -i KEY'",
            code="permission-denied",
        )  # fmt: skip
    if re.search(r"host key verification failed|REMOTE HOST IDENTIFICATION", said):
        return EdgeqError(
            f"{address} has another host key than is known", why,
            f"if it was set up anew: ssh-keygen -R {address.rpartition('@')[2]}, then ssh {address} once by hand",
            code="host-key",
        )  # fmt: skip
    if re.search(r"resolve hostname|connection refused|connect to host|no route|unreachable", said, re.IGNORECASE):
        return LostConnection(
            f"{address} can't be reached",
            why,
            f"see that it is on, and that this works: ssh {address} true",
            code="unreachable",
        )
    return LostConnection(
        f"the connection to {address} was lost", why, "type the same command again", code="lost-connection"
    )


def told(address: str, said: str) -> EdgeqError:
    """The three lines (``error``, ``why``, ``try``) that a program of edgeq's ended with on the device, as raised here."""
    found = {key: re.findall(rf"^ *{key}: (.*)$", said, re.MULTILINE) for key in ("error", "why", "try")}
    if all(found.values()):
        what, why, hint = (found[key][-1] for key in ("error", "why", "try"))
        return EdgeqError(f"{what} (on {address})", why, hint, code="on-device")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return EdgeqError(
        f"a command failed on {address}", lines[-1] if lines else "it said nothing", f"look there: ssh {address}",
        code="on-device",
    )  # fmt: skip


def echo(stream: IO[bytes], sink: Callable[[bytes], None]) -> None:
    """Hands on what comes through ``stream``, block by block as it comes, until its end."""
    while block := os.read(stream.fileno(), 1 << 16):
        sink(block)


def to_terminal(block: bytes) -> None:
    """Writes to standard error as it is, be it half a line."""
    sys.stderr.buffer.write(block)
    sys.stderr.flush()
