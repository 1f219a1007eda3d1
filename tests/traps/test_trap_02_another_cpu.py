"""microsoft/onnxruntime#5849: the same INT8 file right on a VNNI host, wrong on another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeq.host.device import describe
from tests.traps.cells import trial
from tests.traps.conftest import Artifact


@pytest.mark.parametrize(("device", "codes"), [("x86_64-vnni", []), ("x86_64", ["target-mismatch"])])
def test_a_device_says_that_the_file_was_made_for_another(
    artifact: Artifact, repo: Path, tmp_path: Path, device: str, codes: list[str]
) -> None:
    found = trial(artifact("onnxruntime", "int8-static"), repo, tmp_path, target=device)
    found.load().close()
    assert [note.code for note in found.notes] == codes
    assert all("--target x86_64" in note.hint for note in found.notes)
    assert found.file is not None
    written = json.loads(found.file.with_suffix(".json").read_text())
    assert written["target"] == "x86_64-vnni"
    assert set(describe()["isa"]) == set(found.known["device"]["isa"])
