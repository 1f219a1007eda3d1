"""What is said once of a device before a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeq.host.device import describe
from edgeq.run.expectations import expectations
from tests.host import trees


def _codes(device: dict[str, object], *schemes: str) -> set[str]:
    return {note.code for note in expectations(device, schemes)}


def test_a_pi_4_has_no_dot_product_and_a_pi_5_has(tmp_path: Path) -> None:
    four = describe(trees.pi4(tmp_path / "4"), "aarch64", {}, {0, 1, 2, 3})
    five = describe(trees.pi5(tmp_path / "5"), "aarch64", {}, {0, 1, 2, 3})
    assert _codes(four, "fp32", "int8-static") == {"no-dotprod"}
    assert _codes(four, "fp32", "fp16") == {"no-fp16"}
    assert _codes(four, "fp32") == set()
    assert _codes(five, "fp32", "fp16", "int8-static", "int8-dynamic") == set()
    (note,) = expectations(four, ("int8-static",))
    assert "INT8 gains are small" in note.text
    assert "Cortex-A72" in note.text


@pytest.mark.parametrize(("tree", "told"), [(trees.epyc, True), (trees.sapphire_rapids, False)])
def test_a_pc_without_vnni(tree: object, told: bool, tmp_path: Path) -> None:
    assert callable(tree)
    device = describe(tree(tmp_path), "x86_64", {}, {0, 1})
    assert ("no-vnni" in _codes(device, "int8-static")) is told
