"""mlcommons/inference#1264: accuracy of zero on aarch64, noticed last of all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeq.artifact import Check
from edgeq.report.gating import gate
from edgeq.run.canary import check_output
from edgeq.spec.errors import EdgeqError
from tests.manifests import manifest
from tests.traps.cells import trial
from tests.traps.conftest import Artifact


@pytest.mark.parametrize("codes", [["low-agreement"], ["output-differs"], ["unstable-output"]])
def test_a_cell_that_does_not_agree_with_float_has_no_rank(codes: list[str]) -> None:
    assert gate("ok", codes, None, True) == tuple(codes)
    assert gate("ok", [], None, True) == ()


def test_nor_has_one_that_loses_accuracy() -> None:
    assert gate("ok", [], 0.8, True) == ("accuracy-loss",)


def test_a_device_that_computes_something_else_is_told_before_it_is_timed() -> None:
    expected = np.random.default_rng(0).normal(size=(4, 50)).astype(np.float32)
    found = np.random.default_rng(1).normal(size=(4, 50)).astype(np.float32)
    exported = Check(
        n=4, sqnr_db=20, max_rel_error=0, top1_agreement=1, macs={"fp32": 1}, quantized_macs=0, size_ratio=1
    )
    with pytest.raises(EdgeqError) as caught:
        check_output(found, expected, manifest(check=exported))
    assert caught.value.code == "output-differs"
    _, notes = check_output(found, expected, manifest(scheme="int8-static", check=exported))
    assert [note.code for note in notes] == ["output-differs", "low-agreement"]
    with pytest.raises(EdgeqError):  # the dead output of the thread
        check_output(np.zeros_like(expected), expected, manifest(scheme="int8-static", check=exported))


def test_each_cell_is_compared_on_its_own_device(artifact: Artifact, repo: Path, tmp_path: Path) -> None:
    found = trial(artifact("onnxruntime", "fp32"), repo, tmp_path)
    session = found.load()
    assert found.manifest is not None
    reference, first = found.first(session, None)  # type: ignore[arg-type]
    session.close()
    assert found.expected is not None
    assert len(reference) == len(found.expected)
    np.testing.assert_allclose(first, found.expected[:1], rtol=1e-3, atol=1e-3)
