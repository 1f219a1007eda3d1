"""``edgeq run``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgeq.cli import options
from edgeq.spec.errors import DONE, FELL_SHORT, RequestError
from edgeq.spec.matrix import matrix
from edgeq.spec.names import BACKENDS, NULL, SCENARIOS, SCHEMES, STUDY_SCENARIOS

if TYPE_CHECKING:
    from edgeq.run.record import Record


@click.command("run", short_help="Measure cells with MLPerf LoadGen.")
@options.model
@options.backend
@options.scheme
@options.scenario
@click.option("--profile", default="quick", show_default=True, help="How long and how strictly: a file of --scenarios.")
@click.option(
    "--dataset",
    type=click.Path(path_type=Path),
    default=None,
    metavar="DIR",
    help="Labelled images: adds an accuracy run for each artifact, and feeds the timed runs.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Measure all cells N times, each round in another random order; figures are then the rounds' medians.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of synthetic samples, and of the order of the cells in each round.",
)
@click.option("--no-tuned", is_flag=True, help="Use the default threads, streams and batch, whatever edgeq tune found.")
@click.option(
    "--cool-to",
    type=click.FloatRange(min=1, max=150),
    default=None,
    metavar="C",
    help="Where the device throttled or lacked voltage, wait until its CPU is at C °C (at most 15 minutes), then measure the "
    "cell once more.",
)
@click.option("--ignore-memory", is_flag=True, help="Try cells that are not expected to fit in memory, too.")
@click.option("--resume", is_flag=True, help="Go on with the newest run that was asked for with the same options.")
@click.option("--list", "only_list", is_flag=True, help="List the cells, and why one can't be measured; run nothing.")
@options.device(required=False)
@options.device_dir
@options.ssh
@options.threads
@options.results
@options.models_dir
@options.scenarios_dir
@options.as_json
@click.pass_context
def command(
    context: click.Context,
    models: tuple[str, ...],
    backends: tuple[str, ...],
    schemes: tuple[str, ...],
    scenarios: tuple[str, ...],
    profile: str,
    dataset: Path | None,
    rounds: int,
    seed: int,
    no_tuned: bool,
    ignore_memory: bool,
    cool_to: float | None,
    resume: bool,
    only_list: bool,
    device: str | None,
    device_dir: str,
    ssh: str,
    threads: int | None,
    results: Path,
    models_dir: Path,
    scenarios_dir: Path,
    as_json: bool,
) -> int:
    """Measures every cell (model/backend/scheme/scenario) in a fresh process, and leaves a record for each.

    Backend null runs no model: its cells show what LoadGen and edgeq themselves cost. Exit code 1 where a cell failed
    or was invalid, be it in one round of several; a skipped cell has its reason in its record.

    \b
    Example: edgeq run --model mobilenet_v2 --backend tflite --scheme fp32 --scheme int8-static
    Example: edgeq run --device pi@raspberrypi.local --dataset samples     # what edgeq bundle --dataset packed
    """
    if device is not None:
        return _there(context, device, device_dir, ssh)
    from edgeq.cli.display import RunDisplay
    from edgeq.host import cpu
    from edgeq.host.device import describe
    from edgeq.run.runner import Runner, RunRequest
    from edgeq.spec.profile import load_profile

    chosen_backends = options.chosen("backend", backends, (*BACKENDS, NULL), BACKENDS)
    no_model = set(chosen_backends) == {NULL}
    if no_model and (models or schemes or dataset):
        raise RequestError(
            "--model, --scheme and --dataset have no use with backend null",
            "it runs no model",
            "leave them out, or add another --backend",
            code="unused-option",
        )
    request = RunRequest(
        models_dir=models_dir,
        results=results,
        models=() if no_model else options.chosen_models(models_dir, models),
        backends=chosen_backends,
        schemes=options.chosen("scheme", schemes, SCHEMES, SCHEMES),
        scenarios=options.chosen("scenario", scenarios, SCENARIOS, STUDY_SCENARIOS),
        profile=load_profile(scenarios_dir, profile),
        threads=threads or cpu.physical_cores(),
        target=cpu.target(),
        device=describe(),
        dataset=dataset,
        rounds=rounds,
        seed=seed,
        resume=resume,
        use_tuned=not no_tuned,
        ignore_memory=ignore_memory,
        cool_to=cool_to,
    )
    if only_list:
        for plan in matrix(request.models, request.backends, request.schemes, request.scenarios):
            click.echo(f"{plan.cell}" + (f"  skipped: {plan.reason.text}" if plan.reason else ""))
        return DONE
    with RunDisplay(as_json) as display:
        records = Runner(request, display).run()
    display.conclude(records)
    return FELL_SHORT if any(_fell_short(record) for record in records) else DONE


def _there(context: click.Context, address: str, device_dir: str, ssh: str) -> int:
    """The same on a device, whose bundle holds models and profiles; ``--dataset`` is a folder there."""
    from edgeq.deploy.ssh import Device
    from edgeq.deploy.there import RemoteRun

    local, of_the_bundle = {"device", "device_dir", "ssh", "results"}, {"models_dir", "scenarios_dir", "as_json"}
    useless = options.given(context, set(context.params) - of_the_bundle)
    if useless:
        raise RequestError(
            f"{useless[0]} has no use with --device",
            "models and profiles are those that edgeq bundle packed, and records come as files",
            f"leave it out; records will be under {context.params['results']}",
            code="unused-option",
        )

    say = partial(click.echo, err=True)
    remote = RemoteRun(Device.parse(address, device_dir, ssh), context.params["results"], say)
    say(f"on {address}: {remote.folder}")
    arguments = options.given(context, local)
    if context.params["only_list"]:
        click.echo(remote.listing(arguments), nl=False)
        return DONE
    code = remote.run(arguments, context.params["resume"])
    say(f"records of {address} are in {context.params['results']}; tables: edgeq report")
    return code


def _fell_short(record: Record) -> bool:
    lost = {"failed", "invalid"} & {record.status, *(each.status for each in record.rounds)}
    return bool(lost) or any(note.code == "accuracy-failed" for note in record.warnings)
