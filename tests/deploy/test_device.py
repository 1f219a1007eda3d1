"""A bundle's way to a device and its records' way back, over a real sshd, with the connection cut in between."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edgeq.cli.main import cli
from edgeq.deploy import attend, there, unpack
from edgeq.deploy.job import deploy
from edgeq.deploy.ssh import Device, LostConnection
from edgeq.deploy.there import RemoteRun
from edgeq.host import cpu, device
from edgeq.run.here import keep
from edgeq.run.peaks import LIBRARIES, LibraryPeaks, _file
from edgeq.spec.errors import EdgeqError, RequestError
from tests.deploy.conftest import Bundler, request_of
from tests.deploy.sshd import ADDRESS, Link, Sshd


def quiet(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def board(sshd: Sshd, bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of a device with a bundle that is set up, in this test's environment."""
    folder = tmp_path_factory.mktemp("board")
    deploy(Device.parse(ADDRESS, str(folder), sshd.ssh()), bundle, sys.executable, quiet)
    yield folder
    subprocess.run([sys.executable, "attend.py", "stop"], cwd=home_of(folder))


def home_of(board: Path) -> Path:
    return board / f"edgeq-{cpu.target()}"


@pytest.fixture(autouse=True)
def _no_earlier_runs(board: Path) -> None:
    shutil.rmtree(home_of(board) / "results", ignore_errors=True)


def known_peaks(home: Path, patch: pytest.MonkeyPatch) -> None:
    """Measuring the machine's peaks would take seconds a framework; nothing here hangs on them."""
    patch.setenv("EDGEQ_CACHE", str(home / "cache"))
    for library in LIBRARIES:
        keep(_file(library, device.describe(), cpu.physical_cores()), LibraryPeaks(library=library))
    patch.undo()


class Terminal:
    """Collects lines; at the first that holds ``word``, does ``then``."""

    def __init__(self, word: str, then: Any) -> None:
        self.lines: list[str] = []
        self._word, self._then = word, then

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        if self._word in line and self._then is not None:
            then, self._then = self._then, None
            then()


def remote(sshd: Sshd, link: Link, board: Path, results: Path, say: Any) -> RemoteRun:
    return RemoteRun(Device.parse(ADDRESS, str(board), sshd.ssh(link.port)), results, say, sleep=lambda _: None)


def test_a_bundle_runs_there_through_a_cut_connection_and_its_records_come_here(
    sshd: Sshd, link: Link, board: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    known_peaks(home_of(board), monkeypatch)
    say = Terminal("[1/2]", link.cut)
    cells = ["--backend", "tflite", "--scheme", "int8-static", "--scenario", "offline", "--scenario", "single-stream"]
    assert remote(sshd, link, board, tmp_path / "results", say).run(cells, resume=False) == 0
    assert link.broken.is_set()
    assert [line[:6] for line in say.lines if line.startswith("[")] == ["[1/2] ", "[2/2] "]
    slug = device.describe()["slug"]
    paths = (tmp_path / "results" / slug).glob("*/tiny/tflite/int8-static/*/record.json")
    found = {path.parent.name: json.loads(path.read_text()) for path in paths}
    assert set(found) == {"offline", "single-stream"}
    assert {record["status"] for record in found.values()} == {"ok"}
    assert all(record["output_check"]["top1_agreement"] == 1 for record in found.values())
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report"], standalone_mode=False) == 0
    assert "int8-static" in (tmp_path / "results" / "report" / "report.md").read_text()
    capfd.readouterr()
    where = ["--device", ADDRESS, "--ssh", sshd.ssh(), "--device-dir", str(board)]
    assert cli.main(["run", *where, "--list", "--backend", "tflite"], standalone_mode=False) == 0
    assert capfd.readouterr().out.splitlines()[0] == "tiny/tflite/fp32/single-stream"


@pytest.mark.parametrize("option", [["--models", "x"], ["--scenarios", "x"], ["--json"]])
def test_options_that_mean_nothing_to_a_device_are_refused(option: list[str]) -> None:
    with pytest.raises(RequestError, match=f"{option[0]} has no use with --device"):
        cli.main(["run", "--device", "pi", *option], standalone_mode=False)


def test_what_was_typed_goes_to_the_device_and_its_complaint_comes_back(
    sshd: Sshd, board: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    where = ["--device", ADDRESS, "--ssh", sshd.ssh(), "--device-dir", str(board), "--results", str(tmp_path)]
    code = cli.main(["run", *where, "--model", "tiny", "--backend", "tflight", "--no-tuned"], standalone_mode=False)
    assert code == 2
    assert "did you mean 'tflite'" in capfd.readouterr().err
    about = json.loads((home_of(board) / ".state" / "run.json").read_text())
    assert about["arguments"] == ["--model", "tiny", "--backend", "tflight", "--no-tuned"]


def test_the_same_bundle_again_sends_nothing(
    sshd: Sshd, board: Path, bundle: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    where = ["--device", ADDRESS, "--ssh", sshd.ssh(), "--device-dir", str(board)]
    assert cli.main(["deploy", *where, "--bundle", str(bundle)], standalone_mode=False) == 0
    said = capfd.readouterr().err
    assert "copied: 0.0 MB sent" in said
    assert "next: edgeq run --device" in said


def test_a_deploy_that_is_cut_goes_on(sshd: Sshd, link: Link, bundle: Path, tmp_path: Path) -> None:
    there_ = Device.parse(ADDRESS, str(tmp_path), sshd.ssh(link.port))
    link.break_after(bundle.stat().st_size // 2)
    with pytest.raises(LostConnection):
        deploy(there_, bundle, sys.executable, quiet)
    assert not (tmp_path / f"edgeq-{cpu.target()}").exists()
    said: list[str] = []
    folder = deploy(there_, bundle, sys.executable, said.append)
    assert any(line.startswith("copied:") and " 0.0 MB were there" not in line for line in said)
    assert (Path(folder) / ".state" / "stamp").is_file()


def test_a_bundle_of_another_machine_and_a_full_disk_are_told_before_anything_is_copied(
    sshd: Sshd, bundle: Path, project: Path, bundler: Bundler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there_ = Device.parse(ADDRESS, f"{tmp_path}/board", sshd.ssh())
    other = "x86_64" if cpu.target() == "aarch64" else "aarch64"
    foreign = bundler(request_of(project, target=other), tmp_path / "foreign.pyz").path
    with pytest.raises(RequestError) as refused:
        deploy(there_, foreign, sys.executable, quiet)
    assert refused.value.code == "wrong-target"
    monkeypatch.setattr(unpack, "SPARE", 1 << 60)
    with pytest.raises(EdgeqError) as full:
        deploy(there_, bundle, sys.executable, quiet)
    assert full.value.code == "disk-full"
    assert not (tmp_path / "board").exists()
    with pytest.raises(RequestError, match="no bundle for"):
        deploy(there_, None, sys.executable, quiet)


@dataclass(frozen=True)
class Slow:
    """A device whose ``run.sh`` ends the first of two cells, waits to be let go, and ends the second; what was finished
    it does not do again."""

    board: Path
    home: Path

    def let_go(self) -> None:
        (self.home / "go").write_text("go\n")


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Slow]:
    made = Slow(tmp_path / "slow", tmp_path / "slow" / "edgeq-slow")
    made.home.mkdir(parents=True)
    (made.home / "bundle.json").write_text("{}")
    shutil.copy(attend.__file__, made.home / "attend.py")
    os.mkfifo(made.home / "go")
    (made.home / "run.sh").write_text("""
        run=results/dev/run
        mkdir -p $run/a $run/b
        [ -f $run/run.json ] || echo '{"started": 1}' >$run/run.json
        end() { echo '{"status": "ok", "cell": {"name": "'$1'"}}' >$run/$1/record.json; echo "[$2/2] $1"; }
        if [ -f $run/a/record.json ]; then echo "1 of 2 finished before"; else end a 1; read word <go; fi
        end b 2
    """)
    yield made
    subprocess.run([sys.executable, "attend.py", "stop"], cwd=made.home)


def cells_in(results: Path) -> list[str]:
    return sorted(path.parent.name for path in results.glob("dev/run/*/record.json"))


def ended(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("[")]


def test_a_connection_that_is_cut_is_made_again_and_no_line_is_lost(
    sshd: Sshd, link: Link, slow: Slow, tmp_path: Path
) -> None:
    def cut() -> None:
        link.cut()
        slow.let_go()

    say = Terminal("[1/2]", cut)
    assert remote(sshd, link, slow.board, tmp_path, say).run(["--threads", "1"], resume=False) == 0
    assert any("was lost" in line and "trying again" in line for line in say.lines)
    assert ended(say.lines) == ["[1/2] a", "[2/2] b"]
    assert cells_in(tmp_path) == ["a", "b"]


def test_a_device_that_stays_away_loses_nothing_and_is_gone_on_with(
    sshd: Sshd, link: Link, slow: Slow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(there, "FETCH_S", 0.0)
    run = remote(sshd, link, slow.board, tmp_path, Terminal("trying again", None))
    fetch = run._fetch

    def fetched_then_gone() -> None:
        fetch()
        link.close()

    monkeypatch.setattr(run, "_fetch", fetched_then_gone)
    with pytest.raises(LostConnection) as lost:
        run.run([], resume=False)
    assert "--resume" in lost.value.hint
    assert "goes on there" in lost.value.why
    assert cells_in(tmp_path) == ["a"]  # brought while the run was at work
    back, again = Link(sshd.port), Terminal("a run is at work", slow.let_go)
    assert remote(sshd, back, slow.board, tmp_path, again).run(["--resume"], resume=True) == 0
    back.close()
    assert ended(again.lines) == ["[1/2] a", "[2/2] b"]  # the same run was watched from its beginning
    assert cells_in(tmp_path) == ["a", "b"]


def test_a_run_that_dies_there_is_told_and_gone_on_with(sshd: Sshd, link: Link, slow: Slow, tmp_path: Path) -> None:
    def power_cut() -> None:
        about = json.loads((slow.home / ".state" / "run.json").read_text())
        os.killpg(about["session"], signal.SIGKILL)

    with pytest.raises(EdgeqError) as died:
        remote(sshd, link, slow.board, tmp_path, Terminal("[1/2]", power_cut)).run([], resume=False)
    assert died.value.code == "run-died"
    assert cells_in(tmp_path) == ["a"]
    again = Terminal("nothing", None)
    assert remote(sshd, link, slow.board, tmp_path, again).run(["--resume"], resume=True) == 0
    assert again.lines[0] == "1 of 2 finished before"
    assert cells_in(tmp_path) == ["a", "b"]


def test_two_runs_at_a_time_are_refused(sshd: Sshd, link: Link, slow: Slow, tmp_path: Path) -> None:
    refused: list[str] = []

    def another() -> None:
        with pytest.raises(EdgeqError) as busy:
            remote(sshd, link, slow.board, tmp_path / "b", quiet).run([], resume=False)
        refused.append(busy.value.code)
        slow.let_go()

    assert remote(sshd, link, slow.board, tmp_path / "a", Terminal("[1/2]", another)).run([], resume=False) == 0
    assert refused == ["busy"]
    assert not (tmp_path / "b").exists()


def test_whoever_stops_watching_does_not_stop_the_run(sshd: Sshd, link: Link, slow: Slow, tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    say = Terminal("[1/2]", interrupt)
    with pytest.raises(KeyboardInterrupt):
        remote(sshd, link, slow.board, tmp_path, say).run([], resume=False)
    assert any("--resume watches it again" in line for line in say.lines)
    again = Terminal("a run is at work", slow.let_go)
    assert remote(sshd, link, slow.board, tmp_path, again).run(["--resume"], resume=True) == 0
    assert cells_in(tmp_path) == ["a", "b"]


def test_a_device_without_a_bundle_is_told(sshd: Sshd, tmp_path: Path) -> None:
    with pytest.raises(EdgeqError) as nothing:
        RemoteRun(Device.parse(ADDRESS, f"{tmp_path}/board", sshd.ssh()), tmp_path, quiet)
    assert nothing.value.code == "not-deployed"
    assert "edgeq deploy" in nothing.value.hint
