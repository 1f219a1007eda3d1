"""The course of ``make test-arm64``: each step says what it saw; where its ground is missing, it is not taken."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from rich.console import Console

from edgeq.files import cache_dir, sha256_file
from tests.arm64.root import Board, arm64_root

PROJECT = Path(__file__).resolve().parents[2]
#: Real weights and labelled images, where its makers have them beside the project. Elsewhere weights are random.
SHARED = Path(os.environ.get("EDGEQ_SHARED", PROJECT.parent / "shared")) / "data"
WEIGHTS, DATASET = SHARED / "mobilenet_v2-rot180.safetensors", SHARED / "nips17-rot180"
REAL = WEIGHTS.is_file() and DATASET.is_dir()

MODEL, SCHEMES, IMAGES = "mobilenet_v2", ("fp32", "int8-static"), 50
#: Images whose first class may differ from x86's: kernels sum in other orders, and int8 ones round in other places.
MOST_DIFFERING = {"fp32": 1, "int8-static": 5}
#: Backends that are driven through everything, and others of which it is only shown that they run.
SURE, UNSURE = ("tflite", "onnxruntime"), ("pytorch", "openvino")
#: (Backend, scheme) that a Cortex-A72 does not run → what the framework says: see ``edgeq.backends.openvino``.
NOT_ON_PI4 = {("openvino", "int8-static"): "object is not initialized"}
SCENARIOS = ("single-stream", "multi-stream", "offline")
ON_X86 = "results-x86"
#: Steps taken at once: a run there keeps one core busy.
CORES = 2
#: Of bookworm.
PYTHON = "3.11"
PLACE, HOME = "/root/board", "/root/board/edgeq-aarch64"


class StepFailed(Exception):
    """What was expected of a step and not seen."""


@dataclass(frozen=True)
class Seen:
    """What a step saw, in a line, and what stands before it."""

    line: str
    detail: str = ""


@dataclass
class Course:
    """All steps in their order, with what they found so far."""

    console: Console
    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    _logs: Iterator[int] = field(default_factory=itertools.count)
    _telling: Lock = field(default_factory=Lock)

    def go(self) -> int:
        """Takes all steps; exit code 0 where none failed."""
        began = time.monotonic()
        root, cached = self._root()
        self.pi4, self.pi5 = Board(root, "cortex-a72"), Board(root, "cortex-a76")
        self.work = cache_dir() / "test-arm64"
        for each in self.work.glob("*"):
            if each.name != "models":  # export finds what has not changed
                shutil.rmtree(each) if each.is_dir() else each.unlink()
        packed = self.step("export for aarch64 on x86", self.export) and self.step("bundle", self.bundle)
        if packed and self.at_once({
            "Pi 4: unpack and set up": self.set_up,
            "x86: the same files on the same images": self.here,
        }):  # fmt: skip
            # One thread each, as many at a time as there are cores; the longest first.
            self.at_once({
                "Pi 4: doctor": self.doctor_in_words,
                "Pi 5: doctor": self.doctor_in_json,
                **{f"Pi 4: {backend} in three scenarios, accuracy": partial(self.all_cells, backend) for backend in SURE},
                **{f"Pi 4: {backend}": partial(self.unsure, backend) for backend in UNSURE},
                **{f"Pi 5: {backend} in int8": partial(self.int8, backend) for backend in SURE},
            })  # fmt: skip
            self.step("accuracy agrees with x86, image by image", self.agreement)
            self.step("the report keeps emulated cells out of the comparison", self.report)
        minutes = (time.monotonic() - began) / 60
        self.console.print(
            f"\n{len(self.passed)} passed, {len(self.failed)} failed, in {minutes:.1f} minutes; "
            f"the root was {'in the cache' if cached else 'made'}"
        )
        return 1 if self.failed else 0

    def _root(self) -> tuple[Path, bool]:
        began = time.monotonic()
        with self.console.status("arm64 root"):
            root, cached = arm64_root()
        self._tell("arm64 root", began, Seen(f"{root.name}, {'from the cache' if cached else 'made now'}"))
        return root, cached

    # --- steps: each returns what it saw

    def export(self) -> Seen:
        models = self.work / "models"
        (models / MODEL).mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / "models" / MODEL / "model.toml", models / MODEL)
        scenarios = shutil.copytree(PROJECT / "scenarios", self.work / "scenarios")
        shutil.copy(Path(__file__).parent / "scenarios/few.toml", scenarios)
        given = ["--weights", "random"]
        if REAL:
            given = ["--weights", str(WEIGHTS), "--calibration", str(DATASET)]
        schemes = [word for scheme in SCHEMES for word in ("--scheme", scheme)]
        self._edgeq(["export", "--model", MODEL, *schemes, "--target", "aarch64", "--out", str(models), *given])
        manifests = [json.loads(path.read_text()) for path in sorted(models.glob("*/artifacts/[!.]*/*.json"))]
        lost = [f"{each['backend']}/{each['scheme']}" for each in manifests if each["status"] != "ok"]
        if lost or len(manifests) != len(SCHEMES) * 4:
            raise StepFailed(f"{len(manifests)} artifacts, of which failed: {', '.join(lost) or 'none'}")
        if REAL:
            self._choose_images(manifests)
        return Seen(f"{len(manifests)} artifacts of {MODEL}, weights {'real' if REAL else 'random'}")

    def _choose_images(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """A folder of images that nothing was calibrated on."""
        seen = {digest for each in manifests for digest in each["calibration"]["images"]}
        folder = self.work / "images"
        folder.mkdir()
        labels = [line.split() for line in (DATASET / "val_map.txt").read_text().splitlines()]
        fresh = [(name, label) for name, label in labels if sha256_file(DATASET / name) not in seen][:IMAGES]
        for name, _ in fresh:
            shutil.copy(DATASET / name, folder)
        (folder / "val_map.txt").write_text("".join(f"{name} {label}\n" for name, label in fresh))

    def bundle(self) -> Seen:
        out = self.work / "edgeq-aarch64.pyz"
        backends = [word for backend in (*SURE, *UNSURE) for word in ("--backend", backend)]
        done = self._edgeq([
            "bundle", "--target", "aarch64", "--model", MODEL, *backends, "--models", str(self.work / "models"),
            "--scenarios", str(self.work / "scenarios"), "--profile", "few", "--wheels", PYTHON, "--out", str(out),
            *(["--dataset", str(self.work / "images")] if REAL else []),
        ])  # fmt: skip
        return Seen(f"{out.name}, {out.stat().st_size / 1e6:.0f} MB", done)

    def set_up(self) -> Seen:
        place, home = self.pi4.root / PLACE.lstrip("/"), self.pi4.root / HOME.lstrip("/")
        home.mkdir(parents=True, exist_ok=True)
        # Only what pip has installed stays, as on a board that gets a newer bundle: all that edgeq keeps is found anew.
        for each in home.iterdir():
            if each.name != ".venv":
                shutil.rmtree(each) if each.is_dir() else each.unlink()
        shutil.copy(self.work / "edgeq-aarch64.pyz", place)
        self._there(self.pi4, ["python3", "edgeq-aarch64.pyz"], PLACE)
        # What the bundle carries is enough: nothing is asked of a network.
        self._there(self.pi4, ["./run.sh", "setup"], HOME, {"PIP_NO_INDEX": "1", "PIP_NO_COMPILE": "1"})
        found = self._there(
            self.pi4, [".venv/bin/python", "-c", "import mlperf_loadgen; print(mlperf_loadgen.__file__)"], HOME
        )
        if "aarch64-linux-gnu" not in found:
            raise StepFailed(f"LoadGen is {found.strip()}")
        return Seen(f"LoadGen is {Path(found.strip()).name}")

    def doctor_in_words(self) -> Seen:
        text = self._there(self.pi4, ["./run.sh", "doctor"], HOME, allowed=(0, 1))
        isa = re.search(r"^ISA: ([^;\n]*)", text, re.MULTILINE)
        name = text.partition("  ")[0]
        return self._right_core("Cortex-A72", name, name, isa.group(1).split(", ") if isa else [], text)

    def doctor_in_json(self) -> Seen:
        found = json.loads(self._there(self.pi5, ["./run.sh", "doctor", "--json"], HOME, allowed=(0, 1)))
        device = found["device"]
        name = device["name"] if device["emulated"] else f"{device['name']} (not emulated)"
        return self._right_core("Cortex-A76", name, device["cpu"], device["isa"])

    def _right_core(self, core: str, name: str, cpu: str, isa: Sequence[str], text: str = "") -> Seen:
        """Of the two cores, the Cortex-A76 alone has the dot product."""
        if not name.startswith("emulated") or core not in cpu or ("dotprod" in isa) != (core == "Cortex-A76"):
            raise StepFailed(f"{core} was expected, and doctor says: {name}, CPU {cpu}, ISA {', '.join(isa)}")
        return Seen(f"{name}: {', '.join(isa)}", text)

    def all_cells(self, backend: str) -> Seen:
        records = self._measure(self.pi4, backend, SCHEMES, SCENARIOS, ("--dataset", "samples") if REAL else ())
        return self._judge(records, len(SCHEMES) * len(SCENARIOS))

    def int8(self, backend: str) -> Seen:
        """The dot product, which a Pi 5 has and a Pi 4 has not, makes a difference in int8 alone."""
        return self._judge(self._measure(self.pi5, backend, ("int8-static",), ("single-stream",)), 1)

    def _measure(
        self, board: Board, backend: str, schemes: Sequence[str], scenarios: Sequence[str], dataset: Sequence[str] = ()
    ) -> list[dict[str, Any]]:
        """The records of a run there."""
        folder = f"results-{board.cpu}-{backend}"
        words = [word for scheme in schemes for word in ("--scheme", scheme)]
        words += [word for scenario in scenarios for word in ("--scenario", scenario)]
        self._there(
            board,
            ["./run.sh", "run", "--model", MODEL, "--backend", backend, *words, *dataset,
             "--profile", "few", "--threads", "1", "--results", folder],
            HOME, allowed=(0, 1),
        )  # fmt: skip
        kept = shutil.copytree(board.root / HOME.lstrip("/") / folder, self.work / folder)
        return [json.loads(path.read_text()) for path in sorted(kept.glob("*/*/*/*/*/*/record.json"))]

    def _judge(self, records: Sequence[Mapping[str, Any]], expected: int) -> Seen:
        bad = [f"{_name(record)}: {record['status']}, {(record['reason'] or {}).get('text')}"
               for record in records if record["status"] != "ok"]  # fmt: skip
        real = [_name(record) for record in records if not record["device"]["emulated"]]
        if bad or real or len(records) != expected:
            raise StepFailed(
                "; ".join([f"{len(records)} records of {expected}", *bad, *(f"{name}: not emulated" for name in real)])
            )
        told = []
        for record in records:
            macs = ", ".join(f"{share:.0%} {name}" for name, share in record["effective"]["macs"].items())
            told.append(f"    {_name(record)}: {record['queries']} queries, {record['effective']['engine']}, {macs}")
        return Seen(f"{len(records)} cells valid in LoadGen, all marked emulated", "\n".join(told))

    def here(self) -> Seen:
        """The same files by this machine's kernels, for ``agreement``."""
        if not REAL:
            return Seen(f"not measured: there are no labelled images under {SHARED}")
        words = [word for backend in SURE for word in ("--backend", backend)]
        words += [word for scheme in SCHEMES for word in ("--scheme", scheme)]
        self._edgeq([
            "run", "--model", MODEL, *words, "--scenario", "offline", "--profile", "few",
            "--models", str(self.work / "models"), "--scenarios", str(self.work / "scenarios"),
            "--dataset", str(self.work / "images"), "--results", str(self.work / ON_X86),
        ], allowed=(0, 1))  # fmt: skip
        return Seen(f"{len(SURE) * len(SCHEMES)} artifacts, {IMAGES} images")

    def agreement(self) -> Seen:
        """Where classes differ between this machine's kernels and the board's, and how often."""
        if not REAL:
            return Seen("not compared: there are no labelled images")
        told, worst = [], []
        for backend in SURE:
            for scheme in SCHEMES:
                here = _predictions(self.work / ON_X86, backend, scheme)
                there = _predictions(self.work / f"results-{self.pi4.cpu}-{backend}", backend, scheme)
                if len(here) != IMAGES or len(there) != IMAGES:
                    raise StepFailed(f"{backend}/{scheme}: {len(here)} images here, {len(there)} there")
                differ = int(np.sum(here[:, 0] != there[:, 0]))
                told.append(f"{backend}/{scheme} {differ}")
                if differ > MOST_DIFFERING[scheme]:
                    worst.append(f"{backend}/{scheme}: {differ} of {IMAGES}, more than {MOST_DIFFERING[scheme]}")
        said = f"images of {IMAGES} with another first class than on x86: {', '.join(told)}"
        if worst:
            raise StepFailed(f"{said} ({'; '.join(worst)})")
        return Seen(said)

    def unsure(self, backend: str) -> Seen:
        """A cell a scheme; what the core can't run is told by the reason that is known for it, and by no other."""
        said, wrong = [], []
        records = self._measure(self.pi4, backend, SCHEMES, ("offline",))
        if len(records) != len(SCHEMES):
            raise StepFailed(f"{backend} left {len(records)} records")
        for record in records:
            scheme, why = record["cell"]["scheme"], (record["reason"] or {}).get("text", "")
            said.append(f"{scheme} {record['status']}" + (f" ({why})" if why else ""))
            expected = NOT_ON_PI4.get((backend, scheme))
            if record["status"] != "ok" and (expected is None or expected not in why):
                wrong.append(said[-1])
        if wrong:
            raise StepFailed("; ".join(wrong))
        return Seen("; ".join(said))

    def report(self) -> Seen:
        runs = sorted(path.parent for path in self.work.glob("results-cortex-*/*/*/run.json"))
        words = ["report", *map(str, runs), "--out", str(self.work / "report")]
        text = self._edgeq(words, allowed=(0, 1))
        if "Emulated devices" not in text or "Summary" in text:
            raise StepFailed("cells of emulated devices do not stand by themselves")
        return Seen(f"{len(runs)} runs in a table of their own", text)

    # --- how a step is taken

    def step(self, title: str, take: Callable[[], Seen]) -> bool:
        """Takes a step; whether it passed."""
        with self.console.status(title):
            return self._take(title, take)

    def at_once(self, steps: Mapping[str, Callable[[], Seen]]) -> bool:
        """Takes steps that need nothing of each other, on all cores; each is told when it has ended. Whether all passed."""
        with self.console.status(f"{len(steps)} steps, {CORES} at a time"), ThreadPoolExecutor(CORES) as pool:
            taken = [pool.submit(self._take, title, take) for title, take in steps.items()]
            return all([future.result() for future in taken])

    def _take(self, title: str, take: Callable[[], Seen]) -> bool:
        began = time.monotonic()
        try:
            seen = take()
        except StepFailed as failure:
            self._tell(title, began, Seen(str(failure)), "[red]failed[/]")
            self.failed.append(title)
            return False
        self._tell(title, began, seen)
        self.passed.append(title)
        return True

    def _tell(self, title: str, began: float, seen: Seen, verdict: str = "[green]ok[/]") -> None:
        with self._telling:
            if seen.detail:
                self.console.print(seen.detail, markup=False, style="dim")
            self.console.print(f"{verdict} {title} ({time.monotonic() - began:.0f} s): ", end="")
            self.console.print(seen.line, markup=False)

    def _edgeq(self, words: Sequence[str], allowed: Sequence[int] = (0,)) -> str:
        return self._run([sys.executable, "-m", "edgeq", *words], PROJECT, allowed)

    def _there(
        self,
        board: Board,
        words: Sequence[str],
        folder: str,
        environment: Mapping[str, str] | None = None,
        allowed: Sequence[int] = (0,),
    ) -> str:
        board.play_sysfs()
        return self._run(board.command(words, folder, environment), self.work, allowed)

    def _run(self, command: Sequence[str], folder: Path, allowed: Sequence[int]) -> str:
        """Standard output; all that it printed is kept as ``log-N.txt``."""
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        log = self.work / f"log-{next(self._logs)}.txt"
        log.write_text(f"$ {' '.join(command)}\n{done.stdout}\n{done.stderr}\nexit code {done.returncode}\n")
        if done.returncode not in allowed:
            last = "; ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:])
            raise StepFailed(f"exit code {done.returncode}: {last} (all of it: {log})")
        return done.stdout


def _name(record: Mapping[str, Any]) -> str:
    return "/".join(record["cell"].values())


def _predictions(results: Path, backend: str, scheme: str) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The five best classes of each image, ``[n, 5]``. Raises ``StepFailed`` where the run that leaves them did not."""
    paths = list(results.glob(f"*/*/{MODEL}/{backend}/{scheme}/accuracy/predictions.npy"))
    if len(paths) != 1:
        raise StepFailed(f"{backend}/{scheme}: {len(paths)} files of predictions under {results}, not one")
    found: np.ndarray[Any, np.dtype[np.int32]] = np.load(paths[0])
    return found
