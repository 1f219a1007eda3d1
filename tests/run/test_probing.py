"""Probing children: results are kept, deaths are told, and doctor draws the right conclusions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeq.backends import probes
from edgeq.events import Child
from edgeq.files import cache_dir
from edgeq.host.device import describe
from edgeq.run import probing
from edgeq.run.diagnosis import _probed
from edgeq.run.probing import BackendProbes, Found, probe_backends
from edgeq.run.record import ProbeInfo
from tests.run.conftest import no_child

#: An ``onnxruntime`` that dies of an illegal instruction: where it is imported, or where it loads one of the probes.
DYING = """
import enum, os
from unittest.mock import MagicMock
if {at_import}:
    os.kill(os.getpid(), 4)
class ExecutionMode(enum.Enum):
    ORT_SEQUENTIAL = 0
class GraphOptimizationLevel(enum.Enum):
    ORT_ENABLE_ALL = 0
SessionOptions = MagicMock
def InferenceSession(path, *args, **options):
    if "u8s8" in path:
        os.kill(os.getpid(), 4)
    raise RuntimeError("not a framework")
"""


pytestmark = pytest.mark.usefixtures("fresh_cache")


@pytest.mark.usefixtures("needs_tflite")
def test_every_probe_runs_once_and_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    device, steps = describe(), []
    first = probe_backends(["tflite"], device, 1, lambda backend, step: steps.append((backend, step)))
    assert [found.name for found in first["tflite"].found] == list(probes.PROBES["tflite"])
    assert steps == [("tflite", step) for step in ("import", *probes.PROBES["tflite"])]
    assert first["tflite"].note is None
    by_name = {found.name: found for found in first["tflite"].found}
    assert by_name["fp16"].computes == {"fp32": 1.0}
    assert by_name["fp16"].probe is None
    assert by_name["int8-static"].computes == {"int8": 1.0}
    assert by_name["int8-static"].probe is not None
    assert by_name["int8-static"].probe.ok
    monkeypatch.setattr(Child, "start", no_child)
    assert probe_backends(["tflite"], device, 1) == first


@pytest.mark.usefixtures("needs_tflite")
def test_kept_results_hang_on_what_can_change_them(monkeypatch: pytest.MonkeyPatch) -> None:
    device = describe()
    first = probe_backends(["tflite"], device, 1)
    monkeypatch.setattr(Child, "start", no_child)
    other_isa = {**device, "isa": ["avx2"]}
    with pytest.raises(AssertionError, match="started"):
        probe_backends(["tflite"], other_isa, 1)
    with pytest.raises(AssertionError, match="started"):
        probe_backends(["tflite"], device, 2)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    with pytest.raises(AssertionError, match="started"):
        probe_backends(["tflite"], device, 1)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    assert probe_backends(["tflite"], device, 1) == first
    (file,) = (cache_dir() / "probes").glob("tflite-*.json")
    file.write_text(file.read_text()[:50])
    with pytest.raises(AssertionError, match="started"):
        probe_backends(["tflite"], device, 1)


@pytest.mark.usefixtures("needs_tflite")
def test_a_cell_is_told_what_doctor_found() -> None:
    device = describe()
    assert probing.kept_probe("tflite", "int8-static", device, 1) is None
    (found,) = (each for each in probe_backends(["tflite"], device, 1)["tflite"].found if each.name == "int8-static")
    kept = probing.kept_probe("tflite", "int8-static", device, 1)
    assert kept is not None
    assert (probing.info(kept), kept.layer) == (found.probe, found.layer)
    assert probing.kept_probe("tflite", "int8-static", device, 2) is None


@pytest.mark.usefixtures("needs_tflite")
def test_a_cache_that_cannot_be_written_costs_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDGEQ_CACHE", str(tmp_path / "file"))
    found = probe_backends(["tflite"], describe(), 1)["tflite"]
    assert len(found.found) == len(probes.PROBES["tflite"])
    assert found.note is not None
    assert found.note.code == "cannot-write"


def _dying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo: Path, *, at_import: bool) -> BackendProbes:
    (tmp_path / "onnxruntime").mkdir()
    (tmp_path / "onnxruntime" / "__init__.py").write_text(DYING.format(at_import=at_import))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{repo}")
    monkeypatch.setattr(probing, "installed", lambda _: {"onnxruntime": "0"})
    return probe_backends(["onnxruntime"], describe(), 1)["onnxruntime"]


def test_a_framework_that_dies_at_its_import_is_told_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo: Path
) -> None:
    found = _dying(tmp_path, monkeypatch, repo, at_import=True)
    assert found.found == []
    assert found.note is not None
    assert found.note.code == "illegal-instruction"
    assert "onnxruntime>=1.22" in found.note.hint
    assert _probed(found, "aarch64")[0].wrong
    assert not list((cache_dir() / "probes").glob("*")), "a failure is not kept"


def test_a_probe_that_kills_its_child_takes_no_other_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo: Path
) -> None:
    found = _dying(tmp_path, monkeypatch, repo, at_import=False)
    assert found.note is None
    assert [each.name for each in found.found] == list(probes.PROBES["onnxruntime"])
    codes = {each.name: [note.code for note in each.notes] for each in found.found}
    assert codes.pop("int8-static-u8s8") == ["illegal-instruction"]
    assert set(map(tuple, codes.values())) == {("load-failed",)}


def _result(backend: str, wrong: set[str]) -> BackendProbes:
    return BackendProbes(
        backend=backend,
        found=[
            Found(
                name=name,
                scheme=probes.PROBES[backend][name].scheme,
                words=probes.PROBES[backend][name].words,
                probe=ProbeInfo(
                    recipe=name, expected=63.36, found=32.3 if name in wrong else 63.36, ok=name not in wrong
                ),
                layer="1x1 convolution",
                computes={"int8": 1.0},
            )
            for name in probes.recipes(backend)
        ],
    )


def test_where_export_picks_an_exact_recipe_saturation_is_a_note() -> None:
    (finding,) = _probed(_result("onnxruntime", {"int8-static-u8s8", "int8-static-s8s8"}), "x86_64")
    assert not finding.wrong
    assert finding.note.code == "saturation"
    assert "s8 x s8" in finding.note.text
    assert finding.note.hint.startswith("edgeq export picks int8-static (u8 x u8) here, which is exact")
    assert "edgeq export --backend onnxruntime --scheme int8-static --target x86_64" in finding.note.hint


def test_where_export_picks_a_recipe_that_saturates_something_is_wrong() -> None:
    (finding,) = _probed(_result("onnxruntime", {"int8-static-u8s8"}), "x86_64-vnni")
    assert finding.wrong
    assert finding.note.hint.startswith("run: edgeq export --backend onnxruntime")


def test_a_cured_recipe_that_still_saturates_is_said_to() -> None:
    (finding,) = _probed(_result("openvino", {"int8-static-nofix", "int8-static-first"}), "x86_64")
    assert not finding.wrong
    assert "already the recipe for x86_64" in finding.note.hint
    (finding,) = _probed(_result("openvino", {"int8-static-nofix", "int8-static-first"}), "x86_64-vnni")
    assert finding.note.hint.endswith("(it saturates less, but does too)")


def test_exact_probes_are_no_finding() -> None:
    assert _probed(_result("pytorch", set()), "x86_64") == []


def test_results_are_json() -> None:
    found = _result("tflite", {"int8-static"})
    assert BackendProbes.model_validate(json.loads(found.model_dump_json())) == found
