"""pytorch/pytorch#123507 and #180679: no quantized engine, or x86's, chosen on ARM."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from edgeq.backends import open_session
from edgeq.backends.session import SessionOptions
from edgeq.spec.errors import EdgeqError
from tests.export.exported import sqnr_db
from tests.traps.conftest import Artifact

torch = pytest.importorskip("torch")


def test_the_engine_is_the_architecture_s_whatever_the_artifact_was_made_for(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "qnnpack" not in torch.backends.quantized.supported_engines:
        pytest.skip("this build of torch has no QNNPACK")
    made = artifact("pytorch", "int8-static", "aarch64")
    former = torch.backends.quantized.engine
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    try:
        session = open_session(
            made.manifest.model_copy(update={"details": {**made.manifest.details, "engine": "x86"}}), made.path,
            SessionOptions(threads=1),
        )  # fmt: skip
        found = np.concatenate([session.infer(sample[None]) for sample in made.samples])
        effective = session.effective()
        session.close()
    finally:
        torch.backends.quantized.engine = former
    assert effective.extra["quantized_engine"] == "qnnpack"
    assert effective.extra["exported_for_engine"] == "x86"
    assert sqnr_db(found, made.logits) > 15


def test_without_an_engine_there_is_an_error_and_no_answer(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    made = artifact("pytorch", "int8-static", "aarch64")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(type(torch.backends.quantized), "supported_engines", ["none"], raising=False)
    with pytest.raises(EdgeqError) as caught:
        open_session(made.manifest, made.path, SessionOptions(threads=1))
    assert caught.value.code == "no-quantized-engine"
