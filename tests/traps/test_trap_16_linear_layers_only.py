"""pytorch/tutorials#899: dynamic quantization leaves the convolutions in float."""

from __future__ import annotations

import pytest

from edgeq.backends import open_session
from edgeq.backends.session import SessionOptions
from edgeq.report.numbers import precision_label
from tests.traps.conftest import Artifact


def test_the_label_says_how_little_of_it_is_int8(artifact: Artifact) -> None:
    made = artifact("pytorch", "int8-dynamic")
    session = open_session(made.manifest, made.path, SessionOptions(threads=1))
    macs = session.effective().macs
    session.close()
    layers = made.manifest.layers
    linear = sum(layer.macs for layer in layers if layer.op == "linear") / sum(layer.macs for layer in layers)
    assert macs == pytest.approx({"fp32": 1 - linear, "int8": linear})
    label = precision_label("int8-dynamic", macs, "pytorch")
    assert label.startswith("int8-dynamic (linear layers only, ")
    assert "of MACs in int8" in label
