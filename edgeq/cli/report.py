"""``edgeq report``."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from edgeq.cli import options
from edgeq.spec.errors import DONE, RequestError


@click.command("report", short_help="Turn records into comparison tables.")
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path), metavar="[RUN]...")
@click.option("--format", "formats", default="md,csv", show_default=True, help="Comma-separated: md, csv.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    metavar="DIR",
    help="Where the files go. Default: report/ under --results.",
)
@click.option("--overlap", is_flag=True, help="Of two runs: print which cells' intervals overlap, and write nothing.")
@options.results
@click.pass_context
def command(
    context: click.Context, runs: tuple[Path, ...], formats: str, out: Path | None, overlap: bool, results: Path
) -> int:
    """Writes the comparison tables of the newest run of each device (or of the runs named), and prints them.

    \b
    Example: edgeq report results/my-device/20261130T204512Z-quick --out tables
    """
    from edgeq.report import make_report, print_overlap

    if overlap:
        _writes_nothing(context)
        print_overlap(results, list(runs))
        return DONE
    wanted = {name.strip() for name in formats.split(",") if name.strip()}
    if not wanted:
        raise RequestError("no format", f"--format {formats!r} names none", "pass --format md,csv", code="bad-value")
    written = make_report(results, list(runs) or None, out or results / "report", wanted)
    click.echo("written: " + ", ".join(str(path) for path in written), err=True)
    return DONE


def _writes_nothing(context: click.Context) -> None:
    """Raises ``RequestError`` for options of files that ``--overlap`` would not write."""
    given = [option for name, option in (("formats", "--format"), ("out", "--out"))
             if context.get_parameter_source(name) is not ParameterSource.DEFAULT]  # fmt: skip
    if given:
        raise RequestError(
            f"{' and '.join(given)} with --overlap", "--overlap prints, and writes no file",
            f"leave out {' and '.join(given)}, or --overlap", code="bad-value",
        )  # fmt: skip
