"""``edgeq export``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgeq.artifact import TARGETS
from edgeq.cli import options
from edgeq.spec.errors import DONE, FELL_SHORT, EdgeqError
from edgeq.spec.names import BACKENDS, SCHEMES, check_names

if TYPE_CHECKING:
    from edgeq.cli.display import ExportDisplay
    from edgeq.export.job import Exported


@click.command("export", short_help="Quantize and export models for each framework.")
@options.model
@options.backend
@options.scheme
@click.option(
    "--weights",
    default="auto",
    show_default=True,
    metavar="pretrained|random|auto|FILE",
    help="Float32 weights: torchvision's pretrained ones (downloaded), seeded random ones, a .safetensors or .pth "
    "file, or auto: pretrained, and random with a warning where they can't be had.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of random weights and of the choice of images.",
)
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    default=None,
    metavar="DIR",
    help="Images that activation ranges are taken from. Default: synthetic images.",
)
@click.option(
    "--calibration-count",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    help="How many of them.",
)
@click.option(
    "--calibration-method",
    "method",
    default=None,
    metavar="NAME",
    help="How ranges are taken (min-max, mean-min-max, median-min-max, moving-average, percentile, entropy, mse, octav, "
    "where a framework has it). Default: each framework's best, see docs/recipes.md.",
)
@click.option(
    "--granularity",
    default=None,
    metavar="per-channel|per-tensor",
    help="Scales of int8 weights. Default: per-channel.",
)
@click.option(
    "--keep-float",
    "float_layers",
    multiple=True,
    metavar="LAYER",
    help="A layer that stays in float in int8 artifacts, by its torch name (layers in a manifest); may repeat.",
)
@click.option(
    "--max-top1-drop",
    type=click.FloatRange(min=0),
    default=None,
    metavar="POINTS",
    help="Where int8 loses more top-1 than so many points, keep the fewest worst layers in float, found by measuring on "
    "labelled images of --calibration that ranges are not taken from.",
)
@click.option(
    "--selection-count",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="How many images --max-top1-drop judges by; accuracy runs leave them out.",
)
@click.option(
    "--target",
    default="host",
    show_default=True,
    metavar=f"host|{'|'.join(TARGETS)}",
    help="CPU that int8 artifacts are quantized for.",
)
@click.option(
    "--out",
    "models_dir",
    type=click.Path(path_type=Path),
    default=Path("models"),
    show_default=True,
    help="Folder of model specs, where artifacts are written too.",
)
@click.option("--force", is_flag=True, help="Export anew what is up to date, too.")
@options.threads
@options.as_json
def command(
    models: tuple[str, ...],
    backends: tuple[str, ...],
    schemes: tuple[str, ...],
    weights: str,
    seed: int,
    calibration: Path | None,
    calibration_count: int,
    method: str | None,
    granularity: str | None,
    float_layers: tuple[str, ...],
    max_top1_drop: float | None,
    selection_count: int,
    target: str,
    models_dir: Path,
    force: bool,
    threads: int | None,
    as_json: bool,
) -> int:
    """Quantizes and exports; each artifact is loaded, run and compared with torch's float32 right after it is written.

    Only what changed is exported anew. Exit code 1 where an artifact failed; the others are there all the same.
    Where a whole model can't be exported (no network, a full disk), --json prints nothing.

    \b
    Example: edgeq export --model mobilenet_v2 --weights mobilenet_v2.safetensors --calibration images/
    Example: edgeq export --model mobilenet_v2 --scheme int8-static --calibration images/ --max-top1-drop 1
    """
    from edgeq.cli.display import ExportDisplay
    from edgeq.export.job import ExportRequest, export
    from edgeq.host import cpu
    from edgeq.spec.quantization import QuantizationOptions

    if target != "host":
        check_names("target", [target], TARGETS)
    request = ExportRequest(
        models_dir=models_dir,
        models=options.chosen_models(models_dir, models),
        backends=options.chosen("backend", backends, BACKENDS, BACKENDS),
        schemes=options.chosen("scheme", schemes, SCHEMES, SCHEMES),
        weights=weights,
        target=cpu.target() if target == "host" else target,
        threads=threads or cpu.physical_cores(),
        seed=seed,
        calibration=calibration,
        calibration_count=calibration_count,
        options=QuantizationOptions(method=method, granularity=granularity, float_layers=float_layers),
        max_top1_drop=max_top1_drop,
        selection_count=selection_count,
        force=force,
    )
    with ExportDisplay(len(request.models) * len(request.backends) * len(request.schemes), as_json) as display:
        outcomes, stopped = _outcomes(display, export(request, display.progress))
    if stopped is not None:
        # No JSON: whoever reads it, as make run does, would go on to measure what an earlier export of that model left.
        display.count(outcomes)
        raise stopped
    display.conclude(outcomes)
    return FELL_SHORT if any(outcome.outcome == "failed" for outcome in outcomes) else DONE


def _outcomes(display: ExportDisplay, exporting: Iterator[Exported]) -> tuple[list[Exported], EdgeqError | None]:
    """What became of each artifact, and what stopped a model, if anything: what was made before is there all the same."""
    outcomes = []
    try:
        for outcome in exporting:
            outcomes.append(_told(display, outcome))
    except EdgeqError as error:
        return outcomes, error
    return outcomes, None


def _told(display: ExportDisplay, outcome: Exported) -> Exported:
    """Prints an outcome, and what a search for layers found and cost."""
    from edgeq.artifact import describe_search

    display.ended(outcome)
    manifest = outcome.manifest
    if manifest.search is not None:
        display.line(f"  {describe_search(manifest.search)}")
        display.warn(manifest.warnings, only=("top1-drop-not-reached", "few-selection-images", "trials-failed"))
    return outcome
