from __future__ import annotations

from pathlib import Path

import pytest

from edgeq.export.memory import family_bytes, room
from tests.host import trees

#: Parameters of the networks whose families' peaks were measured.
DENSENET121, VGG19 = 7_978_856, 143_667_240


def test_a_family_takes_no_less_than_was_measured() -> None:
    assert family_bytes(DENSENET121) >= 2_000_000_000
    assert family_bytes(VGG19) >= 5_000_000_000


@pytest.mark.parametrize(
    ("gigabytes", "small", "large"),
    [(1, 0, 0), (4, 1, 0), (8, 2, 1), (16, 5, 2)],
)
def test_how_many_fit_into_a_control_groups_limit(tmp_path: Path, gigabytes: int, small: int, large: int) -> None:
    root = trees.sapphire_rapids(tmp_path)
    group = "sys/fs/cgroup/job"
    limit = {f"{group}/memory.max": str(gigabytes * 10**9), f"{group}/memory.current": "0", f"{group}/memory.stat": ""}
    trees.write(root, {"proc/self/cgroup": "0::/job\n", **limit})
    found = room(root)
    assert found is not None
    assert (found // family_bytes(DENSENET121), found // family_bytes(VGG19)) == (small, large)


def test_a_machine_that_does_not_tell_sets_no_limit(tmp_path: Path) -> None:
    assert room(tmp_path) is None
