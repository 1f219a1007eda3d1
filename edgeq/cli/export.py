"""``edgeq export``."""

from __future__ import annotations

from pathlib import Path

import click

from edgeq.artifact import TARGETS
from edgeq.cli import options
from edgeq.cli.display import ExportDisplay
from edgeq.spec.errors import DONE, FELL_SHORT
from edgeq.spec.names import BACKENDS, SCHEMES, check_names


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
    target: str,
    models_dir: Path,
    force: bool,
    threads: int | None,
    as_json: bool,
) -> int:
    """Quantizes and exports; each artifact is loaded, run and compared with torch's float32 right after it is written.

    Only what changed is exported anew. Exit code 1 where an artifact failed; the others are there all the same.
    Where the export can't go on at all (no network, a full disk), --json prints nothing.

    \b
    Example: edgeq export --model mobilenet_v2 --weights mobilenet_v2.safetensors --calibration images/
    """
    from edgeq.export.job import ExportRequest, export
    from edgeq.host import cpu

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
        force=force,
    )
    with ExportDisplay(len(request.models) * len(request.backends) * len(request.schemes), as_json) as display:
        outcomes = [display.ended(outcome) for outcome in export(request, display.progress)]
    display.conclude(outcomes)
    return FELL_SHORT if any(outcome.outcome == "failed" for outcome in outcomes) else DONE
