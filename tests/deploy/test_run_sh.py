"""``run.sh``: checks before it runs, sets up once, and names the one command that mends what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgeq.deploy import unpack


@pytest.fixture
def board(bundle: Path, tmp_path: Path) -> Path:
    """An unpacked bundle that no environment has been made or chosen for."""
    return unpack.unpack(bundle, tmp_path / "board")


def run_sh(board: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "EDGEQ_CACHE", "EDGEQ_PYTHON")}
    return subprocess.run(
        ["sh", str(board / "run.sh"), *args],
        cwd="/",
        env={**env, **environ},
        capture_output=True,
        text=True,
        timeout=300,
    )


def three_lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 1, done.stderr
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["error", "  why", "  try"], done.stderr
    return [line.split(": ", 1)[1] for line in done.stderr.splitlines()]


def test_it_runs_the_bundles_edgeq_in_an_environment_that_is_there(board: Path) -> None:
    first = run_sh(board, "setup", EDGEQ_PYTHON=sys.executable)
    assert first.returncode == 0, first.stderr
    site = board / ".state" / "site"
    made = site.stat().st_ino
    listed = run_sh(board, "run", "--list", "--scenario", "offline")
    assert listed.returncode == 0, listed.stderr
    assert "tiny/tflite/int8-static/offline" in listed.stdout
    assert site.stat().st_ino == made  # set up once, and the choice is remembered
    assert (site / "edgeq" / "deploy" / "run.sh").is_file()  # the wheel is whole
    assert not (board / ".venv").exists()


def test_it_measures_with_the_bundles_own_code_and_samples(board: Path) -> None:
    cache = board / "cache" / "samples"
    before = {path.name: path.stat().st_mtime_ns for path in cache.iterdir()}
    asked = ["run", "--backend", "null", "--scenario", "offline"]
    done = run_sh(board, *asked, EDGEQ_PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    assert "1 cells: 1 ok" in done.stderr
    assert {path.name: path.stat().st_mtime_ns for path in cache.iterdir()} == before  # none was made anew
    assert len(list(board.glob("results/*/*/none/null/none/offline/record.json"))) == 1


@pytest.mark.parametrize(("code", "verbs"), [(0, "doctor run report"), (1, "doctor run report"), (2, "doctor run")])
def test_without_a_verb_it_does_all_of_them(board: Path, tmp_path: Path, code: int, verbs: str) -> None:
    log, python = tmp_path / "log", tmp_path / "python"
    python.write_text(f"""#!/bin/sh
[ "$1 $2" = "-m edgeq" ] || exec {sys.executable} "$@"
echo "$3" >>{log}
if [ "$3" = run ]; then echo "$PYTHONPATH" "$EDGEQ_CACHE" "$@" >>{log}.run; exit {code}; fi
[ "$3" = report ]
""")
    python.chmod(0o755)
    done = run_sh(board, "--model", "tiny", "--threads", "1", EDGEQ_PYTHON=str(python))
    assert done.returncode == code, done.stderr
    assert log.read_text().split() == verbs.split()
    said = Path(f"{log}.run").read_text().split()
    assert said == [
        f"{board}/.state/site",
        f"{board}/cache",
        *["-m", "edgeq", "run", "--model", "tiny", "--threads", "1"],
    ]


@pytest.mark.parametrize("name", ["models/tiny/artifacts/tflite/fp16.tflite", "bundle.json", "scenarios/quick.toml"])
def test_nothing_runs_where_a_byte_differs(board: Path, name: str) -> None:
    path = board / name
    path.write_bytes(path.read_bytes() + b" ")
    what, why, _ = three_lines(run_sh(board, "doctor", EDGEQ_PYTHON=sys.executable))
    assert "not whole" in what
    assert name in why
    assert not (board / ".state" / "stamp").exists()


def test_it_says_which_words_it_knows(board: Path) -> None:
    what, why, _ = three_lines(run_sh(board, "rum"))
    assert "rum" in what
    assert "setup, doctor, run, report" in why


def bench(tmp_path: Path, python: str, machine: str = "", tools: tuple[str, ...] = ()) -> str:
    """A PATH with what run.sh uses, ``tools``, a ``python3`` that is the script ``python``, and an own ``uname``."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in (
        "sh",
        "mkdir",
        "sha256sum",
        "cut",
        "cat",
        "head",
        "ls",
        "rm",
        "mv",
        "grep",
        "dirname",
        "uname",
        *tools,
    ):
        (folder / name).symlink_to(shutil.which(name) or name)
    scripts = {"python3": python, **({"uname": f"echo {machine}"} if machine else {})}
    for name, text in scripts.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return str(folder)


BARE = f"""
case "$*" in
    *ensurepip* | *Python.h*) exit 1 ;;
    *) exec {sys.executable} "$@" ;;
esac"""


def test_one_command_mends_all_that_the_set_up_lacks(board: Path, tmp_path: Path) -> None:
    what, _, hint = three_lines(run_sh(board, "setup", PATH=bench(tmp_path, BARE, "aarch64")))
    assert what == "the set-up needs python3-venv g++ python3-dev"
    assert hint == "sudo apt install python3-venv g++ python3-dev"
    assert not (board / ".venv").exists()


def test_with_a_wheel_of_loadgen_no_compiler_is_asked_for(board: Path, tmp_path: Path) -> None:
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    (board / "wheels" / f"mlcommons_loadgen-6.0.17-{tag}-{tag}-linux_aarch64.whl").write_bytes(b"")
    what, _, hint = three_lines(run_sh(board, "setup", PATH=bench(tmp_path, BARE, "aarch64")))
    assert what == "the set-up needs python3-venv"
    assert hint == "sudo apt install python3-venv"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("sys.version_info = (3, 9, 2)", "is too old"),
        ("import platform; platform.machine = lambda: 'armv7l'", "this bundle is for"),
        ("import struct; struct.calcsize = lambda _: 4", "32 bits"),
    ],
)
def test_a_machine_that_it_is_not_for_is_told_before_anything_is_installed(
    board: Path, tmp_path: Path, change: str, says: str
) -> None:
    script = f"""
if [ "$1" = - ]; then
    {{ echo "import sys; {change}"; cat; }} | {sys.executable} -
    exit $?
fi
exec {sys.executable} "$@" """
    what, _, _ = three_lines(run_sh(board, "setup", PATH=bench(tmp_path, script)))
    assert says in what
    assert not (board / ".venv").exists()


def test_no_python_at_all_is_told(board: Path, tmp_path: Path) -> None:
    path = bench(tmp_path, "exit 1")
    (tmp_path / "bin" / "python3").unlink()
    what, _, hint = three_lines(run_sh(board, "setup", PATH=path))
    assert what == "no python3 here"
    assert hint == "sudo apt install python3"
