"""``edgeq deploy``."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from edgeq.cli import options
from edgeq.spec.errors import DONE


@click.command("deploy", short_help="Copy a bundle to a device over ssh, and set it up there.")
@options.device(required=True)
@options.device_dir
@options.ssh
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Default: the one in this folder that is for the device's CPU.",
)
@click.option(
    "--python",
    default=None,
    metavar="PATH",
    help="On the device: use this environment as it is, and install nothing.",
)
def command(device: str, device_dir: str, ssh: str, bundle: Path | None, python: str | None) -> int:
    """Copies a bundle by rsync over ssh, checks and unpacks it, and makes the environment to run it in.

    Interrupted, the same command goes on: what was copied and installed is kept. A newer bundle replaces the earlier one,
    not the device's records.

    \b
    Example: edgeq deploy --device pi@raspberrypi.local (after: edgeq bundle; then: edgeq run --device pi@raspberrypi.local)
    """
    from edgeq.deploy.job import deploy
    from edgeq.deploy.ssh import Device

    say = partial(click.echo, err=True)
    deploy(Device.parse(device, device_dir, ssh), bundle, python, say)
    say(f"next: edgeq run --device {device}" + options.elsewhere(device_dir, ssh))
    return DONE
