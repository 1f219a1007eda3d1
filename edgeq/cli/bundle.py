"""``edgeq bundle``."""

from __future__ import annotations

from pathlib import Path

import click

from edgeq.artifact import TARGETS
from edgeq.cli import options
from edgeq.deploy.checkout import PYTHONS
from edgeq.spec.errors import DONE
from edgeq.spec.names import BACKENDS, SCHEMES, check_names

#: What is packed where no backend is named: torch is as large as all others together, and nothing but its own cells needs it.
DEFAULT_BACKENDS = tuple(name for name in BACKENDS if name != "pytorch")


@click.command("bundle", short_help="Pack what was exported, and edgeq, for a device.")
@options.model
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME",
    help=f"A framework ({', '.join(BACKENDS)}); may repeat. Default: all but pytorch, which installs torch on the device.",
)
@options.scheme
@click.option(
    "--target",
    default="aarch64",
    show_default=True,
    metavar=f"host|{'|'.join(TARGETS)}",
    help="The device's CPU; as for edgeq export.",
)
@click.option(
    "--dataset",
    type=click.Path(path_type=Path),
    default=None,
    metavar="DIR",
    help="Labelled images: packed preprocessed, for edgeq run --dataset samples on the device.",
)
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="NAME",
    help="Its synthetic samples are packed (the device would take minutes to make them); may repeat. Default: quick.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of these samples; as for edgeq run."
)
@click.option(
    "--wheels",
    multiple=True,
    type=click.Choice(PYTHONS),
    help="Pack all that a device with this Python installs: it then needs no network. May repeat.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Default: edgeq-<target>.pyz.",
)
@options.models_dir
@options.scenarios_dir
def command(
    models: tuple[str, ...],
    backends: tuple[str, ...],
    schemes: tuple[str, ...],
    target: str,
    dataset: Path | None,
    profiles: tuple[str, ...],
    seed: int,
    wheels: tuple[str, ...],
    out: Path | None,
    models_dir: Path,
    scenarios_dir: Path,
) -> int:
    """Packs artifacts, specs, samples, edgeq's wheel and what LoadGen is built from into one file, with checksums.

    On the device: python3 edgeq-aarch64.pyz unpacks and checks it; then edgeq-aarch64/run.sh. Or let edgeq deploy do it.

    \b
    Example: edgeq bundle --model mobilenet_v2 (after: edgeq export --model mobilenet_v2 --target aarch64)
    """
    from rich.console import Console

    from edgeq.cli.display import print_warning
    from edgeq.deploy.contents import BundleRequest
    from edgeq.deploy.pack import make_bundle
    from edgeq.host import cpu
    from edgeq.spec.profile import profile_names

    if target != "host":
        check_names("target", [target], TARGETS)
    request = BundleRequest(
        models_dir=models_dir,
        scenarios_dir=scenarios_dir,
        models=options.chosen_models(models_dir, models),
        backends=options.chosen("backend", backends, BACKENDS, DEFAULT_BACKENDS),
        schemes=options.chosen("scheme", schemes, SCHEMES, SCHEMES),
        target=cpu.target() if target == "host" else target,
        profiles=check_names("profile", profiles or ("quick",), profile_names(scenarios_dir)),
        dataset=dataset,
        seed=seed,
        wheels=wheels,
    )
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    with errors.status("bundle") as status:
        made = make_bundle(
            request,
            out or Path(f"{request.name}.pyz"),
            lambda model, done, total: status.update(f"preprocessing the dataset for {model} ({done}/{total})"),
            lambda step: status.update(f"bundle: {step}"),
        )
    for note in made.notes:
        print_warning(errors, note)
    click.echo(made.listing)
    click.echo(f"written: {made.path} ({made.path.stat().st_size / 1e6:.1f} MB)", err=True)
    click.echo(f"next: edgeq deploy --device user@host; or copy it there, then: {made.start}", err=True)
    return DONE
