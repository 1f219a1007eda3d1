from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from edgeq.files import atomic_path, sha256_file, sha256_json, write_error, write_json, write_text
from edgeq.spec.errors import EdgeqError


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_text(path, "old")

    def write_half() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("half of it")
            raise RuntimeError("amid")

    with pytest.raises(RuntimeError, match="amid"):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.json"
    write_text(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EdgeqError) as caught:
        write_text(path, "new")
    assert caught.value.code == "disk-full"
    assert "--resume" in caught.value.hint
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EdgeqError) as caught:
        write_text(tmp_path / "file" / "record.json", "x")
    assert caught.value.code == "cannot-write"
    assert str(tmp_path / "file") in caught.value.what


def test_json_has_no_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"top1": float("nan")})
    assert not list(tmp_path.iterdir())


def test_json_reads_back(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"µ": [1.5, None]})
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == {"µ": [1.5, None]}


def test_hashes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256_file(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_json({"a": 1, "b": 2}) == sha256_json({"b": 2, "a": 1})


def test_other_errors_name_the_folder() -> None:
    assert "results" in write_error(Path("results/x"), PermissionError(errno.EACCES, "Permission denied")).hint
