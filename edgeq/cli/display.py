"""Progress on the terminal: a live bar where there is one, plain lines where there is not."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from edgeq.run.watchdog import Watcher

if TYPE_CHECKING:
    from edgeq.export.job import Exported
    from edgeq.run.record import Record
    from edgeq.run.store import RunFolder
    from edgeq.spec.note import Note
    from edgeq.tune.job import TunedCell

_COLOUR = {
    "ok": "green",
    "changed": "green",
    "default": "green",
    "kept": "dim",
    "exported": "green",
    "unchanged": "dim",
    "skipped": "yellow",
    "invalid": "red",
    "failed": "red",
}


def print_warning(console: Console, note: Note) -> None:
    """What is so, under its code, and what to do about it."""
    console.print(f"[bold yellow]warning[/] \\[{note.code}] {escape(note.text)}")
    if note.hint:
        console.print(f"  try: {escape(note.hint)}")


class _Display:
    """A bar at the bottom and lines above it; JSON readers get nothing but the JSON, so all of this is on stderr."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        # One refresh a second: the bar shares the cores with what is being measured.
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=self.console,
            refresh_per_second=1,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._task: TaskID | None = None
        self._warned: set[str] = set()
        self._clock, self._made, self._left = time.monotonic(), 0, 0
        """When the task in hand began, how many steps it has made since, and how many are left."""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def start(self, description: str, total: int, done: int = 0) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(description, total=total, completed=done, left="")
        self._clock, self._made, self._left = time.monotonic(), 0, total - done

    def say(self, description: str) -> None:
        if self._task is not None:
            self._bar.update(self._task, description=description)

    def advance(self, by: int = 1) -> str:
        """``by`` steps are done; returns how long the others will take at the pace so far, in words."""
        if self._task is None:
            return ""
        self._made, self._left = self._made + by, self._left - by
        seconds = (time.monotonic() - self._clock) / self._made * self._left
        said = f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
        said = said if self._left else ""
        self._bar.advance(self._task, by)
        self._bar.update(self._task, left=said)
        return said

    def line(self, text: str) -> None:
        self.console.print(text)

    def warn(self, notes: Sequence[Note], only: Sequence[str] | None = None) -> None:
        """Prints each warning once, loudly."""
        for note in notes:
            if note.text in self._warned or (only is not None and note.code not in only):
                continue
            self._warned.add(note.text)
            print_warning(self.console, note)


class ExportDisplay(_Display):
    """What ``edgeq export`` shows."""

    def __init__(self, total: int, as_json: bool) -> None:
        super().__init__(as_json)
        self._total, self._done, self._began, self._said = total, 0, time.monotonic(), ""

    def __enter__(self) -> Self:
        super().__enter__()
        self.start("export", self._total)
        return self

    def progress(self, what: str, done: int, total: int) -> None:
        self.say(f"{what} ({done}/{total})" if total > 1 else what)
        if not self.console.is_terminal and what != self._said:
            self.line(f"  … {escape(what)}")
        self._said = what

    def ended(self, outcome: Exported) -> Exported:
        self._done += 1
        manifest = outcome.manifest
        self.warn(manifest.warnings, only=("random-weights", "few-calibration-images"))
        name = f"{outcome.model}/{outcome.backend}/{outcome.scheme}"
        text = f"\\[{self._done}/{self._total}] {name}  [{_COLOUR[outcome.outcome]}]{outcome.outcome}[/]"
        if manifest.check is not None:
            found = manifest.check
            sqnr = "exact" if found.sqnr_db is None else f"{found.sqnr_db:.1f} dB"
            text += (
                f"  {manifest.bytes / 1e6:.1f} MB, SQNR {sqnr}, top-1 agrees {found.top1_agreement:.0%} of {found.n}, "
                f"{found.quantized_macs:.1%} of MACs int8"
            )
        if manifest.reason is not None:
            text += f"  {escape(manifest.reason.text)}"
        self.line(text)
        self.advance()
        return outcome

    def conclude(self, outcomes: Sequence[Exported]) -> None:
        self.count(outcomes)
        if self.as_json:
            json.dump([o.manifest.model_dump(mode="json", by_alias=True) for o in outcomes], sys.stdout, indent=1)

    def count(self, outcomes: Sequence[Exported]) -> None:
        """How many artifacts there are now, and what to do about those that failed."""
        counts = {kind: sum(o.outcome == kind for o in outcomes) for kind in ("exported", "unchanged", "failed")}
        said = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        self.line(f"{len(outcomes)} artifacts: {said} in {time.monotonic() - self._began:.0f} s")
        for outcome in outcomes:
            reason = outcome.manifest.reason
            if outcome.outcome == "failed" and reason is not None and reason.hint:
                self.line(f"  {outcome.model}/{outcome.backend}/{outcome.scheme}: {escape(reason.hint)}")


class RunDisplay(_Display, Watcher):
    """What ``edgeq run`` shows."""

    def __init__(self, as_json: bool) -> None:
        super().__init__(as_json)
        self._total, self._done, self._began = 0, 0, time.monotonic()
        self._rounds, self._what, self._cooling = 1, "cells", ""
        self._folder: RunFolder | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if error is not None and self._folder is not None:
            self.line(f"{self._done} of {self._total} {self._what} are finished and kept in {self._folder.path}")
            self.line("to go on, type the same command with [bold]--resume[/]")

    def began(self, run: RunFolder, cells: int, rounds: int, finished: int) -> None:
        self._folder, self._total, self._done, self._rounds = run, cells * rounds, finished, rounds
        self._began, self._what = time.monotonic(), "cells" if rounds == 1 else "measurements"
        times = "" if rounds == 1 else f" x {rounds} rounds"
        self.line(
            f"run {run.path}: {cells} cells{times}" + (f", {finished} of them finished before" if finished else "")
        )
        self.start("run", self._total, finished)

    def told(self, note: Note) -> None:
        self.line(f"note: {escape(note.text)}" + (f"; {escape(note.hint)}" if note.hint else ""))

    def preparing(self, what: str, done: int, total: int) -> None:
        if self._task is None:
            self.start("samples", total)
        self.say(f"preprocessing the dataset for {what} ({done}/{total})")

    def phase(self, what: str, name: str) -> None:
        self.say(f"{what}: {name}")

    def cooling(self, what: str, now_c: float | None, to_c: float) -> None:
        if self._cooling != what:
            self.line(f"  {what} was slowed down: waiting until the CPU is at {to_c:g} °C, to measure it once more")
        self._cooling = what
        now = "no reading" if now_c is None else f"now {now_c:.1f} °C"
        self.say(f"{what}: cooling to {to_c:g} °C ({now})")

    def accuracy(self, what: str, text: str) -> None:
        self.line(f"  {what}: {escape(text)}")
        self._clock = time.monotonic()  # cells are timed from here: accuracy runs all come before them

    def ended(self, record: Record, turns: int = 1) -> None:
        self._done, self._cooling = self._done + turns, ""
        self.warn(record.warnings, only=("random-weights", "mixed-weights", "bad-images", "saturation"))
        status = f"[{_COLOUR[record.status]}]{record.status}[/]"
        number = f" round {record.run.round} of {self._rounds}" if self._rounds > 1 and turns == 1 else ""
        text = f"\\[{self._done}/{self._total}] {record.cell}{number}  {status}  {figure(record)}"
        codes = sorted({note.code for note in record.warnings} - {"random-weights"})
        text += f"  [yellow]({', '.join(codes)})[/]" if codes else ""
        left = self.advance(turns)
        self.line(text if self.console.is_terminal or not left else f"{text}  {left}")

    def conclude(self, records: Sequence[Record]) -> None:
        counts = {kind: sum(r.status == kind for r in records) for kind in ("ok", "invalid", "skipped", "failed")}
        said = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        self.line(f"{len(records)} cells: {said} in {time.monotonic() - self._began:.0f} s")
        if self._folder is not None:
            self.line(f"records in {self._folder.path}; tables: edgeq report")
        hints = {record.reason.hint for record in records if record.status == "failed" and record.reason}
        for hint in sorted(hints - {""}):
            self.line(f"  try: {escape(hint)}")
        lost = sum(each.status in ("failed", "invalid") for record in records for each in record.rounds)
        if counts["failed"] or counts["invalid"] or lost:
            said = f" ({lost} rounds were lost)" if self._rounds > 1 and lost else ""
            self.line(f"failed and invalid ones are tried again by the same command with [bold]--resume[/]{said}")
        if self.as_json:
            json.dump([record.model_dump(mode="json", by_alias=True) for record in records], sys.stdout, indent=1)


class TuneDisplay(_Display):
    """What ``edgeq tune`` shows while it searches."""

    def __init__(self, total: int, as_json: bool) -> None:
        super().__init__(as_json)
        self._total, self._done = total, 0

    def __enter__(self) -> Self:
        super().__enter__()
        self.start("tune", self._total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if error is not None and self._done:
            self.line(f"{self._done} of {self._total} cells are done; what was found is stored")

    def progress(self, artifact: str, what: str) -> None:
        self.say(f"{artifact}: {what}")

    def ended(self, found: TunedCell) -> None:
        self._done += 1
        left, tuned, text = self.advance(), found.tuned, ""
        if tuned is not None:
            self.warn(tuned.notes if found.outcome != "kept" else ())
            changed = tuned.setting != tuned.default
            text = f"{tuned.gain:.2f} times as fast as {tuned.default.words()}" if changed else "the default"
            text = f"{tuned.setting.words()}, {text}"
        elif found.reason is not None:
            text = found.reason.text
        outcome = f"[{_COLOUR[found.outcome]}]{found.outcome}[/]"
        said = f"\\[{self._done}/{self._total}] {found.cell}  {outcome}  {escape(text)}"
        self.line(said if self.console.is_terminal or not left else f"{said}  {left}")


def figure(record: Record) -> str:
    """A cell's own figure, or why it has none."""
    if record.status != "ok" and record.reason is not None:
        return escape(record.reason.text)
    if record.overhead_us is not None:
        per_query = "" if record.cell.scenario == "offline" else f"{record.overhead_us.per_query:.1f} µs a query, "
        return f"overhead {per_query}{record.overhead_us.per_sample:.1f} µs a sample"
    if record.cell.scenario == "offline":
        return f"{record.samples_per_second:.1f} samples/s"
    if record.latency_ms is None or record.loadgen is None or record.loadgen.percentile is None:
        return ""
    percent = round(100 * record.loadgen.percentile)
    return f"p{percent} {getattr(record.latency_ms, f'p{percent}'):.2f} ms"
