"""``edgeq sweep``."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgeq.artifact import TARGETS
from edgeq.cli import options
from edgeq.spec.errors import DONE, FELL_SHORT, RequestError
from edgeq.spec.names import BACKENDS, check_names
from edgeq.spec.quantization import GRANULARITIES, INT8_SCHEMES, METHODS

if TYPE_CHECKING:
    from rich.table import Table

    from edgeq.export.sweep import Row

_ALL_METHODS = tuple(dict.fromkeys(name for names in METHODS.values() for name in names))
_ALL_GRANULARITIES = tuple(dict.fromkeys(name for names in GRANULARITIES.values() for name in names))


@click.group("sweep", short_help="Measure accuracy against a choice of quantization.")
def command() -> None:
    """Makes int8 artifacts in many ways and judges each on the same images."""


def _counts(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        found = tuple(dict.fromkeys(int(part) for part in value.split(",")))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise RequestError(
            f"--count {value}", "it takes numbers of images, with commas", "pass --count 10,50,100", code="bad-value"
        )
    return found


@command.command("calibration", short_help="Method, granularity and number of calibration images.")
@options.model
@options.backend
@click.option(
    "--scheme",
    "schemes",
    multiple=True,
    metavar="NAME",
    help=f"{' or '.join(INT8_SCHEMES)}; may repeat. Default: int8-static.",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help=f"default, {', '.join(_ALL_METHODS)}; may repeat. Default: all that a framework offers.",
)
@click.option(
    "--granularity",
    "granularities",
    multiple=True,
    metavar="NAME",
    help=f"default, {', '.join(_ALL_GRANULARITIES)}; may repeat. Default: both.",
)
@click.option(
    "--count",
    "counts",
    default="128",
    show_default=True,
    metavar="N,N,…",
    callback=_counts,
    help="Numbers of calibration images.",
)
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Images that ranges are taken from.",
)
@click.option(
    "--dataset",
    type=click.Path(path_type=Path),
    default=None,
    metavar="DIR",
    help="Labelled images to judge by; those calibrated on are left out. Default: the folder given to --calibration.",
)
@click.option(
    "--weights", default="auto", show_default=True, metavar="pretrained|random|auto|FILE", help="As for edgeq export."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="As for edgeq export.")
@click.option(
    "--target", default="host", show_default=True, metavar=f"host|{'|'.join(TARGETS)}", help="As for edgeq export."
)
@click.option(
    "--work",
    type=click.Path(path_type=Path),
    default=None,
    metavar="DIR",
    help="Where artifacts and answers are kept, so that the same command goes on. Default: in edgeq's cache folder.",
)
@click.option(
    "--csv", "csv_file", type=click.Path(path_type=Path), default=None, metavar="FILE", help="Write rows here."
)
@options.models_dir
@options.threads
@options.as_json
def calibration_command(
    models: tuple[str, ...],
    backends: tuple[str, ...],
    schemes: tuple[str, ...],
    methods: tuple[str, ...],
    granularities: tuple[str, ...],
    counts: tuple[int, ...],
    calibration: Path,
    dataset: Path | None,
    weights: str,
    seed: int,
    target: str,
    work: Path | None,
    csv_file: Path | None,
    models_dir: Path,
    threads: int | None,
    as_json: bool,
) -> int:
    """Exports int8 in every way asked for, to a scratch folder, and prints top-1 and agreement with fp32 of each.

    All are judged on the same images: none that any of them was calibrated on. The same command again goes on where it
    stopped. Exit code 1 where a choice that a framework offers failed.

    \b
    Example: edgeq sweep calibration --model mobilenet_v2 --weights w.safetensors --calibration images/ --count 10,100
    """
    from edgeq.export.sweep import DEFAULT, SweepRequest, sweep, total_rows
    from edgeq.files import cache_dir
    from edgeq.host import cpu

    if target != "host":
        check_names("target", [target], TARGETS)
    request = SweepRequest(
        models_dir=models_dir,
        models=options.chosen_models(models_dir, models),
        backends=options.chosen("backend", backends, BACKENDS, BACKENDS),
        schemes=options.chosen("scheme", schemes, INT8_SCHEMES, INT8_SCHEMES[:1]),
        methods=check_names("method", methods, (DEFAULT, *_ALL_METHODS)),
        granularities=options.chosen("granularity", granularities, (DEFAULT, *_ALL_GRANULARITIES), _ALL_GRANULARITIES),
        counts=counts,
        weights=weights,
        calibration=calibration,
        dataset=dataset or calibration,
        target=cpu.target() if target == "host" else target,
        threads=threads or cpu.physical_cores(),
        work=work or cache_dir() / "sweep",
        seed=seed,
    )
    from edgeq.cli.display import ExportDisplay

    rows = []
    with ExportDisplay(total_rows(request), as_json) as display:
        for row in sweep(request, display.progress):
            rows.append(row)
            left = display.advance()
            display.line(f"\\[{len(rows)}/{total_rows(request)}] {_line(row)}  {left}")
        if csv_file is not None:
            write_csv(csv_file, rows)
        if as_json:
            json.dump([row.model_dump(mode="json") for row in rows], sys.stdout, indent=1)
        else:
            _print(rows)
    return FELL_SHORT if any(row.status == "failed" for row in rows) else DONE


def _line(row: Row) -> str:
    parts = (row.model, row.backend, row.scheme, row.method, row.granularity, row.count and f"{row.count} images")
    said = row.text
    if row.status == "ok":
        agrees = "" if row.agreement is None else f", agrees with fp32 on {row.agreement:.1%}"
        said = f"top-1 {'n/a' if row.top1 is None else f'{row.top1:.1%}'}{agrees}"
    return f"{' '.join(str(part) for part in parts if part)}: {said}"


def _print(rows: list[Row]) -> None:
    """A table a model, to standard output; as wide as it needs where that is no terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)
    for model in dict.fromkeys(row.model for row in rows):
        console.print(table([row for row in rows if row.model == model]))


def table(rows: list[Row]) -> Table:
    """One model's accuracy against choice. A star marks each framework's default."""
    from rich.table import Table

    judged = max((row.n for row in rows), default=0)
    title = f"{rows[0].model}: accuracy against choice, judged on the same {judged} images" if rows else "nothing"
    found = Table(title=title, title_justify="left", caption="* the framework's default; 95 % intervals in brackets")
    for name in ("framework", "scheme", "method", "weights", "images"):
        found.add_column(name, overflow="fold")
    for name in ("top-1 %", "points below fp32", "agrees %", "int8 MACs %", "MB"):
        found.add_column(name, justify="right", overflow="fold")
    for row in rows:
        found.add_row(*_cells(row))
    return found


def _cells(row: Row) -> list[str]:
    star = " *" if row.default and row.scheme != "fp32" else ""
    choice = [row.backend, row.scheme, (row.method or "-") + star, row.granularity or "-", str(row.count or "-")]
    if row.status != "ok":
        return [*choice, row.status.replace("-", " "), "", "", "", ""]
    low, high = (None if bound is None else 100 * bound for bound in (row.top1_low, row.top1_high))
    top1 = _with_interval(None if row.top1 is None else 100 * row.top1, low, high)
    agreement = "" if row.agreement is None else f"{100 * row.agreement:.1f}"
    int8 = "" if row.int8_macs is None else f"{100 * row.int8_macs:.1f}"
    size = "" if row.bytes is None else f"{row.bytes / 1e6:.1f}"
    return [*choice, top1 or "n/a", _with_interval(row.drop, row.drop_low, row.drop_high), agreement, int8, size]


def _with_interval(value: float | None, low: float | None, high: float | None) -> str:
    return "" if value is None or low is None or high is None else f"{value:.1f} ({low:.1f} to {high:.1f})"


def write_csv(path: Path, rows: list[Row]) -> None:
    """A line a row, columns as the fields of ``Row``. Raises ``EdgeqError`` where the file can't be written."""
    import io

    from edgeq.export.sweep import Row
    from edgeq.files import write_text

    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(Row.model_fields), lineterminator="\n")
    writer.writeheader()
    writer.writerows(row.model_dump(mode="json") for row in rows)
    write_text(path, text.getvalue())
