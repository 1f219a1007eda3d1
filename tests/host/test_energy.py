from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.host import energy
from tests.host import trees

RANGE = 262_143_328_850


def test_only_whole_packages_count(tmp_path: Path) -> None:
    found = energy.packages(trees.x86_with_rapl(tmp_path, energy_uj=5))
    assert [(each.name, each.range_uj) for each in found] == [("package-0", RANGE)]
    assert energy.read(found) == {"package-0": 5}
    assert energy.readable(tmp_path) is True


@pytest.mark.parametrize("make", [trees.pi4_throttled, trees.sapphire_rapids, lambda root: root])
def test_devices_without_rapl_have_none(tmp_path: Path, make: object) -> None:
    assert callable(make)
    root = make(tmp_path)
    assert (energy.packages(root), energy.readable(root), energy.read([])) == ([], None, None)


def test_a_counter_that_only_root_may_read_is_told_with_its_cure(tmp_path: Path) -> None:
    counter = trees.x86_with_rapl(tmp_path) / "sys/class/powercap/intel-rapl:0/energy_uj"
    if os.geteuid() == 0:  # root reads whatever the permissions are: a file that nobody can read stands in
        counter.unlink()
        counter.mkdir()
    else:
        counter.chmod(0)
    assert energy.readable(tmp_path) is False
    assert energy.read(energy.packages(tmp_path)) is None
    assert energy.mend(tmp_path) == "sudo chmod a+r /sys/class/powercap/intel-rapl:0/energy_uj"


@given(
    st.integers(min_value=1, max_value=2**45),
    st.lists(
        st.tuples(st.integers(min_value=0, max_value=2**45), st.integers(min_value=0, max_value=2**45)), min_size=1
    ),
)
def test_energy_is_what_was_used_wherever_the_counter_began_again(turn: int, packages: list[tuple[int, int]]) -> None:
    starts = {f"package-{n}": start % turn for n, (start, _) in enumerate(packages)}
    used = {f"package-{n}": more % turn for n, (_, more) in enumerate(packages)}
    after = {name: (start + used[name]) % turn for name, start in starts.items()}
    found = energy.joules(starts, after, dict.fromkeys(starts, turn))
    assert found == pytest.approx(sum(used.values()) / 1e6)


@pytest.mark.parametrize(
    ("before", "after", "ranges"),
    [
        ({}, {}, {}),
        ({"package-0": 1}, {"package-1": 2}, {}),
        ({"package-0": 9}, {"package-0": 2}, {}),
        ({"package-0": 9}, {"package-0": 2}, {"package-0": None}),
        ({"package-0": 9}, {"package-0": 2}, {"package-0": 5}),
    ],
)
def test_readings_that_do_not_fit_give_no_energy(
    before: dict[str, int], after: dict[str, int], ranges: dict[str, int | None]
) -> None:
    assert energy.joules(before, after, ranges) is None
