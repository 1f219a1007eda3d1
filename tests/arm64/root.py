"""An arm64 Debian of what Raspberry Pi OS is made of, played by QEMU's user-mode emulation."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeq.files import cache_dir, write_text
from edgeq.spec.errors import EdgeqError

#: Bookworm: Python 3.11. What a device needs beside Python itself is what the README tells its owner to install.
RELEASE, PACKAGES = "bookworm", ("python3", "python3-venv")

#: ``QEMU_CPU`` → MIDR_EL1 of that core: the emulator plays the core, but the kernel's files are this machine's.
MIDR = {"cortex-a72": "0x00000000410fd083", "cortex-a76": "0x00000000414fd0b1"}
CORES = 4

_BINFMT = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")


def arm64_root() -> tuple[Path, bool]:
    """The root's folder, made by debootstrap where it is not in the cache yet; and whether it was.

    Raises:
        EdgeqError: not run as root, or something to make it with is not installed.
    """
    _require()
    root = cache_dir() / f"arm64-{RELEASE}"
    if root.is_dir():
        return root, True
    partial = root.with_name(f".partial-{root.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    command = [
        "debootstrap",
        "--arch=arm64",
        "--variant=minbase",
        f"--include={','.join(PACKAGES)}",
        RELEASE,
        str(partial),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise EdgeqError(
            f"debootstrap could not make {partial}",
            "; ".join(last) or f"exit code {done.returncode}",
            f"see {partial}/debootstrap/debootstrap.log, then run: make test-arm64",
            code="no-arm64-root",
        )
    partial.rename(root)
    return root, False


def _require() -> None:
    tools = {
        "debootstrap": "debootstrap",
        "qemu-aarch64-static": "qemu-user-static",
        "update-binfmts": "binfmt-support",
        "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    }
    lacking = [package for tool, package in tools.items() if shutil.which(tool) is None]
    if lacking:
        raise EdgeqError(
            "an arm64 machine can't be played here",
            f"not installed: {', '.join(lacking)}",
            f"run: sudo apt install {' '.join(lacking)}",
            code="no-emulator",
        )
    if os.geteuid() != 0:
        raise EdgeqError(
            "an arm64 machine can't be played here", "it takes chroot, which only root may do",
            "run: sudo make test-arm64", code="not-root",
        )  # fmt: skip
    if not _BINFMT.is_file():  # a container, or a machine without an init that does it
        if not _BINFMT.with_name("register").exists():
            _call(["mount", "-t", "binfmt_misc", "binfmt_misc", str(_BINFMT.parent)])
        if not _BINFMT.is_file():
            _call(["update-binfmts", "--enable", "qemu-aarch64"])


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EdgeqError(
            "an arm64 machine can't be played here",
            f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}",
            "run it by hand and see, then: make test-arm64",
            code="no-emulator",
        )


@dataclass(frozen=True)
class Board:
    """The root, run as one core's machine. Each command has mounts and processes of its own, which end with it."""

    root: Path
    cpu: str

    @property
    def sysfs(self) -> Path:
        """What this board has for ``/sys``: in the root, which boards share."""
        return self.root / "opt/sysfs" / self.cpu

    def play_sysfs(self) -> None:
        """Writes the files of ``/sys`` by which libraries tell cores: without them cpuinfo, and so XNNPACK, fails."""
        base = self.sysfs / "devices/system/cpu"
        for name in ("possible", "present", "online"):
            write_text(base / name, f"0-{CORES - 1}\n")
        for core in range(CORES):
            topology = base / f"cpu{core}/topology"
            values = {
                "physical_package_id": "0",
                "core_id": f"{core}",
                "core_siblings_list": f"0-{CORES - 1}",
                "package_cpus_list": f"0-{CORES - 1}",
                "thread_siblings_list": f"{core}",
                "core_cpus_list": f"{core}",
                "core_siblings": f"{(1 << CORES) - 1:x}",
                "thread_siblings": f"{1 << core:x}",
            }
            for name, value in values.items():
                write_text(topology / name, f"{value}\n")
            write_text(base / f"cpu{core}/regs/identification/midr_el1", f"{MIDR[self.cpu]}\n")
        node = self.sysfs / "devices/system/node"
        write_text(node / "online", "0\n")
        write_text(node / "node0/cpulist", f"0-{CORES - 1}\n")
        write_text(node / "node0/cpumap", f"{(1 << CORES) - 1:x}\n")

    def command(self, words: Sequence[str], folder: str, environment: Mapping[str, str] | None = None) -> list[str]:
        """What to run here so that ``words`` run there, in ``folder``."""
        variables = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "QEMU_CPU": self.cpu,
            **(environment or {}),
        }
        script = 'mount -t proc proc "$0/proc" && mount --bind "$1" "$0/sys" && shift && exec env -i "$@"'
        given = [f"{name}={value}" for name, value in variables.items()]
        inside = ["chroot", str(self.root), "sh", "-c", 'cd "$0" && exec "$@"', folder, *words]
        # env -i comes before chroot: the variables are for QEMU, which starts with the first program of the other side.
        return [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            script,
            str(self.root),
            str(self.sysfs),
            *given,
            *inside,
        ]
