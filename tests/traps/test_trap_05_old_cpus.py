"""microsoft/onnxruntime#17389: INT8 no faster than FP32 on a CPU without VNNI; an old opset that nothing fuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeq.backends import open_session
from edgeq.backends.session import SessionOptions
from edgeq.host.device import describe
from edgeq.run import diagnosis
from tests.host import trees
from tests.traps.conftest import Artifact


@pytest.mark.parametrize(("tree", "told"), [(trees.epyc, True), (trees.sapphire_rapids, False)])
def test_doctor_says_what_to_expect_without_vnni(tmp_path: Path, tree: object, told: bool) -> None:
    assert callable(tree)
    root = tree(tmp_path)
    diagnosed = diagnosis.diagnose(probe=False, root=root, device=describe(root, "x86_64", {}, {0, 1}))
    found = {finding.note.code: finding.note for finding in diagnosed.findings}
    assert ("no-vnni" in found) is told
    if told:
        assert "INT8 gains are small" in found["no-vnni"].text
        assert "--target" in found["no-vnni"].hint


def test_the_opset_is_current_and_all_of_it_is_fused(artifact: Artifact) -> None:
    onnx = pytest.importorskip("onnx")
    made = artifact("onnxruntime", "int8-static")
    (opset,) = (entry.version for entry in onnx.load(made.path).opset_import if entry.domain in ("", "ai.onnx"))
    assert opset >= 17
    session = open_session(made.manifest, made.path, SessionOptions(threads=1))
    assert session.effective().macs == {"int8": 1.0}
    session.close()
