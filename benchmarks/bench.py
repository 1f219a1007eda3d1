"""What every group needs: where the artifacts are, how to run a child or a tool, and rounds in turn."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from benchmarks.bars import Claim, Measured, Row
from edgeq.artifact import Manifest, find_manifest, read_manifest, verify
from edgeq.events import Child, cause_of_death, last_line
from edgeq.files import write_text
from edgeq.host.threads import environment
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

ROOT = Path(__file__).resolve().parents[1]
MODEL = "mobilenet_v2"
#: A child or a tool that takes longer than this is stuck, in seconds.
LIMIT_S = 300.0
#: A step that failed so often is given up; once may be a disturbance, which leaves one round out.
MOST_FAILURES = 2


@dataclass(frozen=True)
class Bench:
    """What the run was asked for."""

    models: Path
    threads: int
    rounds: int
    target: str
    scratch: Path
    """For logs and reports of children; a folder that goes with the run."""
    device: Mapping[str, Any] = field(default_factory=dict)
    """``edgeq.host.device.describe``."""

    def artifact(self, backend: str, scheme: str, model: str = MODEL) -> tuple[Path, Manifest, Path]:
        """Manifest's path, manifest, and the file that the framework loads, its content checked.

        Raises:
            EdgeqError: there is none, or it is not what its manifest says.
        """
        path = find_manifest(self.models, model, backend, scheme, self.target)
        manifest = read_manifest(path)
        return path, manifest, verify(path, manifest, model=model, backend=backend, scheme=scheme)

    def folder(self, name: str, turn: int) -> Path:
        """A new folder for one child of row ``name``."""
        path = self.scratch / name / str(turn)
        number = 0
        while path.exists():
            number += 1
            path = self.scratch / name / f"{turn}-{number}"
        path.mkdir(parents=True)
        return path

    def child(
        self, module: str, job: BaseModel, folder: Path, *, plain: bool = False, limit_s: float = LIMIT_S
    ) -> dict[str, Any]:
        """Runs ``python -m module JOB``, made with ``edgeq.events.serve``; returns the fields of its event ``result``.

        Its environment is that of edgeq's workers (``edgeq.host.threads``); with ``plain`` nothing is set for it.

        Raises:
            EdgeqError: the child told one, died, told no result, or took longer than ``limit_s``.
        """
        job_file, log = folder / "job.json", folder / "child.log"
        write_text(job_file, job.model_dump_json(by_alias=True))
        env = {**({} if plain else environment(self.threads)), "PYTHONPATH": python_path()}
        child, until = Child.start(module, job_file, log, env), time.monotonic() + limit_s
        found: dict[str, Any] | None = None
        try:
            for event in child.events():
                if time.monotonic() > until:
                    raise _no_figure(module, f"it took longer than {limit_s:.0f} s")
                if event is not None and event["event"] == "error":
                    raise EdgeqError(event["what"], event["why"], event["hint"], code=event["code"])
                if event is not None and event["event"] == "result":
                    found = {name: value for name, value in event.items() if name != "event"}
        finally:
            child.kill()
        if found is None:
            raise _no_figure(module, cause_of_death(child.process.returncode, log, False)[1])
        return found

    def command(self, argv: Sequence[str], folder: Path, *, limit_s: float = LIMIT_S) -> str:
        """Runs another's tool in ``folder``; returns its standard output (kept as ``stdout.txt`` too).

        It gets the same environment as ``child``: number of threads, spinning.

        Raises:
            EdgeqError: it can't be started, failed, or took longer than ``limit_s``.
        """
        output, errors = folder / "stdout.txt", folder / "stderr.txt"
        try:
            with output.open("wb") as out, errors.open("wb") as err:
                done = subprocess.run(
                    list(argv), cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, timeout=limit_s,
                    env={**os.environ, **environment(self.threads)}, check=False,
                )  # fmt: skip
        except OSError as error:
            raise _no_figure(argv[0], error.strerror or str(error)) from error
        except subprocess.TimeoutExpired as error:
            raise _no_figure(argv[0], f"it took longer than {limit_s:.0f} s") from error
        if done.returncode != 0:
            said = last_line(errors) or last_line(output)
            raise _no_figure(argv[0], f"it ended with exit code {done.returncode}: {said}")
        return output.read_text(encoding="utf-8", errors="replace")


def tool(name: str) -> Path:
    """A console script of the environment that this runs in.

    Raises:
        EdgeqError: it is not installed (code ``not-installed``).
    """
    path = Path(sys.executable).with_name(name)
    if not path.is_file():
        raise EdgeqError(f"{name} is not installed", f"there is no {path}", "run: make setup", code="not-installed")
    return path


def python_path() -> str:
    """``PYTHONPATH`` for a child that is to find ``benchmarks``."""
    before = os.environ.get("PYTHONPATH")
    return f"{ROOT}{os.pathsep}{before}" if before else str(ROOT)


def _no_figure(what: str, why: str) -> EdgeqError:
    return EdgeqError(f"{Path(what).name} gave no figure", why, "look at its logs: --keep DIR", code="no-figure")


@dataclass(frozen=True)
class Step:
    """What is measured together; one claim in most cases."""

    claims: tuple[Claim, ...]
    run: Callable[[int], Mapping[str, Measured]]
    """Round's number, from 0 → claim's name → figures. Where two things are run one after the other, ``in_turn``."""
    rounds: int | None = None
    """At most so many, where one round takes long."""


def in_turn(turn: int, ours: Callable[[], float], theirs: Callable[[], float]) -> Measured:
    """Both, ours first in even rounds, theirs first in odd ones: A B, B A, …"""
    if turn % 2 == 0:
        first = ours()
        return Measured(first, theirs())
    other = theirs()
    return Measured(ours(), other)


def measure(steps: Sequence[Step], rounds: int, on_step: Callable[[str, int, int], None]) -> Iterator[list[Row]]:
    """Goes through all steps once a round, forwards and backwards in turn, and yields all rows so far after each step.

    A step that raises ``EdgeqError`` lacks that round; one that did so twice is not run again, and its rows are ``failed``.

    Args:
        steps: Their claims' names are unique.
        rounds: At least 1.
        on_step: Called before each step with its first claim's name, the round (from 1), and how many there are.
    """
    found: dict[str, list[Measured]] = {claim.name: [] for step in steps for claim in step.claims}
    errors: dict[str, list[Note]] = {name: [] for name in found}
    for turn in range(rounds):
        for step in steps if turn % 2 == 0 else reversed(steps):
            names = [claim.name for claim in step.claims]
            if turn >= (step.rounds or rounds) or len(errors[names[0]]) >= MOST_FAILURES:
                continue
            on_step(names[0], turn + 1, min(step.rounds or rounds, rounds))
            try:
                figures = step.run(turn)
            except EdgeqError as error:
                for name in names:
                    errors[name].append(Note.of(error))
            else:
                for name in names:
                    found[name].append(figures[name])
            yield _rows(steps, found, errors)


def _rows(steps: Sequence[Step], found: Mapping[str, list[Measured]], errors: Mapping[str, list[Note]]) -> list[Row]:
    rows = []
    for claim in (claim for step in steps for claim in step.claims):
        failures = errors[claim.name]
        given_up = bool(failures) and (not found[claim.name] or len(failures) >= MOST_FAILURES)
        if found[claim.name] or failures:
            rows.append(Row(claim, tuple(found[claim.name]), tuple(failures), given_up))
    return rows
