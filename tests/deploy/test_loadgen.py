"""LoadGen for a device: what a bundle carries of it, and the cross compiler's work, on an extension of one function."""

from __future__ import annotations

import shutil
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.deploy import headers, loadgen
from edgeq.spec.errors import EdgeqError

AARCH64 = 183  # e_machine of ELF
SETUP = """
from setuptools import Extension, setup
setup(name="mlcommons_loadgen", version="6.0.17", ext_modules=[Extension("mlperf_loadgen", ["one.cc"], language="c++")])
"""
SOURCE = """
#include <Python.h>
#include <string>
static PyObject* one(PyObject*, PyObject*) { return PyLong_FromLong(std::string("1").size()); }
static PyMethodDef methods[] = {{"one", one, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "mlperf_loadgen", "", -1, methods};
PyMODINIT_FUNC PyInit_mlperf_loadgen() { return PyModule_Create(&module); }
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEQ_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_x86_takes_the_published_wheels(cache: Path) -> None:
    assert loadgen.packed("x86_64-vnni", lambda _: None) == ([], [])


def test_a_wheel_that_was_built_before_is_taken(cache: Path) -> None:
    kept = cache / "wheels/mlcommons_loadgen-6.0.17-cp311-cp311-manylinux_2_36_aarch64.whl"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"built before")
    assert loadgen.wheel("6.0.17", "3.11", "aarch64") == kept


def test_without_a_cross_compiler_the_bundle_carries_the_source_and_says_so(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = cache / "wheels/source/mlcommons_loadgen-6.0.17.tar.gz"
    builder = cache / "wheels/builders/pybind11-2.11.1-py3-none-any.whl"
    for file in (source, builder):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"")
    monkeypatch.setattr(loadgen.metadata, "version", lambda _: "6.0.17")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    files, notes = loadgen.packed("aarch64", lambda _: None)
    assert files == [source, builder]
    assert [note.code for note in notes] == ["no-cross-compiler"] * len(headers.RELEASES)
    assert "apt install g++-aarch64-linux-gnu" in notes[0].hint


def test_a_python_that_no_release_carries_has_no_headers(cache: Path) -> None:
    with pytest.raises(EdgeqError, match=r"carries Python 3\.12") as caught:
        headers.python_headers("3.12", "aarch64")
    assert caught.value.code == "no-headers"


@pytest.mark.parametrize(
    "text",
    [
        "deb [signed-by=/usr/share/keyrings/a.gpg] http://archive.example/debian bookworm main\n",
        "Types: deb\nURIs: http://security.example/debian-security\nSuites: bookworm-security\nComponents: main\n\n"
        "# a comment\nTypes: deb\nURIs: http://archive.example/debian\nSuites: bookworm bookworm-updates\n"
        "Components: main\nSigned-By: /usr/share/keyrings/a.gpg\n",
    ],
)
def test_another_release_comes_from_this_machines_own_archive(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"debian{'.list' if text.startswith('deb ') else '.sources'}").write_text(text)
    monkeypatch.setattr(headers, "_SOURCES", (str(tmp_path),))
    assert list(headers._sources("trixie")) == [
        "deb [signed-by=/usr/share/keyrings/a.gpg] http://archive.example/debian trixie main"
    ]


@given(st.lists(st.tuples(st.integers(2, 3), st.integers(0, 99)), max_size=20), st.binary(max_size=50))
def test_a_library_needs_the_newest_glibc_that_it_names(versions: list[tuple[int, int]], other: bytes) -> None:
    named = b"\0".join(f"GLIBC_{major}.{minor}".encode() for major, minor in versions)
    expected = max([(2, 17), *versions])
    assert loadgen.newest_glibc(other.replace(b"GLIBC_", b"") + b"\0" + named + b"\0") == expected


def test_the_cross_compiler_makes_a_wheel_for_the_device(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("aarch64-linux-gnu-g++") is None:
        pytest.skip("needs a cross compiler: apt install g++-aarch64-linux-gnu")
    try:
        include = headers.python_headers("3.13", "aarch64")
    except EdgeqError as error:
        pytest.skip(f"needs Python's headers for aarch64: {error.why}")
    monkeypatch.setenv("EDGEQ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(loadgen, "python_headers", lambda _python, _target: include)
    project = tmp_path / "project"
    project.mkdir()
    (project / "setup.py").write_text(SETUP)
    (project / "one.cc").write_text(SOURCE)
    monkeypatch.setattr(loadgen, "sdist", lambda _: project)
    made = loadgen.wheel("6.0.17", "3.13", "aarch64")
    assert made.name.startswith("mlcommons_loadgen-6.0.17-cp313-cp313-manylinux_2_")
    assert made.name.endswith("_aarch64.whl")
    with zipfile.ZipFile(made) as archive:
        library = archive.read("mlperf_loadgen.cpython-313-aarch64-linux-gnu.so")
    assert struct.unpack("<H", library[18:20]) == (AARCH64,)
    assert b"libstdc++.so" not in library
