"""The unpacker: what is whole arrives, what is not is told, and nothing is ever written outside its own folder."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgeq.deploy import unpack
from edgeq.deploy.unpack import BadBundle, check_name

MAIN = Path(unpack.__file__)
PARTS = ["..", ".", "", "a", "/", "\\", "results", " ", "\n"]
Files = dict[str, bytes]
SOME: Files = {"models/m/model.toml": b"name", "samples/big.npy": b"0123456789" * 9000, "run.sh": b"#!/bin/sh\n"}


def made(
    path: Path, files: Files = SOME, *, change: Callable[[dict[str, Any]], None] = lambda _: None,
    also: dict[str, bytes] | None = None, kind: int = stat.S_IFREG, packing: int = zipfile.ZIP_STORED,
) -> Path:  # fmt: skip
    """A bundle of ``files``; ``change`` falsifies its index, ``also`` are entries of the archive alone."""
    members = [{"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(),
                "mode": 0o755 if name.endswith(".sh") else 0o644, "part": "x"} for name, data in files.items()]  # fmt: skip
    index = {"schema": 1, "name": "edgeq-test", "members": members}
    change(index)
    texts = {**files, unpack.MAIN: MAIN.read_bytes(), unpack.INDEX: json.dumps(index).encode(), **(also or {})}
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, data in texts.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (kind | (0o755 if name.endswith(".sh") else 0o644)) << 16
            archive.writestr(info, data, packing)
    return path


def whole(folder: Path) -> bool:
    """By the tool that run.sh asks."""
    return (
        subprocess.run(["sha256sum", "--check", "--quiet", unpack.SUMS], cwd=folder, capture_output=True).returncode
        == 0
    )


def below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_new_folder_holds_the_files_with_their_modes_and_the_sums_of_all(tmp_path: Path) -> None:
    folder = unpack.unpack(made(tmp_path / "b.pyz"), tmp_path / "into")
    assert folder == tmp_path / "into" / "edgeq-test"
    assert below(folder) == {*SOME, unpack.INDEX, unpack.SUMS}
    assert all((folder / name).read_bytes() == data for name, data in SOME.items())
    assert os.access(folder / "run.sh", os.X_OK)
    assert not os.access(folder / "samples/big.npy", os.X_OK)
    assert whole(folder)
    assert (folder / unpack.SUMS).read_text().count("\n") == len(SOME) + 1
    (folder / unpack.INDEX).write_text("{}")
    assert not whole(folder)


@given(
    st.text(max_size=40)
    | st.lists(st.sampled_from(["..", ".", "", "a", "/", "\\", "results", " ", "\n"]), max_size=6).map("/".join)
)
@example("../a")
@example("/etc/passwd")
@example("a/../../b")
@example("a\x00b")
@example("\ud800")
@example("a" * 300)
@example("a/" * 1500 + "b")
def test_a_name_that_is_accepted_lies_inside(name: str) -> None:
    try:
        accepted = check_name(name)
    except BadBundle:
        return
    root = Path("/somewhere/deep")
    assert accepted == name
    assert root in Path(os.path.normpath(root / name)).parents
    assert not {"\n", "\\", "\0"} & set(name)
    assert name.split("/")[0] not in (*unpack.KEPT, unpack.INDEX, unpack.SUMS)


@pytest.mark.parametrize(
    "name",
    ["../evil", "/evil", "a/../../evil", "results/dev/run/record.json", ".venv/bin/python", "a\\b", "SHA256SUMS"],
)
def test_a_file_that_is_not_to_be_there_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadBundle, match="names a file"):
        unpack.unpack(made(tmp_path / "b.pyz", {"good": b"x", name: b"y"}), tmp_path / "into")
    assert below(tmp_path) == {"b.pyz"}


def drop_last(index: dict[str, Any]) -> None:
    index["members"].pop()


def repeat_first(index: dict[str, Any]) -> None:
    index["members"].append(index["members"][0])


def set_uid(index: dict[str, Any]) -> None:
    index["members"][0]["mode"] = 0o4755


def grow(index: dict[str, Any]) -> None:
    index["members"][1]["bytes"] += 1


def other_sum(index: dict[str, Any]) -> None:
    index["members"][1]["sha256"] = "0" * 64


def other_name(index: dict[str, Any]) -> None:
    index["name"] = "a/b"


def other_schema(index: dict[str, Any]) -> None:
    index["schema"] = 2


@pytest.mark.parametrize(
    "falsified",
    [
        {"change": drop_last},
        {"change": repeat_first},
        {"change": set_uid},
        {"change": grow},
        {"change": other_sum},
        {"change": other_name},
        {"change": other_schema},
        {"change": lambda index: index.pop("members")},
        {"also": {"unlisted": b"x"}},
        {"also": {unpack.INDEX: b"{"}},
        {"kind": stat.S_IFLNK},
        {"packing": zipfile.ZIP_DEFLATED},
        {"files": {"a": b"x", "a/b": b"y"}},
    ],
)  # fmt: skip
def test_a_bundle_that_is_not_what_it_says_writes_nothing(tmp_path: Path, falsified: dict[str, Any]) -> None:
    bundle = made(tmp_path / "b.pyz", **falsified)
    with pytest.raises(BadBundle) as refused:
        unpack.unpack(bundle, tmp_path / "into")
    assert "\n" not in refused.value.what + refused.value.why + refused.value.hint
    assert below(tmp_path) == {"b.pyz"}


@given(data=st.data())
def test_no_byte_can_be_lost_or_changed_unnoticed(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    bundle = made(folder / "b.pyz", {"one": b"first", "two": b"second"})
    content = bytearray(bundle.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        bundle.write_bytes(content[:place])
    else:
        content[place] ^= data.draw(st.integers(1, 255))
        bundle.write_bytes(content)
    try:
        unpacked = unpack.unpack(bundle, folder / "into")
    except BadBundle:
        assert below(folder) == {"b.pyz"}
    else:  # what was hit is the unpacker itself, or of no meaning: a date
        assert (unpacked / "one").read_bytes() == b"first"
        assert (unpacked / "two").read_bytes() == b"second"
        assert below(unpacked) == {"one", "two", unpack.INDEX, unpack.SUMS}


def test_a_second_bundle_replaces_edgeqs_files_and_nothing_else(tmp_path: Path) -> None:
    folder = unpack.unpack(made(tmp_path / "b.pyz", {**SOME, "wheels/old.whl": b"old"}), tmp_path)
    for name in ("results/dev/run/record.json", ".venv/bin/python", "wheels/built.whl", "models/m/fp32.dev.tuned.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    assert (
        unpack.unpack(made(tmp_path / "b.pyz", {**SOME, "run.sh": b"new", "wheels/new.whl": b"new"}), tmp_path)
        == folder
    )
    assert (folder / "run.sh").read_bytes() == b"new"
    assert {path.name for path in (folder / "wheels").iterdir()} == {"built.whl", "new.whl"}
    assert (folder / "results/dev/run/record.json").read_text() == "mine"
    assert (folder / "models/m/fp32.dev.tuned.json").read_text() == "mine"
    assert whole(folder)
    assert not list(tmp_path.glob(".partial-*"))


def test_what_is_interrupted_is_told_by_the_sums_and_mended_by_unpacking_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = unpack.unpack(made(tmp_path / "b.pyz", {**SOME, "gone": b"old"}), tmp_path)
    second = made(tmp_path / "b.pyz", {name: data + b"!" for name, data in SOME.items()})
    real, left = os.replace, iter([True, True])

    def failing(source: Any, target: Any) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(BadBundle, match="the disk is full"):
        unpack.unpack(second, tmp_path)
    monkeypatch.setattr(os, "replace", real)
    assert not whole(folder)
    unpack.unpack(second, tmp_path)
    assert whole(folder)
    assert not (folder / "gone").exists()


def test_no_file_is_written_through_a_link(tmp_path: Path) -> None:
    bundle, elsewhere = made(tmp_path / "b.pyz"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "edgeq-test").mkdir()
    (tmp_path / "edgeq-test" / "samples").symlink_to(elsewhere)
    with pytest.raises(BadBundle, match="is a link"):
        unpack.unpack(bundle, tmp_path)
    assert not list(elsewhere.iterdir())
    assert not (tmp_path / "edgeq-test" / "run.sh").exists()


def test_nothing_is_replaced_under_a_run(tmp_path: Path) -> None:
    bundle = made(tmp_path / "b.pyz")
    folder = unpack.unpack(bundle, tmp_path)
    (folder / "results" / "dev").mkdir(parents=True)
    (folder / ".state").mkdir()
    for held in (folder / "results" / "dev" / ".lock", folder / ".state" / "lock"):
        with held.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(BadBundle, match="in use"):
                unpack.unpack(bundle, tmp_path)
    assert unpack.unpack(bundle, tmp_path) == folder


def test_a_disk_that_is_too_small_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = made(tmp_path / "b.pyz")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 1000))  # type: ignore[attr-defined]
    with pytest.raises(BadBundle, match="no room"):
        unpack.unpack(bundle, tmp_path / "into")
    assert below(tmp_path) == {"b.pyz"}


def run(python: str, *args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, *map(str, args)], capture_output=True, text=True)


def test_as_a_program_it_lists_unpacks_and_complains_in_three_lines(tmp_path: Path) -> None:
    bundle = made(tmp_path / "b.pyz")
    listed = run(sys.executable, bundle, "--list")
    assert listed.returncode == 0
    assert "samples/big.npy" in listed.stdout
    assert "edgeq-test: 3 files" in listed.stdout
    assert below(tmp_path) == {"b.pyz"}
    assert run(sys.executable, bundle).returncode == 0
    assert (tmp_path / "edgeq-test" / "run.sh").is_file()
    shutil.rmtree(tmp_path / "edgeq-test")
    told = ["-c", f"import zipfile; exec(zipfile.ZipFile({str(bundle)!r}).read('__main__.py'))", "--bundle", bundle]
    assert run(sys.executable, *told).returncode == 0
    assert (tmp_path / "edgeq-test" / "run.sh").is_file()
    bad = made(tmp_path / "b.pyz", change=other_sum)
    done = run(sys.executable, bad, tmp_path / "into")
    assert done.returncode == 1
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["error", "  why", "  try"]
    assert "big.npy" in done.stderr


def old_pythons() -> Iterator[str]:
    known = [shutil.which(f"python3.{minor}") for minor in (9, 10)]
    known += map(str, Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python"))
    for python in filter(None, known):
        version = run(python, "-c", "import sys; print(*sys.version_info[:2])").stdout.split()
        if version in (["3", "9"], ["3", "10"]):
            yield python


def test_an_old_python_says_that_it_is_too_old(tmp_path: Path) -> None:
    old = list(old_pythons())
    if not old:
        pytest.skip("needs python3.9 or python3.10")
    bundle = made(tmp_path / "b.pyz")
    for python in old:
        done = run(python, bundle)
        assert done.returncode == 1
        assert done.stderr.startswith("error: Python 3.")
        assert len(done.stderr.splitlines()) == 3
        assert run(python, bundle, "--list").returncode == 0
    assert below(tmp_path) == {"b.pyz"}


def test_it_asks_for_the_python_that_edgeq_asks_for(repo: Path) -> None:
    project = tomllib.loads((repo / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={unpack.PYTHON[0]}.{unpack.PYTHON[1]}"
