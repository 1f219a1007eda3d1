from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.host import device
from tests.host import trees


def test_a_virtual_machine_with_a_generic_name_is_told_apart_by_its_model(tmp_path: Path) -> None:
    found = device.describe(trees.sapphire_rapids(tmp_path), "x86_64", {}, {0, 1})
    assert found["name"] == "Intel Xeon Processor 6-207, 2 cores"
    assert found["slug"] == "intel-xeon-processor-6-207-2-cores"
    assert (found["virtualised"], found["emulated"], found["target"]) == (True, False, "x86_64-vnni")
    assert (found["os"], found["kernel"], found["ram_mb"]) == ("Debian GNU/Linux 12 (bookworm)", "6.18.44", 25277)


def test_epyc_is_named_by_its_cpu_and_cores(tmp_path: Path) -> None:
    found = device.describe(trees.epyc(tmp_path), "x86_64", {}, {0, 1, 2, 3})
    assert found["slug"] == "amd-epyc-7b13-2-cores"
    assert (found["cores"], found["threads_allowed"]) == (2, 4)


@pytest.mark.parametrize(("tree", "slug"), [(trees.pi4, "raspberry-pi-4-model-b-rev-1-1"),
                                            (trees.pi5, "raspberry-pi-5-model-b-rev-1-0")])  # fmt: skip
def test_a_board_is_named_by_its_device_tree(tree: object, slug: str, tmp_path: Path) -> None:
    assert callable(tree)
    found = device.describe(tree(tmp_path), "aarch64", {}, {0, 1, 2, 3})
    assert found["slug"] == slug
    assert (found["virtualised"], found["emulated"], found["cores"]) == (False, False, 4)


def test_nothing_there_still_describes(tmp_path: Path) -> None:
    found = device.describe(tmp_path, "x86_64", {}, {0})
    assert found["slug"] == "unknown-cpu-1-core"
    assert (found["ram_mb"], found["os"], found["emulated"]) == (None, None, False)
    assert device.describe(tmp_path, "armv7l", {}, {0})["target"] is None


def test_another_architectures_kernel_or_cpuinfo_is_emulation(tmp_path: Path) -> None:
    root = trees.sapphire_rapids(tmp_path)
    found = device.describe(root, "aarch64", {"QEMU_CPU": "cortex-a72"}, {0, 1})
    assert found["emulated"]
    assert found["slug"].startswith("emulated-aarch64")
    assert "x86_64" in found["emulated_how"]
    (root / "proc/sys/kernel/arch").unlink()
    assert "/proc/cpuinfo" in (device.emulation(root, "aarch64", {}) or "")


def test_newer_qemu_writes_an_arm_cpuinfo_and_is_found_by_other_signs(tmp_path: Path) -> None:
    root = trees.write(tmp_path, {"proc/cpuinfo": trees.arm_cpuinfo("asimd", [0xD08])})
    assert device.emulation(root, "aarch64", {}) is None
    assert device.emulation(root, "aarch64", {"QEMU_CPU": "cortex-a72"}) == "QEMU_CPU=cortex-a72"
    trees.write(root, {"proc/sys/fs/binfmt_misc/qemu-aarch64": "enabled\ninterpreter /usr/bin/qemu-aarch64-static\n"})
    assert "binfmt_misc" in (device.emulation(root, "aarch64", {}) or "")


def test_a_real_machine_with_qemu_installed_is_not_emulated(tmp_path: Path) -> None:
    root = trees.sapphire_rapids(tmp_path)
    trees.write(root, {"proc/sys/fs/binfmt_misc/qemu-aarch64": "enabled\n"})
    assert device.emulation(root, "x86_64", {"QEMU_CPU": "cortex-a72"}) is None


def test_qemu_without_kvm_is_emulation(tmp_path: Path) -> None:
    trees.write(tmp_path, {"proc/cpuinfo": trees.x86_cpuinfo("QEMU TCG CPU version 2.5+", "avx2", threads=1)})
    assert "TCG" in (device.emulation(tmp_path, "x86_64", {}) or "")


def test_this_machine_answers_in_json() -> None:
    assert json.loads(json.dumps(device.describe(), allow_nan=False))["slug"]


@given(st.text())
def test_a_slug_is_a_plain_folder_name(name: str) -> None:
    slug = device.slug(name)
    assert 0 < len(slug) <= 80
    assert all(letter in "abcdefghijklmnopqrstuvwxyz0123456789-" for letter in slug)
    assert device.slug(slug) == slug
