"""``edgeq doctor``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from edgeq.cli import options
from edgeq.spec.errors import DONE, FELL_SHORT

if TYPE_CHECKING:
    from edgeq.run.diagnosis import Diagnosis
    from edgeq.run.probing import Found


@click.command("doctor", short_help="What this device is, and what each backend can run here.")
@click.option("--no-probe", is_flag=True, help="Start no framework: leave out what INT8 and FP16 really compute here.")
@options.as_json
def command(no_probe: bool, as_json: bool) -> int:
    """Says what this device is, which frameworks are installed, what INT8 and FP16 compute here, and what to mend.

    Each framework runs small networks whose answer is known, quantized by each of edgeq's recipes: where its kernels
    saturate on this CPU, the answer is wrong. Results are kept, so that only the first call takes long.

    Exit code 1 where something is wrong that a command given beside it mends.

    \b
    Example: edgeq doctor
    """
    from edgeq.run.diagnosis import diagnose

    errors = Console(stderr=True, highlight=False)
    with (
        errors.status("looking at this device")
        if errors.is_terminal
        else Status("", console=Console(quiet=True)) as bar
    ):
        found = diagnose(
            probe=not no_probe, watcher=lambda backend, step: bar.update(f"probing {backend}: {escape(step)}")
        )
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=1))
        return FELL_SHORT if found.wrong else DONE
    show(found, Console(highlight=False))
    return FELL_SHORT if found.wrong else DONE


def show(found: Diagnosis, console: Console) -> None:
    """The diagnosis as a reader has it."""
    device, os = found.device, found.device["os"] or "unknown operating system"

    def line(text: str, *, markup: bool = True) -> None:  # whole, as a command is copied in one piece
        console.print(text, markup=markup, soft_wrap=True)

    line(f"[bold]{escape(device['name'])}[/]  {escape(device['cpu'])}, {device['cores']} cores for edgeq, {escape(os)}")
    line(f"ISA: {', '.join(device['isa']) or 'nothing beyond the base'}; INT8 target: {device['target']}")
    line(f"now: {'; '.join(_now(found.condition))}", markup=False)
    console.print(_backends(found))
    if found.probes:
        console.print(_probes(found))
        console.print("* what edgeq export makes for this device; what fp32 computes is in each record", markup=False)
    for finding in found.findings:
        verdict = "[red]wrong[/]" if finding.wrong else "[yellow]note[/]"
        line(f"{verdict}: {escape(finding.note.text)}")
        if finding.note.hint:
            line(f"  try: {finding.note.hint}", markup=False)
    if not found.wrong:
        console.print("[green]nothing is wrong[/]; next: make run")


def _now(condition: dict[str, Any]) -> list[str]:
    """What the device does now, in the order of interest; what it does not tell is left out."""
    state, memory, disk = condition["state"], condition["memory_mb"], condition["disk_mb"]
    said = [f"{celsius:.0f} °C ({sensor})" for sensor, celsius in (state["temperature_c"] or {}).items()]
    clocks = sorted({round(mhz) for mhz in state["frequency_mhz"] or []})
    if clocks:
        said.append(f"{clocks[0]} MHz" if len(clocks) == 1 else f"{clocks[0]} to {clocks[-1]} MHz")
    if state["governor"]:
        said.append(f"governor {state['governor']}")
    if state["throttled"] is not None:
        said.append(f"firmware: {', '.join(state['throttled']['now']) or 'not throttled'}")
    if memory["available"] is not None:
        said.append(f"{memory['available']} of {memory['total']} MB of memory free")
    return [*said, f"{disk['free'] / 1e3:.1f} GB of disk free in {disk['folder']}"]


def _backends(found: Diagnosis) -> Table:
    table = Table("backend", "version", show_edge=False)
    for backend, versions in found.backends.items():
        said = ", ".join(f"{name} {version}" for name, version in versions.items())
        table.add_row(backend, said or "[yellow]not installed[/]")
    return table


def _probes(found: Diagnosis) -> Table:
    table = Table("backend", "scheme", "numbers", "computes here", "known answer", show_edge=False)
    for backend, result in found.probes.items():
        made = {found.exported_here(backend), "int8-dynamic", "fp16"}
        for each in result.found:
            star = " *" if each.name in made else ""
            table.add_row(backend, each.scheme, each.words + star, escape(_computes(each)), _verdict(each))
        if not result.found:
            table.add_row(backend, "", "", "[red]did not run[/]", "")
    return table


def _computes(found: Found) -> str:
    precisions = " + ".join(sorted(found.computes, reverse=True)) or "did not run"
    return f"{precisions} ({found.engine})" if "fp16" in found.computes else precisions


def _verdict(found: Found) -> str:
    if found.probe is None:
        return ""
    if found.probe.ok:
        return "[green]exact[/]"
    value, expected = found.probe.found, found.probe.expected
    if value is None:
        return f"[red]wrong[/]: not a number ({found.layer})"
    what = "saturates" if 0 < value < expected else "wrong"
    return f"[red]{what}[/]: {value:.2f} of {expected:.2f} ({found.layer})"
