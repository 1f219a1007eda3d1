"""Every pinned package that a device installs has a wheel for each Python that Raspberry Pi OS and Debian carry."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.device import environments

pytestmark = pytest.mark.e2e

#: No torch: it is asked for by name, and has pins of its own on ARM.
EXTRAS = ("tflite", "onnxruntime", "openvino")
#: Debian bookworm's C library is 2.36, trixie's 2.41.
GLIBC = range(17, 37)


def _platforms(machine: str) -> list[str]:
    names = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC] + [f"manylinux2014_{machine}"]
    return [word for name in names for word in ("--platform", name)]


def _without_wheel(requirement: str, machine: str) -> bool:
    """LoadGen's only wheels are for x86-64: on ARM it is built from source."""
    return machine == "aarch64" and requirement.startswith("mlcommons-loadgen")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_all_pins_have_a_wheel(version: str, machine: str, tmp_path: Path, repo: Path) -> None:
    wanted = [line for line in environments.requirements(*EXTRAS) if not _without_wheel(line, machine)]
    pins = (repo / "constraints.txt").read_text()
    # Half a minute, as pip fetches most of the wheels to read what they need. What is published stays so.
    seen = environments.kept(wanted, version, machine, pins).with_suffix(".seen")
    if seen.is_file():
        return
    report = tmp_path / "report.json"
    environments.pip(
        sys.executable, "install", "--dry-run", "--quiet", "--ignore-installed", "--target", str(tmp_path / "nowhere"),
        "--only-binary=:all:", "--implementation", "cp", "--python-version", version, *_platforms(machine),
        "--constraint", str(repo / "constraints.txt"), "--report", str(report), *wanted,
    )  # fmt: skip
    found = {
        _plain(each["metadata"]["name"]): each["metadata"]["version"]
        for each in json.loads(report.read_text())["install"]
    }
    assert set(found) >= {_plain(re.split("[<>=;]", line)[0]) for line in wanted}
    lines = [line.split("==") for line in pins.splitlines() if "==" in line and ";" not in line]
    pinned = {_plain(name): pin for name, pin in lines}
    assert {name: pinned.get(name) for name in found} == found, "something that is installed has no pin"
    seen.touch()


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-")
