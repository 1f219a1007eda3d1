"""The CPU: its name, its instruction sets in one vocabulary, and how many cores this process may use."""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Set
from pathlib import Path

from edgeq.host.cgroup import cpu_quota
from edgeq.host.reading import ROOT, cpu_list, number, text
from edgeq.spec.errors import EdgeqError

#: ``flags`` of x86 that matter here; they keep the kernel's names.
_X86 = (
    "sse4_1", "sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx_vnni",
    "avx512_bf16", "avx512_fp16", "amx_int8", "amx_bf16", "amx_fp16",
)  # fmt: skip

#: ``Features`` of ARM → the name of the architecture's extension.
_ARM = {
    "neon": "neon", "asimd": "neon", "atomics": "lse", "asimddp": "dotprod", "i8mm": "i8mm", "bf16": "bf16",
    "sve": "sve", "sve2": "sve2", "fphp": "fphp", "asimdhp": "asimdhp",
}  # fmt: skip

#: The same in the auxiliary vector of a 64-bit ARM process: (vector entry, bit), of Linux's uapi/asm/hwcap.h.
_AT_HWCAP, _AT_HWCAP2 = 16, 26
_ARM_BITS = {
    "asimd": (_AT_HWCAP, 1), "atomics": (_AT_HWCAP, 8), "fphp": (_AT_HWCAP, 9), "asimdhp": (_AT_HWCAP, 10),
    "asimddp": (_AT_HWCAP, 20), "sve": (_AT_HWCAP, 22), "sve2": (_AT_HWCAP2, 1), "i8mm": (_AT_HWCAP2, 13),
    "bf16": (_AT_HWCAP2, 14),
}  # fmt: skip

#: (implementer, part) of MIDR_EL1 → core; of ARM's technical reference manuals.
_PARTS = {
    (0x41, 0xD03): "Cortex-A53", (0x41, 0xD04): "Cortex-A35", (0x41, 0xD05): "Cortex-A55", (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72", (0x41, 0xD09): "Cortex-A73", (0x41, 0xD0A): "Cortex-A75", (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse-N1", (0x41, 0xD0D): "Cortex-A77", (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD41): "Cortex-A78", (0x41, 0xD42): "Cortex-A78AE", (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4F): "Neoverse-V2", (0x41, 0xC07): "Cortex-A7",
}  # fmt: skip


def family(machine: str) -> str:
    """``x86``, ``arm``, or ``machine`` itself, for a name as ``uname -m`` gives it."""
    name = machine.lower()
    if name in ("x86_64", "amd64", "i386", "i486", "i586", "i686", "x86"):
        return "x86"
    return "arm" if name.startswith(("aarch64", "arm")) else name


def parse_cpuinfo(found: str | None) -> list[dict[str, str]]:
    """``/proc/cpuinfo`` as one mapping a processor; the board's lines at the end (ARM) are a block too."""
    blocks: list[dict[str, str]] = [{}]
    for line in (found or "").splitlines():
        key, colon, value = line.partition(":")
        if not line.strip():
            blocks.append({})
        elif colon:
            blocks[-1].setdefault(key.strip(), value.strip())
    return [block for block in blocks if block]


def cpuinfo(root: Path = ROOT) -> list[dict[str, str]]:
    """``/proc/cpuinfo``, parsed; empty where it is absent."""
    return parse_cpuinfo(text(root / "proc/cpuinfo"))


def cpuinfo_family(blocks: list[dict[str, str]]) -> str | None:
    """The family of CPU that ``blocks`` describe, whatever this process is compiled for; None where they do not say."""
    keys = {key for block in blocks for key in block}
    if "flags" in keys:
        return "x86"
    return "arm" if keys & {"Features", "CPU implementer"} else None


def isa_flags(root: Path = ROOT, machine: str | None = None) -> tuple[str, ...]:
    """Instruction sets that matter to inference and that **all** cores have, sorted; empty where nothing says.

    x86: the kernel's names, and ``vnni`` where there is ``avx512_vnni`` or ``avx_vnni``: both bring VPDPBUSD, which
    sums u8 by s8 products in 32 bits, so that nothing saturates where a framework uses it. ONNX Runtime and oneDNN
    (in OpenVINO and PyTorch) use either; FBGEMM only ``avx512_vnni``: so both keep their own names too.
    ARM: ``neon``, ``lse``, ``dotprod``, ``i8mm``, ``bf16``, ``sve``, ``sve2``, and ``fp16`` (where scalars and vectors
    both have half-precision arithmetic).
    Where ``/proc/cpuinfo`` is another architecture's (user-mode emulation), the process's auxiliary vector is read.
    """
    kind = family(machine or platform.machine())
    blocks = cpuinfo(root)
    if kind == "x86" and cpuinfo_family(blocks) == "x86":
        return _x86(_common(blocks, "flags"))
    if kind == "arm":
        features = _common(blocks, "Features") if cpuinfo_family(blocks) == "arm" else set()
        return _arm(features or _auxiliary(root))
    return ()


def _common(blocks: list[dict[str, str]], key: str) -> set[str]:
    sets = [set(block[key].split()) for block in blocks if key in block]
    return set.intersection(*sets) if sets else set()


def _x86(flags: Set[str]) -> tuple[str, ...]:
    found = {name for name in _X86 if name in flags}
    if found & {"avx512_vnni", "avx_vnni"}:
        found.add("vnni")
    return tuple(sorted(found))


def _arm(features: Set[str]) -> tuple[str, ...]:
    found = {_ARM[name] for name in features if name in _ARM}
    if {"fphp", "asimdhp"} <= found:
        found.add("fp16")
    return tuple(sorted(found - {"fphp", "asimdhp"}))


def _auxiliary(root: Path) -> set[str]:
    """ARM features of a 64-bit process's auxiliary vector, which the kernel or the emulator fills in for it."""
    try:
        raw = (root / "proc/self/auxv").read_bytes()
    except OSError:
        return set()
    entries = dict(struct.iter_unpack("<QQ", raw[: len(raw) // 16 * 16]))
    return {name for name, (entry, bit) in _ARM_BITS.items() if entries.get(entry, 0) >> bit & 1}


def cpu_name(root: Path = ROOT, machine: str | None = None) -> str:
    """Such as ``AMD EPYC 7B13``, ``Cortex-A72``, ``Cortex-A76 + Cortex-A55`` (two kinds), or ``unknown CPU``."""
    kind, blocks = family(machine or platform.machine()), cpuinfo(root)
    if kind == "x86" and cpuinfo_family(blocks) == "x86":
        return next((block["model name"] for block in blocks if block.get("model name")), "unknown CPU")
    if kind != "arm":
        return "unknown CPU"
    cores = _cores_of_cpuinfo(blocks) or _cores_of_sysfs(root)
    return " + ".join(sorted(set(cores), reverse=True)) or "unknown CPU"


def _cores_of_cpuinfo(blocks: list[dict[str, str]]) -> list[str]:
    ids = [(block.get("CPU implementer", ""), block.get("CPU part", "")) for block in blocks]
    return [_core(int(implementer, 16), int(part, 16)) for implementer, part in ids if _hex(implementer) and _hex(part)]


def _cores_of_sysfs(root: Path) -> list[str]:
    midrs = (number(path) for path in root.glob("sys/devices/system/cpu/cpu[0-9]*/regs/identification/midr_el1"))
    return [_core(midr >> 24 & 0xFF, midr >> 4 & 0xFFF) for midr in midrs if midr is not None]


def _core(implementer: int, part: int) -> str:
    return _PARTS.get((implementer, part), f"ARM core 0x{implementer:02x}/0x{part:03x}")


def _hex(found: str) -> bool:
    try:
        return int(found, 16) >= 0
    except ValueError:
        return False


def allowed_cpus() -> set[int]:
    """Logical CPUs that this process may run on (affinity, which also holds what a cpuset allows)."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def physical_cores(root: Path = ROOT, allowed: Set[int] | None = None) -> int:
    """Physical cores that affinity and the control group's quota allow, at least 1: the default number of threads.

    Two hyper-threads of one core count once. A quota is CPU time, whatever it is spent on: 1.5 CPUs are one thread.
    """
    cpus = allowed_cpus() if allowed is None else allowed
    blocks = {block["processor"]: block for block in cpuinfo(root) if "processor" in block}
    cores = len({_core_key(cpu, root, blocks.get(str(cpu), {})) for cpu in cpus})
    quota = cpu_quota(root)
    return max(1, cores if quota is None else min(cores, int(quota)))


def _core_key(cpu: int, root: Path, block: dict[str, str]) -> tuple[str, ...]:
    topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
    for name in ("core_cpus_list", "thread_siblings_list"):
        siblings = cpu_list(text(topology / name))
        if cpu in siblings:
            return ("cpus", *map(str, sorted(siblings)))
    if "core id" in block:
        return ("core", block.get("physical id", ""), block["core id"])
    return ("cpu", str(cpu))


def target(root: Path = ROOT, machine: str | None = None) -> str:
    """What artifacts to make for this machine: ``x86_64``, ``x86_64-vnni`` or ``aarch64``.

    A CPU with AVX-VNNI alone counts as ``x86_64``: PyTorch's engines would still saturate on what is made for VNNI
    (FBGEMM uses only ``avx512_vnni``), and what is made for ``x86_64`` is right everywhere.

    Raises:
        EdgeqError: another architecture, for which the frameworks have no wheels (code ``unsupported-cpu``).
    """
    name = (machine or platform.machine()).lower()
    if name in ("x86_64", "amd64"):
        return "x86_64-vnni" if "avx512_vnni" in isa_flags(root, name) else "x86_64"
    if name in ("aarch64", "arm64"):
        return "aarch64"
    raise EdgeqError(
        f"no target for a CPU of architecture {name}",
        "the frameworks publish packages for x86_64 and aarch64",
        "use a 64-bit operating system (on a Raspberry Pi: the 64-bit Raspberry Pi OS)",
        code="unsupported-cpu",
    )
