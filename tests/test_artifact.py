from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgeq.artifact import (
    FileEntry,
    Reference,
    find_manifest,
    manifest_path,
    read_manifest,
    verify,
    write_manifest,
)
from edgeq.files import sha256_file
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note
from tests.manifests import manifest

NAMES = {"model": "m", "backend": "tflite", "scheme": "fp32"}


def _artifact(models: Path, target: str = "any", **changes: Any) -> Path:
    path = manifest_path(models, "m", "tflite", changes.get("scheme", "fp32"), target)
    path.parent.mkdir(parents=True, exist_ok=True)
    file, reference = path.with_suffix(".tflite"), path.parent.parent / "reference.npz"
    file.write_bytes(b"the model's bytes")
    reference.write_bytes(b"the answers")
    fields: dict[str, Any] = {
        "target": target,
        "files": [FileEntry(name=file.name, sha256=sha256_file(file), bytes=file.stat().st_size)],
        "reference": Reference(file="../reference.npz", sha256=sha256_file(reference)),
    }
    write_manifest(path, manifest(**{**fields, **changes}))
    return path


def test_a_whole_artifact_is_verified(tmp_path: Path) -> None:
    path = _artifact(tmp_path)
    assert verify(path, read_manifest(path), **NAMES) == path.with_suffix(".tflite")


def _truncate(path: Path) -> None:
    path.with_suffix(".tflite").write_bytes(b"the model")


def _swap(path: Path) -> None:
    path.with_suffix(".tflite").write_bytes(b"another's bytes!!")


def _remove(path: Path) -> None:
    path.with_suffix(".tflite").unlink()


def _swap_reference(path: Path) -> None:
    (path.parent.parent / "reference.npz").write_bytes(b"other answers")


@pytest.mark.parametrize(
    ("damage", "code"),
    [(_truncate, "truncated"), (_swap, "bad-sha256"), (_remove, "no-artifact"), (_swap_reference, "bad-sha256")],
)
def test_damage_is_told_apart_and_says_what_to_type(tmp_path: Path, damage: Any, code: str) -> None:
    path = _artifact(tmp_path)
    damage(path)
    with pytest.raises(EdgeqError) as caught:
        verify(path, read_manifest(path), **NAMES)
    assert caught.value.code == code
    assert caught.value.hint.startswith("run: edgeq export --model m --backend tflite --scheme fp32 ")


def test_another_models_artifact_is_refused(tmp_path: Path) -> None:
    path = _artifact(tmp_path, model="other")
    with pytest.raises(EdgeqError, match="other/tflite/fp32") as caught:
        verify(path, read_manifest(path), **NAMES)
    assert caught.value.code == "wrong-artifact"


def test_a_failed_export_keeps_its_reason(tmp_path: Path) -> None:
    path = _artifact(tmp_path, status="failed", reason=Note(code="x", text="the tool said no", hint="ask it again"))
    with pytest.raises(EdgeqError, match="the tool said no") as caught:
        verify(path, read_manifest(path), **NAMES)
    assert (caught.value.code, caught.value.hint) == ("export-failed", "ask it again")


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    path = _artifact(tmp_path)
    path.write_text("{")
    with pytest.raises(EdgeqError) as caught:
        read_manifest(path)
    assert caught.value.code == "bad-manifest"
    assert str(path) in caught.value.what


def test_the_devices_own_target_comes_first(tmp_path: Path) -> None:
    for target in ("x86_64", "aarch64"):
        _artifact(tmp_path, target, scheme="int8-static")
    found = find_manifest(tmp_path, "m", "tflite", "int8-static", "aarch64")
    assert found.name == "int8-static.aarch64.json"
    other = find_manifest(tmp_path, "m", "tflite", "int8-static", "x86_64-vnni")
    assert other.name == "int8-static.x86_64.json"
    with pytest.raises(EdgeqError) as caught:
        find_manifest(tmp_path, "m", "tflite", "fp16", "x86_64")
    assert caught.value.code == "no-artifact"
