"""``python -m benchmarks``: runs the groups in turn, prints one table, writes all figures as JSON."""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import click

from benchmarks.bars import Row, summary
from benchmarks.bench import ROOT, Bench, Step, measure
from benchmarks.output import document, print_list, print_table
from edgeq.files import only_one, write_json
from edgeq.spec.errors import DONE, FELL_SHORT, EdgeqError, RequestError, nearest

#: Modules with ``steps(bench) -> list[Step]``, in the order of the table; a module is named like its rows' group.
GROUPS = ("harness", "openvino_app", "litert", "reference", "scale", "resources", "efficiency")


@dataclass(frozen=True)
class Asked:
    """What the command line says."""

    only: tuple[str, ...]
    rounds: int
    models: Path
    results: Path
    keep: Path | None


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", multiple=True, metavar="NAME", help="Rows whose names begin with this; may repeat.")
@click.option("--list", "listing", is_flag=True, help="Print the rows' names and bars, and measure nothing.")
@click.option("--rounds", type=click.IntRange(min=1), default=6, show_default=True, help="Rounds of each comparison.")
@click.option(
    "--models", type=click.Path(path_type=Path), default=ROOT / "models", help="Folder of model specs and artifacts."
)
@click.option(
    "--weights", default="auto", show_default=True, help="For what has to be exported first, as in edgeq export."
)
@click.option("--calibration", type=click.Path(path_type=Path), default=None, metavar="DIR", help="The same.")
@click.option("--threads", type=click.IntRange(min=1), default=None, help="Default: physical cores allowed here.")
@click.option(
    "--results", type=click.Path(path_type=Path), default=ROOT / "benchmarks" / "results", help="Where JSON goes."
)
@click.option(
    "--keep", type=click.Path(path_type=Path), default=None, metavar="DIR", help="Keep logs of children there."
)
def command(
    only: tuple[str, ...],
    listing: bool,
    rounds: int,
    models: Path,
    weights: str,
    calibration: Path | None,
    threads: int | None,
    results: Path,
    keep: Path | None,
) -> int:
    """Measures edgeq against the frameworks' own tools, each comparison in turn. Exit code 1 where a bar is not met.

    \b
    Example: python -m benchmarks --only harness/tflite --rounds 3
    """
    from benchmarks.prepare import export_missing
    from edgeq.host import cpu
    from edgeq.host.device import describe

    asked = Asked(only, rounds, models, results, keep)
    bench = Bench(models.resolve(), threads or cpu.physical_cores(), rounds, cpu.target(), Path(), describe())
    steps = chosen(all_steps(bench), only)
    if listing:
        print_list([claim for step in steps for claim in step.claims])
        return DONE
    with only_one(results, "benchmark"), _scratch(keep) as scratch:
        export_missing(bench.models, bench.target, weights, calibration)
        bench = replace(bench, scratch=scratch)
        return _run(asked, bench, chosen(all_steps(bench), only))


def all_steps(bench: Bench) -> list[Step]:
    """Of every group that there is."""
    found: list[Step] = []
    for name in GROUPS:
        if (ROOT / "benchmarks" / f"{name}.py").is_file():
            found += importlib.import_module(f"benchmarks.{name}").steps(bench)
    return found


def chosen(steps: Iterable[Step], only: Sequence[str]) -> list[Step]:
    """The steps with a claim whose name begins with one of ``only``; all where that is empty.

    Raises:
        RequestError: nothing begins with one of them.
    """
    steps = list(steps)
    names = [claim.name for step in steps for claim in step.claims]
    for prefix in only:
        if not any(name.startswith(prefix) for name in names):
            close = nearest(prefix, names)
            hint = f"did you mean {close!r}?" if close else "run: python -m benchmarks --list"
            raise RequestError(f"no row is named {prefix!r}", f"there are {len(names)} rows", hint, code="unknown-name")
    return [s for s in steps if not only or any(c.name.startswith(p) for c in s.claims for p in only)]


@contextmanager
def _scratch(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve() / datetime.now().strftime("%Y-%m-%dT%H%M%S")
        return
    with tempfile.TemporaryDirectory(prefix="edgeq-bench-") as folder:
        yield Path(folder)


def _run(asked: Asked, bench: Bench, steps: Sequence[Step]) -> int:
    """Measures; Ctrl-C ends it early, with what is there in the table and in the file."""
    began, stopped = datetime.now().astimezone(), False
    path = asked.results / f"{began.strftime('%Y-%m-%dT%H%M%S')}.json"
    rows: list[Row] = []
    try:
        for so_far in measure(steps, bench.rounds, _tell):
            rows = so_far
            write_json(path, document(rows, bench, began, stopped=True))
    except KeyboardInterrupt:
        stopped = True
    write_json(path, document(rows, bench, began, stopped))
    print_table(rows)
    met, total = summary(rows)
    print(f"{path}" + (" (stopped early: not all rounds)" if stopped else ""))
    print(f"{met} of {total} bars met")
    return DONE if met == total and not stopped else FELL_SHORT


def _tell(name: str, turn: int, turns: int) -> None:
    now = datetime.now().strftime("%H:%M:%S")
    click.echo(f"{now} {name}, round {turn} of {turns}", err=True)


def main() -> None:
    """Exit codes: 0 all bars met, 1 one is not or something failed, 2 the request was wrong."""
    try:
        code = command.main(standalone_mode=False)
    except EdgeqError as error:
        click.echo(f"error: {error.what}\n  why: {error.why}\n  try: {error.hint}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        code = FELL_SHORT
    sys.exit(code if isinstance(code, int) else DONE)


if __name__ == "__main__":
    main()
