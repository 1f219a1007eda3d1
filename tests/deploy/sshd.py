"""A real sshd on loopback, with keys of its own, and a link to it that can be cut."""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ADDRESS = f"{getpass.getuser()}@127.0.0.1"
_CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
"""


@dataclass(frozen=True)
class Sshd:
    port: int
    folder: Path

    def ssh(self, port: int | None = None, key: str = "user") -> str:
        """What to pass to ``--ssh``; ``port`` is another way to the same server."""
        options = ["-F", "none", "-i", f"{self.folder}/{key}", "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"]
        options += ["-o", f"UserKnownHostsFile={self.folder}/known", "-o", "HostKeyAlias=device"]
        return shlex.join(["ssh", "-p", str(port or self.port), *options])


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@contextlib.contextmanager
def running_sshd(folder: Path) -> Iterator[Sshd]:
    """Skips where a program is missing."""
    server = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    missing = [name for name in ("ssh", "ssh-keygen", "rsync") if shutil.which(name) is None]
    if server is None or missing:
        pytest.skip(f"needs {', '.join([*missing, *([] if server else ['sshd'])])}: apt install openssh-server rsync")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where sshd drops privileges; a user's needs none
    for name in ("host", "user", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    (folder / "known").write_text("device " + (folder / "host.pub").read_text())
    port = free_port()
    (folder / "config").write_text(_CONFIG.format(port=port, folder=folder))
    process = subprocess.Popen(
        [server, "-D", "-e", "-f", str(folder / "config")], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    assert process.stderr is not None
    said = ""
    for line in process.stderr:  # until it listens, or gives up
        said += line
        if "Server listening" in line:
            break
    else:
        pytest.skip(f"sshd does not start here: {said.strip()}")
    drain = threading.Thread(target=process.stderr.read, daemon=True)
    drain.start()
    try:
        yield Sshd(port, folder)
    finally:
        process.terminate()
        process.wait()


class Link:
    """A way to a server that breaks: after so many bytes towards it, or when told so. Mended, it works again."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._left: int | None = None
        self.broken = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def break_after(self, count: int) -> None:
        self.broken.clear()
        self._left = count

    def cut(self) -> None:
        """Ends all connections, as a device does that loses its power."""
        self.broken.set()
        self._left = None
        with self._lock:
            closing, self._open = self._open, []
        for each in closing:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self) -> None:
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
                with self._lock:
                    self._open += [client, server]
                for source, sink, counted in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=(source, sink, counted), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(1 << 14):
                if counted and self._left is not None:
                    self._left -= len(block)
                    if self._left < 0:
                        self.cut()
                        return
                sink.sendall(block)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
