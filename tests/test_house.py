"""The rules of the house, read off the imports of every module."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "edgeq"
FRAMEWORKS = {
    "ai_edge_litert", "ai_edge_quantizer", "litert_quantizer", "litert_torch", "nncf", "onnx", "onnxconverter_common",
    "onnxruntime", "openvino", "tflite_runtime", "torch", "torchao", "torchvision",
}  # fmt: skip
MODULES = sorted(PACKAGE.rglob("*.py"))


def _imports(path: Path, *, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found = set()
    for node in nodes:
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def _rooms(path: Path) -> set[str]:
    return {name.split(".")[1] for name in _imports(path) if name.startswith("edgeq.") and name.count(".") >= 1}


def _id(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", MODULES, ids=_id)
def test_no_framework_is_imported_at_the_top_of_a_module(path: Path) -> None:
    assert not {name.split(".")[0] for name in _imports(path, top_level_only=True)} & FRAMEWORKS


@pytest.mark.parametrize("path", MODULES, ids=_id)
def test_each_room_knows_only_its_own(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    forbidden = {
        "spec": {
            "artifact",
            "backends",
            "cli",
            "data",
            "deploy",
            "explain",
            "export",
            "files",
            "host",
            "loadgen",
            "report",
            "run",
            "setting",
            "tune",
        },
        "backends": {"cli", "deploy", "explain", "export", "loadgen", "report", "run", "setting", "tune"},
        "loadgen": {"backends", "cli", "data", "deploy", "explain", "export", "report", "run", "setting", "tune"},
        "report": {"backends", "cli", "data", "deploy", "explain", "export", "host", "loadgen", "tune"},
        "run": {"cli", "deploy", "explain", "export", "report", "tune"},
        "export": {"cli", "deploy", "explain", "loadgen", "report", "run", "tune"},
        "data": {"backends", "cli", "deploy", "explain", "loadgen", "report", "run", "setting", "tune"},
        "host": {
            "backends",
            "cli",
            "data",
            "deploy",
            "explain",
            "export",
            "loadgen",
            "report",
            "run",
            "setting",
            "tune",
        },
        "explain": {"cli", "deploy", "export", "loadgen", "report", "run", "tune"},
        "tune": {"cli", "deploy", "explain", "export", "loadgen", "report"},
        "deploy": {"cli", "explain", "export", "loadgen", "report", "setting", "tune"},
    }.get(room, set())
    assert not _rooms(path) & forbidden


@pytest.mark.parametrize("name", ["unpack.py", "attend.py"])
def test_what_a_bundle_starts_with_needs_python_alone(name: str) -> None:
    path = PACKAGE / "deploy" / name
    assert {each.split(".")[0] for each in _imports(path)} <= sys.stdlib_module_names
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))


@pytest.mark.parametrize("path", [m for m in MODULES if m.parent.name == "deploy"], ids=_id)
def test_deploying_runs_nothing_by_itself(path: Path) -> None:
    """Of the room that measures it knows only which samples it takes."""
    assert {name for name in _imports(path) if name.startswith("edgeq.run")} <= {"edgeq.run.samples"}


@pytest.mark.parametrize("path", [m for m in MODULES if m.parent.name == "backends"], ids=_id)
def test_a_backend_imports_its_own_framework_only(path: Path) -> None:
    allowed = {
        "openvino": {"openvino"},
        "tflite": {"ai_edge_litert", "tflite_runtime"},
        "onnxruntime": {"onnxruntime", "onnx"},
        "pytorch": {"torch"},
    }.get(path.stem.split("_")[0], set())
    assert {name.split(".")[0] for name in _imports(path)} & FRAMEWORKS <= allowed


def test_the_command_line_answers_without_any_framework() -> None:
    code = (
        "import sys\n"
        "from edgeq.cli.main import cli\n"
        "for verb in ('run', 'export', 'report', 'doctor', 'explain', 'sweep', 'tune', 'bundle', 'deploy'):\n"
        "    cli.main([verb, '--help'], standalone_mode=False)\n"
        f"heavy = {sorted(FRAMEWORKS | {'pandas', 'numpy', 'PIL', 'mlperf_loadgen'})!r}\n"
        "print('loaded:', [name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("loaded: []")
