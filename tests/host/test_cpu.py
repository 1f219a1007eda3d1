from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.host import cpu
from edgeq.host.reading import cpu_list, integer, pairs
from edgeq.spec.errors import EdgeqError
from tests.host import trees


def test_sapphire_rapids_has_vnni_under_both_names(tmp_path: Path) -> None:
    root = trees.sapphire_rapids(tmp_path)
    flags = cpu.isa_flags(root, "x86_64")
    assert {"vnni", "avx512_vnni", "avx_vnni", "amx_int8", "amx_bf16", "avx512_fp16"} <= set(flags)
    assert cpu.target(root, "x86_64") == "x86_64-vnni"
    assert cpu.physical_cores(root, {0, 1}) == 2


def test_epyc_has_avx2_and_no_vnni_and_its_hyper_threads_count_once(tmp_path: Path) -> None:
    root = trees.epyc(tmp_path)
    assert "avx2" in cpu.isa_flags(root, "x86_64")
    assert "vnni" not in cpu.isa_flags(root, "x86_64")
    assert cpu.target(root, "x86_64") == "x86_64"
    assert cpu.physical_cores(root, {0, 1, 2, 3}) == 2
    assert cpu.physical_cores(root, {0, 1}) == 1
    assert cpu.physical_cores(root, {0, 2}) == 2


@pytest.mark.parametrize(("flag", "target"), [("avx_vnni", "x86_64"), ("avx512_vnni", "x86_64-vnni")])
def test_only_a_vnni_that_every_framework_uses_makes_the_target(flag: str, target: str, tmp_path: Path) -> None:
    trees.write(tmp_path, {"proc/cpuinfo": trees.x86_cpuinfo("x", f"avx2 {flag}", threads=1)})
    assert "vnni" in cpu.isa_flags(tmp_path, "x86_64")
    assert cpu.target(tmp_path, "x86_64") == target


def test_pi4_has_neither_dot_product_nor_lse(tmp_path: Path) -> None:
    root = trees.pi4(tmp_path)
    assert cpu.isa_flags(root, "aarch64") == ("neon",)
    assert cpu.cpu_name(root, "aarch64") == "Cortex-A72"
    assert cpu.target(root, "aarch64") == "aarch64"
    assert cpu.physical_cores(root, {0, 1, 2, 3}) == 4


def test_pi5_has_dot_product_and_fp16(tmp_path: Path) -> None:
    root = trees.pi5(tmp_path)
    assert cpu.isa_flags(root, "aarch64") == ("dotprod", "fp16", "lse", "neon")
    assert cpu.cpu_name(root, "aarch64") == "Cortex-A76"


def test_fp16_needs_scalar_and_vector_arithmetic(tmp_path: Path) -> None:
    trees.write(tmp_path, {"proc/cpuinfo": trees.arm_cpuinfo("asimd fphp", [0xD0B])})
    assert cpu.isa_flags(tmp_path, "aarch64") == ("neon",)


def test_cores_of_two_kinds_share_what_both_have(tmp_path: Path) -> None:
    both = trees.arm_cpuinfo("asimd asimddp", [0xD0B]) + "\n" + trees.arm_cpuinfo("asimd", [0xD03])
    trees.write(tmp_path, {"proc/cpuinfo": both})
    assert cpu.isa_flags(tmp_path, "aarch64") == ("neon",)
    assert cpu.cpu_name(tmp_path, "aarch64") == "Cortex-A76 + Cortex-A53"


def test_an_emulated_core_is_read_from_the_process_and_sysfs(tmp_path: Path) -> None:
    trees.sapphire_rapids(tmp_path)
    vector = struct.pack("<QQQQQQ", 16, 1 << 1 | 1 << 20, 26, 1 << 13, 0, 0)
    midr = "sys/devices/system/cpu/cpu0/regs/identification/midr_el1"
    trees.write(tmp_path, {"proc/self/auxv": vector, midr: "0x00000000410fd083\n"})
    assert cpu.isa_flags(tmp_path, "aarch64") == ("dotprod", "i8mm", "neon")
    assert cpu.cpu_name(tmp_path, "aarch64") == "Cortex-A72"


def test_a_machine_without_a_single_file_still_answers(tmp_path: Path) -> None:
    assert cpu.isa_flags(tmp_path, "x86_64") == ()
    assert cpu.isa_flags(tmp_path, "aarch64") == ()
    assert cpu.cpu_name(tmp_path, "x86_64") == "unknown CPU"
    assert cpu.cpu_name(tmp_path, "riscv64") == "unknown CPU"
    assert cpu.target(tmp_path, "x86_64") == "x86_64"
    assert cpu.physical_cores(tmp_path, {0, 1, 2}) == 3
    assert cpu.physical_cores(tmp_path, set()) == 1


@pytest.mark.parametrize("machine", ["armv7l", "riscv64", "i686"])
def test_an_architecture_without_wheels_is_refused_in_words(machine: str, tmp_path: Path) -> None:
    with pytest.raises(EdgeqError, match=machine) as caught:
        cpu.target(tmp_path, machine)
    assert caught.value.code == "unsupported-cpu"


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", 2), ("150000 100000", 1), ("50000 100000", 1),
                                              ("400000 100000", 2), ("garbage", 2), ("200000 0", 2)])  # fmt: skip
def test_a_cgroup_v2_quota_bounds_the_cores(quota: str, cores: int, tmp_path: Path) -> None:
    root = trees.sapphire_rapids(tmp_path)
    trees.write(root, {"proc/self/cgroup": "0::/app/job\n", "sys/fs/cgroup/app/job/x": "",
                       "sys/fs/cgroup/app/cpu.max": quota})  # fmt: skip
    assert cpu.physical_cores(root, {0, 1}) == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", 2), ("100000", 1), ("199999", 1), ("200000", 2)])
def test_a_cgroup_v1_quota_bounds_the_cores(quota: str, cores: int, tmp_path: Path) -> None:
    root = trees.sapphire_rapids(tmp_path)
    # The path is the host's: inside the container only the mount's root is there.
    trees.write(root, {"proc/self/cgroup": "4:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc\n",
                       "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": quota,
                       "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000"})  # fmt: skip
    assert cpu.physical_cores(root, {0, 1}) == cores


def test_this_machine_answers() -> None:
    assert 1 <= cpu.physical_cores() <= len(cpu.allowed_cpus())
    assert cpu.cpu_name()


@given(st.text())
def test_cpuinfo_parser_takes_any_text(found: str) -> None:
    assert all(block and all(isinstance(value, str) for value in block.values()) for block in cpu.parse_cpuinfo(found))


@given(st.sets(st.integers(min_value=0, max_value=512)))
def test_cpu_lists_come_back(cpus: set[int]) -> None:
    assert cpu_list(",".join(map(str, sorted(cpus)))) == cpus


@given(st.text(alphabet="0123456789-, \n"))
def test_cpu_list_takes_any_text(found: str) -> None:
    if all(len(part) < 6 for part in found.replace("-", ",").split(",")):
        assert all(number >= 0 for number in cpu_list(found))


@given(st.dictionaries(st.from_regex(r"[a-zA-Z_]{1,12}", fullmatch=True), st.integers(min_value=0, max_value=2**63)))
def test_pairs_come_back(values: dict[str, int]) -> None:
    assert pairs("".join(f"{key} {value}\n" for key, value in values.items())) == values
    assert pairs("".join(f"{key}:   {value} kB\n" for key, value in values.items())) == values


@given(st.text())
def test_pairs_and_integers_take_any_text(found: str) -> None:
    assert all(isinstance(value, int) for value in pairs(found).values())
    assert integer(found) is None or isinstance(integer(found), int)
