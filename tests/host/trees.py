"""Small ``/proc`` and ``/sys`` trees, as recorded on real machines and cut down to what is read."""

from __future__ import annotations

from pathlib import Path

X86_VNNI_FLAGS = (
    "fpu sse sse2 ss ht syscall nx lm pni ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt avx f16c hypervisor avx2 avx512f "
    "avx512dq avx512bw avx512vl avx_vnni avx512_bf16 avx512_vnni amx_bf16 avx512_fp16 amx_tile amx_int8"
)
EPYC_FLAGS = (
    "fpu sse sse2 ht syscall nx lm pni ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt avx f16c hypervisor avx2 sha_ni"
)
PI4_FEATURES = "fp asimd evtstrm crc32 cpuid"
PI5_FEATURES = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    """Writes ``files`` (path → content) under ``root``, and returns it."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def x86_cpuinfo(model: str, flags: str, *, threads: int, threads_per_core: int = 1, number: int = 207) -> str:
    return "\n".join(
        f"processor\t: {cpu}\nvendor_id\t: x\ncpu family\t: 6\nmodel\t\t: {number}\nmodel name\t: {model}\n"
        f"cpu MHz\t\t: 2100.000\nphysical id\t: 0\ncore id\t\t: {cpu // threads_per_core}\nflags\t\t: {flags}\n"
        for cpu in range(threads)
    )


def arm_cpuinfo(features: str, parts: list[int], model: str = "", revision: str = "c03111") -> str:
    blocks = [
        f"processor\t: {cpu}\nBogoMIPS\t: 108.00\nFeatures\t: {features}\nCPU implementer\t: 0x41\n"
        f"CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0x{part:x}\nCPU revision\t: 3\n"
        for cpu, part in enumerate(parts)
    ]
    return "\n".join(blocks) + (f"\nHardware\t: BCM2835\nRevision\t: {revision}\nModel\t\t: {model}\n" if model else "")


def sapphire_rapids(root: Path) -> Path:
    """A virtual machine with a generic CPU name and VNNI, control groups of version 1."""
    return write(root, {
        "proc/cpuinfo": x86_cpuinfo("Intel(R) Xeon(R) Processor", X86_VNNI_FLAGS, threads=2),
        "proc/sys/kernel/arch": "x86_64\n", "proc/sys/kernel/osrelease": "6.18.44\n",
        "proc/meminfo": "MemTotal:       24684844 kB\nMemFree:          100 kB\nMemAvailable:   16000000 kB\n",
        "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian GNU/Linux"\n',
        "proc/stat": "cpu  100 0 50 800 10 0 20 20 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n",
        "proc/loadavg": "1.38 0.98 0.51 1/200 1234\n",
    })  # fmt: skip


def epyc(root: Path) -> Path:
    """AVX2 without VNNI, two threads a core."""
    return write(root, {
        "proc/cpuinfo": x86_cpuinfo("AMD EPYC 7B13", EPYC_FLAGS, threads=4, threads_per_core=2, number=1),
        "proc/meminfo": "MemTotal: 8000000 kB\nMemAvailable: 7000000 kB\n",
    })  # fmt: skip


def pi4(root: Path) -> Path:
    model = "Raspberry Pi 4 Model B Rev 1.1"
    files: dict[str, str | bytes] = {
        "proc/cpuinfo": arm_cpuinfo(PI4_FEATURES, [0xD08] * 4, model),
        "proc/device-tree/model": model.encode() + b"\0",
        "proc/sys/kernel/arch": "aarch64\n",
        "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
        "sys/class/thermal/thermal_zone0/temp": "48686\n",
        "sys/devices/platform/soc/soc:firmware/get_throttled": "50005\n",
    }
    for cpu in range(4):
        base = f"sys/devices/system/cpu/cpu{cpu}"
        files[f"{base}/cpufreq/scaling_cur_freq"] = "1500000\n"
        files[f"{base}/cpufreq/scaling_governor"] = "ondemand\n"
        # Some kernels count the cores anew in each cluster: core_id says too little, the siblings say it all.
        files[f"{base}/topology/core_id"] = str(cpu % 2)
        files[f"{base}/topology/thread_siblings_list"] = f"{cpu}\n"
    return write(root, files)


def pi4_throttled(root: Path) -> Path:
    """A Pi 4 on a weak power supply without a fan, under load: hot, throttled, and its clock at 1 of 1.8 GHz.

    Put together from what such boards are reported to print (64-bit Raspberry Pi OS, bookworm): the firmware's word, and
    the alarm of its ``rpi_volt`` sensor.
    """
    model, ticks = "Raspberry Pi 4 Model B Rev 1.4", "1000 0 75 1400 15 0 10 0 0 0\n"
    files: dict[str, str | bytes] = {
        "proc/cpuinfo": arm_cpuinfo(PI4_FEATURES, [0xD08] * 4, model, "c03114"),
        "proc/device-tree/model": model.encode() + b"\0",
        "proc/device-tree/compatible": b"raspberrypi,4-model-b\0brcm,bcm2711\0",
        "proc/sys/kernel/arch": "aarch64\n", "proc/sys/kernel/osrelease": "6.6.51+rpt-rpi-v8\n",
        "proc/meminfo": "MemTotal:        3882444 kB\nMemFree:          981240 kB\nMemAvailable:    3124560 kB\n"
                        "SwapTotal:        204796 kB\nSwapFree:         204796 kB\n",
        "proc/vmstat": "nr_free_pages 245310\npswpin 0\npswpout 0\noom_kill 0\n",
        "proc/stat": "cpu  4000 0 300 5600 60 0 40 0 0 0\n" + "".join(f"cpu{n} {ticks}" for n in range(4)),
        "proc/loadavg": "4.02 3.11 1.57 5/213 2210\n",
        "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian GNU/Linux"\nVERSION_ID="12"\n',
        "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
        "sys/class/thermal/thermal_zone0/temp": "82277\n",
        "sys/class/hwmon/hwmon0/name": "cpu_thermal\n", "sys/class/hwmon/hwmon0/temp1_input": "82277\n",
        "sys/class/hwmon/hwmon1/name": "rpi_volt\n", "sys/class/hwmon/hwmon1/in0_lcrit_alarm": "1\n",
        "sys/devices/platform/soc/soc:firmware/get_throttled": "50005\n",
    }  # fmt: skip
    for cpu in range(4):
        base = f"sys/devices/system/cpu/cpu{cpu}"
        files |= {
            f"{base}/cpufreq/scaling_cur_freq": "1000000\n", f"{base}/cpufreq/scaling_governor": "ondemand\n",
            f"{base}/cpufreq/cpuinfo_max_freq": "1800000\n", f"{base}/cpufreq/cpuinfo_min_freq": "600000\n",
            f"{base}/cpufreq/scaling_max_freq": "1800000\n", f"{base}/cpufreq/scaling_min_freq": "600000\n",
            f"{base}/topology/core_id": f"{cpu}\n", f"{base}/topology/physical_package_id": "0\n",
            f"{base}/topology/thread_siblings_list": f"{cpu}\n",
            f"{base}/regs/identification/midr_el1": "0x00000000410fd083\n",
        }  # fmt: skip
    return write(root, files)


def pi5(root: Path) -> Path:
    model = "Raspberry Pi 5 Model B Rev 1.0"
    return write(root, {
        "proc/cpuinfo": arm_cpuinfo(PI5_FEATURES, [0xD0B] * 4, model),
        "proc/device-tree/model": model.encode() + b"\0",
    })  # fmt: skip


def pi5_fine(root: Path) -> Path:
    """A Pi 5 with its own power supply and a fan, on a kernel of the Raspberry Pi's: nothing is or was the matter."""
    files: dict[str, str | bytes] = {
        "proc/meminfo": "MemTotal: 8244256 kB\nMemAvailable: 7000000 kB\nSwapTotal: 524272 kB\nSwapFree: 524272 kB\n",
        "proc/vmstat": "pswpin 0\npswpout 0\n",
        "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n", "sys/class/thermal/thermal_zone0/temp": "51250\n",
        "sys/class/hwmon/hwmon2/name": "rpi_volt\n", "sys/class/hwmon/hwmon2/in0_lcrit_alarm": "0\n",
        "sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled": "0\n",
    }  # fmt: skip
    for cpu in range(4):
        base = f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
        files |= {f"{base}/scaling_cur_freq": "2400000\n", f"{base}/cpuinfo_max_freq": "2400000\n",
                  f"{base}/scaling_governor": "performance\n", f"{base}/scaling_driver": "cpufreq-dt\n"}  # fmt: skip
    return write(pi5(root), files)


def x86_with_rapl(root: Path, energy_uj: int = 1_000_000, core_uj: int = 400_000) -> Path:
    """A laptop's CPU: RAPL with a package, a part of it, the platform, and the same package by another way (MMIO)."""
    rapl = "sys/class/powercap/intel-rapl"
    files: dict[str, str | bytes] = {
        "proc/meminfo": "MemTotal: 16000000 kB\nMemAvailable: 9000000 kB\nSwapTotal: 2000000 kB\nSwapFree: 1990000 kB\n",
        "proc/vmstat": "pswpin 1000\npswpout 2000\n",
        f"{rapl}:0/name": "package-0\n", f"{rapl}:0/energy_uj": f"{energy_uj}\n",
        f"{rapl}:0/max_energy_range_uj": "262143328850\n",
        f"{rapl}:0:0/name": "core\n", f"{rapl}:0:0/energy_uj": f"{core_uj}\n",
        f"{rapl}:0:0/max_energy_range_uj": "262143328850\n",
        f"{rapl}:1/name": "psys\n", f"{rapl}:1/energy_uj": "777\n",
        f"{rapl}-mmio:0/name": "package-0\n", f"{rapl}-mmio:0/energy_uj": f"{energy_uj}\n",
        "sys/class/thermal/thermal_zone3/type": "x86_pkg_temp\n", "sys/class/thermal/thermal_zone3/temp": "67000\n",
    }  # fmt: skip
    for cpu, mhz in enumerate((2900, 800)):
        base = f"sys/devices/system/cpu/cpu{cpu}"
        files |= {f"{base}/cpufreq/scaling_cur_freq": f"{mhz}000\n", f"{base}/cpufreq/cpuinfo_max_freq": "4700000\n",
                  f"{base}/cpufreq/base_frequency": "2800000\n", f"{base}/cpufreq/scaling_driver": "intel_pstate\n",
                  f"{base}/cpufreq/scaling_governor": "powersave\n",
                  f"{base}/thermal_throttle/core_throttle_count": "3\n"}  # fmt: skip
    return write(root, files)
