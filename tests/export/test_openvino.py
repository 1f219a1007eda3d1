from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeq.artifact import TARGETS
from edgeq.backends.session import SessionOptions
from edgeq.export import openvino as exporter
from edgeq.spec.names import SCHEMES
from tests.export.exported import Exported, export, sqnr_db

pytest.importorskip("openvino")
pytest.importorskip("nncf")
pytest.importorskip("torch")


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exported]:
    folder = tmp_path_factory.mktemp("openvino")
    return {scheme: export("openvino", scheme, folder, target="x86_64") for scheme in SCHEMES}


def logits(exported: Exported) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    from edgeq.backends.openvino import open_session

    session = open_session(exported.manifest, exported.path, SessionOptions(1))
    try:
        return session.infer(exported.samples)
    finally:
        session.close()


@pytest.mark.parametrize("scheme", ["fp32", "fp16", "int8-dynamic"])
def test_only_static_int8_depends_on_the_target(scheme: str) -> None:
    recipes = [exporter.recipe(scheme, target) for target in TARGETS]
    assert recipes[0] == recipes[1] == recipes[2]
    assert recipes[0].target == "any"


def test_only_x86_without_vnni_gives_up_a_bit_of_its_weights() -> None:
    fixes = {target: exporter.recipe("int8-static", target).settings["overflow_fix"] for target in TARGETS}
    assert fixes == {"x86_64": "first_layer_only", "x86_64-vnni": "disable", "aarch64": "disable"}
    assert [exporter.recipe("int8-static", target).target for target in TARGETS] == list(TARGETS)


def test_a_recipe_needs_no_framework() -> None:
    code = (
        "import sys; from edgeq.export.openvino import recipe; recipe('int8-static', 'x86_64');"
        "assert not {'torch', 'openvino', 'nncf'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_float_model_is_torch_s(artifacts: dict[str, Exported]) -> None:
    found = artifacts["fp32"]
    assert np.abs(logits(found) - found.logits).max() / np.abs(found.logits).max() < 1e-4


@pytest.mark.parametrize(("scheme", "least_db"), [("fp16", 40), ("int8-static", 15), ("int8-dynamic", 15)])
def test_other_schemes_stay_close_to_float(artifacts: dict[str, Exported], scheme: str, least_db: float) -> None:
    assert sqnr_db(logits(artifacts[scheme]), artifacts[scheme].logits) > least_db


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_artifact_is_an_xml_and_its_bin(artifacts: dict[str, Exported], scheme: str) -> None:
    names = [entry.name for entry in artifacts[scheme].manifest.files]
    assert names == [f"{scheme}.xml", f"{scheme}.bin"]
    assert sorted(names) == sorted(path.name for path in artifacts[scheme].path.parent.iterdir())


def test_weights_are_stored_as_the_scheme_says(artifacts: dict[str, Exported]) -> None:
    stored = {scheme: artifacts[scheme].manifest.details["constant_bytes"] for scheme in SCHEMES}
    weights = sum(part.numel() for part in _weights())
    assert stored["fp32"].get("f32", 0) >= 4 * weights
    assert stored["fp16"].get("f16", 0) >= 2 * weights
    assert "f32" not in stored["fp16"]
    assert stored["int8-static"]["i8"] == weights
    assert stored["int8-dynamic"]["i8"] == weights


def _weights() -> list[Any]:
    from torch import nn

    from tests.export.exported import network

    return [part.weight for part in network().modules() if isinstance(part, nn.Conv2d | nn.Linear)]


def test_export_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for scheme in ("int8-static", "int8-dynamic"):
        export("openvino", scheme, tmp_path)
    assert capfd.readouterr().out == ""
