"""``edgeq doctor``."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Table

from edgeq.cli import options
from edgeq.spec.errors import DONE, FELL_SHORT


@click.command("doctor", short_help="What this device is, and what each backend can run here.")
@options.as_json
def command(as_json: bool) -> int:
    """Says what this device is, which frameworks are installed, what INT8 and FP16 can gain here, and what to mend.

    Exit code 1 where something is wrong that a command given beside it mends.

    \b
    Example: edgeq doctor
    """
    from edgeq.run.diagnosis import diagnose

    found = diagnose()
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=1))
        return FELL_SHORT if found.wrong else DONE
    console = Console(highlight=False)
    device = found.device
    console.print(f"[bold]{device['name']}[/]  {device['cpu']}, {device['cores']} cores for edgeq, {device['os']}")
    console.print(f"ISA: {', '.join(device['isa']) or 'nothing beyond the base'}; INT8 target: {device['target']}")
    table = Table("backend", "version", show_edge=False)
    for backend, versions in found.backends.items():
        said = ", ".join(f"{name} {version}" for name, version in versions.items())
        table.add_row(backend, said or "[yellow]not installed[/]")
    console.print(table)
    for finding in found.findings:
        console.print(
            f"[{'red' if finding.wrong else 'yellow'}]{'wrong' if finding.wrong else 'note'}[/]: {finding.note.text}"
        )
        if finding.note.hint:
            console.print(f"  try: {finding.note.hint}", markup=False)
    if not found.wrong:
        console.print("[green]nothing is wrong[/]; next: make run")
    return FELL_SHORT if found.wrong else DONE
