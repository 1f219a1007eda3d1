"""``edgeq explain``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from edgeq.cli import options
from edgeq.spec.errors import DONE, RequestError


@click.command("explain", short_help="Why a cell is slow or fast: time by operator, against fp32.")
@click.argument("cell", metavar="CELL")
@click.option("--layers", is_flag=True, help="Compare each layer's output with fp32's, too: where accuracy gets lost.")
@click.option(
    "--dataset",
    type=click.Path(path_type=Path),
    default=None,
    metavar="DIR",
    help="Images for --layers. Default: the reference samples kept with the artifact.",
)
@options.threads
@options.models_dir
@options.as_json
def command(cell: str, layers: bool, dataset: Path | None, threads: int | None, models_dir: Path, as_json: bool) -> int:
    """Says in one sentence why a cell (model/backend/scheme) is slower or faster than fp32, and shows the figures.

    The framework's own profiler times each operator, of the cell and of its fp32 twin, in turn. Takes about a minute.

    \b
    Example: edgeq explain mobilenet_v2/onnxruntime/fp16
    """
    from rich.console import Console

    from edgeq.explain.job import ExplainRequest, explain, parse_cell
    from edgeq.explain.page import print_page
    from edgeq.host import cpu

    if dataset is not None and not layers:
        raise RequestError("--dataset has no use without --layers", "the profile is not of its images", "add --layers")
    request = ExplainRequest(
        cell=parse_cell(cell, models_dir),
        models_dir=models_dir,
        threads=threads or cpu.physical_cores(),
        layers=layers,
        dataset=dataset,
    )
    progress = Console(stderr=True, highlight=False)
    with progress.status("explain") as status:

        def say(what: str) -> None:
            status.update(what)
            if not progress.is_terminal:
                progress.print(f"  … {what}", markup=False)

        found = explain(request, say)
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=1))
    else:
        print_page(found, Console(highlight=False))
    return DONE
