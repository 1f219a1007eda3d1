"""The device as it stands in every record, and the name of its folder under ``results/``."""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from edgeq.host import cgroup, cpu, memory, state
from edgeq.host.reading import ROOT, text


def describe(
    root: Path = ROOT,
    machine: str | None = None,
    environ: Mapping[str, str] | None = None,
    allowed: Set[int] | None = None,
) -> dict[str, Any]:
    """The device, as JSON values; a field is None where the device does not tell.

    ``name``, ``slug`` (for a folder), ``machine`` (``uname -m``), ``target`` (None where none fits), ``cpu``, ``isa``,
    ``cores`` (physical, allowed to this process), ``threads_allowed`` (logical CPUs), ``cpu_quota`` (CPUs),
    ``ram_mb`` and ``memory_limit_mb`` (10^6 bytes), ``os``, ``kernel``, ``governor``, ``virtualised``, ``emulated``,
    ``emulated_how``.
    """
    machine = machine or platform.machine()
    cpus = cpu.allowed_cpus() if allowed is None else allowed
    cores, how = cpu.physical_cores(root, cpus), emulation(root, machine, environ)
    name = _name(root, machine, cores, how is not None)
    return {
        "name": name,
        "slug": slug(name),
        "machine": machine,
        "target": cpu.target(root, machine) if machine.lower() in ("x86_64", "amd64", "aarch64", "arm64") else None,
        "cpu": cpu.cpu_name(root, machine),
        "isa": list(cpu.isa_flags(root, machine)),
        "cores": cores,
        "threads_allowed": len(cpus),
        "cpu_quota": cgroup.cpu_quota(root),
        "ram_mb": _mb(memory.total(root)),
        "memory_limit_mb": _mb(memory.limit(root)),
        "os": os_name(root),
        "kernel": text(root / "proc/sys/kernel/osrelease"),
        "governor": state.governor(root),
        "virtualised": virtualised(root),
        "emulated": how is not None,
        "emulated_how": how,
    }


def emulation(root: Path = ROOT, machine: str | None = None, environ: Mapping[str, str] | None = None) -> str | None:
    """How it shows that another CPU plays this one (so that times mean nothing), or None.

    User-mode QEMU answers ``uname`` for the CPU it plays, and passes most files of ``/proc`` through from the real
    kernel. So: the kernel's own architecture (``/proc/sys/kernel/arch``, Linux 6.1 and later) or ``/proc/cpuinfo``
    disagrees with ``uname -m``. Where the kernel does not say its architecture, two more signs count: it starts this
    very architecture's programs through QEMU (binfmt_misc), or ``QEMU_CPU`` says which core to play. (Where it does
    say, a ``QEMU_CPU`` left in the environment of a real machine is no sign.) System-mode QEMU without KVM names its
    CPU "QEMU TCG CPU".
    """
    machine = machine or platform.machine()
    kind, blocks = cpu.family(machine), cpu.cpuinfo(root)
    kernel, listed = text(root / "proc/sys/kernel/arch"), cpu.cpuinfo_family(blocks)
    if kernel and cpu.family(kernel) != kind:
        return f"the kernel is {kernel}, this process is {machine}"
    if listed and listed != kind:
        return f"/proc/cpuinfo describes an {listed} CPU, this process is {machine}"
    if not kernel:
        binfmt = (text(root / f"proc/sys/fs/binfmt_misc/qemu-{machine}") or "").splitlines()
        if binfmt[:1] == ["enabled"]:
            return f"the kernel runs {machine} programs through QEMU (binfmt_misc)"
        played = (os.environ if environ is None else environ).get("QEMU_CPU")
        if played:
            return f"QEMU_CPU={played}"
    if any("QEMU TCG" in block.get("model name", "") for block in blocks):
        return "the CPU is QEMU's own (TCG)"
    return None


def virtualised(root: Path = ROOT) -> bool:
    """Whether a hypervisor shows itself (x86 ``hypervisor`` flag, device tree, DMI); False is "none shows"."""
    blocks = cpu.cpuinfo(root)
    if any("hypervisor" in block.get("flags", "").split() for block in blocks):
        return True
    tree = root / "proc/device-tree"
    if (tree / "hypervisor").exists() or "dummy-virt" in (text(tree / "compatible") or ""):
        return True
    vendor = text(root / "sys/class/dmi/id/sys_vendor") or ""
    return vendor.startswith(("QEMU", "Amazon EC2", "Google", "VMware", "Xen", "innotek", "Microsoft Corporation Virt"))


def board(root: Path = ROOT) -> str | None:
    """The board's name from its device tree, such as ``Raspberry Pi 5 Model B Rev 1.0``; None on a PC."""
    found = text(root / "proc/device-tree/model") or text(root / "sys/firmware/devicetree/base/model")
    if not found:
        found = next((block["Model"] for block in cpu.cpuinfo(root) if block.get("Model")), None)
    return None if not found or found == "linux,dummy-virt" else found


def os_name(root: Path = ROOT) -> str | None:
    """``PRETTY_NAME`` of ``/etc/os-release``."""
    for path in (root / "etc/os-release", root / "usr/lib/os-release"):
        for line in (text(path) or "").splitlines():
            if line.startswith("PRETTY_NAME="):
                return _unquote(line.partition("=")[2])
    return None


def slug(name: str) -> str:
    """``name`` as a folder's name: lower case, digits and single hyphens, never empty."""
    plain = re.sub(r"\((r|tm|c)\)", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:80].strip("-") or "unknown-device"


def _name(root: Path, machine: str, cores: int, emulated: bool) -> str:
    """The board, or the CPU with its number of cores: two devices that perform alike share a name, others do not."""
    cpu_name = cpu.cpu_name(root, machine)
    if emulated:
        return f"emulated {machine} {cpu_name}, {_plural(cores)}"
    known = board(root)
    if known:
        return known
    if not re.search(r"\d", cpu_name):
        # A virtual machine often shows a generic name ("Intel Xeon Processor") for CPUs of very different generations.
        block = next(iter(cpu.cpuinfo(root)), {})
        numbers = [block[key] for key in ("cpu family", "model") if key in block]
        cpu_name = f"{cpu_name} {'-'.join(numbers)}".strip()
    plain = re.sub(r"\s+", " ", re.sub(r"\((R|TM|C)\)", "", cpu_name, flags=re.IGNORECASE)).strip()
    return f"{plain}, {_plural(cores)}"


def _plural(cores: int) -> str:
    return f"{cores} core" if cores == 1 else f"{cores} cores"


def _unquote(found: str) -> str:
    try:
        return " ".join(shlex.split(found))
    except ValueError:
        return found.strip("'\"")


def _mb(count: int | None) -> int | None:
    return None if count is None else round(count / 1e6)
