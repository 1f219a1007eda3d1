"""``edgeq tune``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgeq.cli import options
from edgeq.spec.errors import DONE, FELL_SHORT
from edgeq.spec.names import BACKENDS, SCHEMES, STUDY_SCENARIOS

if TYPE_CHECKING:
    from rich.table import Table

    from edgeq.setting import Setting, Tuned
    from edgeq.tune.job import TunedCell


@click.command("tune", short_help="Find the fastest threads, streams and batch for each cell.")
@options.model
@options.backend
@options.scheme
@options.scenario
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="N",
    help="Turns of each setting that came near the fastest in a first look; with fewer than 3, hardly any is chosen.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=0.4,
    show_default=True,
    help="Of queries in each turn.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="For an artifact: a slow model gets fewer rounds and fewer settings, a hopeless one keeps the defaults.",
)
@click.option("--again", is_flag=True, help="Search anew where a search is stored that still holds.")
@options.threads
@options.results
@options.models_dir
@options.as_json
def command(
    models: tuple[str, ...],
    backends: tuple[str, ...],
    schemes: tuple[str, ...],
    scenarios: tuple[str, ...],
    rounds: int,
    seconds: float,
    budget: float,
    again: bool,
    threads: int | None,
    results: Path,
    models_dir: Path,
    as_json: bool,
) -> int:
    """Tries settings (threads, streams, samples a call) in turn, and stores the fastest beside the artifact.

    edgeq run uses what is stored for this device, artifact and framework version, unless told --no-tuned. The default
    stays where nothing beats it beyond noise. Takes about half a minute an artifact; what is found is kept.

    \b
    Example: edgeq tune --model mobilenet_v2 && edgeq run --model mobilenet_v2
    """
    from edgeq.cli.display import TuneDisplay
    from edgeq.host import cpu, device
    from edgeq.tune.job import TuneRequest, tune
    from edgeq.tune.search import Limits

    request = TuneRequest(
        models_dir=models_dir,
        results=results,
        models=options.chosen_models(models_dir, models),
        backends=options.chosen("backend", backends, BACKENDS, BACKENDS),
        schemes=options.chosen("scheme", schemes, SCHEMES, SCHEMES),
        scenarios=options.chosen("scenario", scenarios, STUDY_SCENARIOS, STUDY_SCENARIOS),
        threads=threads or cpu.physical_cores(),
        target=cpu.target(),
        device=device.describe(),
        limits=Limits(rounds=rounds, seconds=seconds, budget_s=budget),
        again=again,
    )
    cells = len(request.models) * len(request.backends) * len(request.schemes) * len(request.scenarios)
    found = []
    with TuneDisplay(cells, as_json) as display:
        for each in tune(request, display.progress):
            found.append(each)
            display.ended(each)
    if as_json:
        json.dump([each.as_json() for each in found], sys.stdout, indent=1)
    else:
        _print(found)
    return FELL_SHORT if any(each.outcome == "failed" for each in found) else DONE


def _print(found: Sequence[TunedCell]) -> None:
    """A table a model and, last, what came of it, to standard output; as wide as it needs where that is no terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)
    for model in dict.fromkeys(each.cell.model for each in found):
        console.print(table([each for each in found if each.cell.model == model]))
    console.print(conclusion(found))


def table(found: Sequence[TunedCell]) -> Table:
    """One model's cells: the default and the tuned setting, what each gave, and the gain."""
    from rich.table import Table

    made = Table(title=found[0].cell.model if found else "nothing", title_justify="left")
    made.caption = "samples/s: medians of the rounds; gain: paired by round, 95 % interval in brackets"
    for name in ("framework", "scheme", "scenario", "outcome", "default"):
        made.add_column(name, overflow="fold")
    made.add_column("samples/s", justify="right")
    made.add_column("tuned", overflow="fold")
    made.add_column("samples/s", justify="right")
    made.add_column("gain", justify="right", overflow="fold")
    for each in found:
        cell, tuned = each.cell, each.tuned
        row = [cell.backend, cell.scheme, cell.scenario, each.outcome]
        if tuned is None:
            made.add_row(*row, each.reason.code if each.reason else "", "", "", "", "")
            continue
        row += [tuned.default.words(), _rate(tuned, tuned.default)]
        changed = tuned.setting != tuned.default
        made.add_row(
            *row, *([tuned.setting.words(), _rate(tuned, tuned.setting), _gain(tuned)] if changed else [""] * 3)
        )
    return made


def _rate(tuned: Tuned, setting: Setting) -> str:
    from statistics import median

    rates = next((each.samples_per_second for each in tuned.candidates if each.setting == setting), [])
    return f"{median(rates[1:] or rates):.1f}" if rates else ""


def _gain(tuned: Tuned) -> str:
    if tuned.gain_low is None or tuned.gain_high is None:
        return f"x{tuned.gain:.2f}"
    return f"x{tuned.gain:.2f} ({tuned.gain_low:.2f} to {tuned.gain_high:.2f})"


def conclusion(found: Sequence[TunedCell]) -> str:
    """How many cells left their default, and for how much."""
    told = [(each, each.tuned) for each in found if each.tuned is not None]
    changed = [(each, tuned) for each, tuned in told if tuned.setting != tuned.default]
    text = f"{len(changed)} of {len(told)} cells are faster with another setting than the default"
    if len(told) < len(found):
        text += f"; {len(found) - len(told)} were not tuned"
    if not changed:
        return text
    best, tuned = max(changed, key=lambda each: each[1].gain)
    return f"{text}; the largest gain: {_gain(tuned)} in {best.cell}"
