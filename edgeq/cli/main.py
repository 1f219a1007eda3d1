"""``edgeq``: a file a verb; this one finds the verb, and turns errors into three lines and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import click

from edgeq import __version__
from edgeq.files import write_error
from edgeq.spec.errors import DONE, FELL_SHORT, EdgeqError, nearest

#: Verb → its one line of help. The module ``edgeq.cli.<verb>`` holds ``command``, and is imported when it is called.
VERBS = {
    "doctor": "What this device is, and what each backend can run here.",
    "export": "Quantize and export models for each framework.",
    "sweep": "Measure accuracy against a choice of quantization.",
    "tune": "Find the fastest threads, streams and batch for each cell.",
    "run": "Measure cells with MLPerf LoadGen.",
    "report": "Turn records into comparison tables.",
    "bundle": "Pack what was exported, and edgeq, for a device.",
    "deploy": "Copy a bundle to a device over ssh, and set it up there.",
    "explain": "Why a cell is slow or fast: time by operator, against fp32.",
}


class Verbs(click.Group):
    """Imports a verb's module only when it is called, so that ``--help`` answers at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"edgeq.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in VERBS:
            close = nearest(name, VERBS)
            raise click.UsageError(f"no command {name!r}" + (f"; did you mean {close!r}?" if close else ""), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="edgeq")
def cli() -> None:
    """Which framework, at which precision, is right for this device, and why.

    \b
    Example: edgeq export --model mobilenet_v2 && edgeq run --model mobilenet_v2 && edgeq report
    """


def main() -> None:
    """Entry point of the console script. Exit codes: 0 done, 1 something fell short, 2 the request was wrong."""
    try:
        code = cli.main(standalone_mode=False)
    except EdgeqError as error:
        _complain(error.what, error.why, error.hint)
        code = error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _complain(
            "stopped",
            "interrupted from the keyboard",
            "type the same command again; edgeq run goes on with --resume",
        )
        code = FELL_SHORT
    except BrokenPipeError:  # `edgeq report | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = DONE
    except OSError as error:  # a folder that can't be read or written, a full disk, wherever it shows first
        refused = write_error(Path(error.filename or "."), error)
        _complain(refused.what.replace("cannot write", "cannot use"), refused.why, refused.hint)
        code = FELL_SHORT
    sys.exit(code if isinstance(code, int) else DONE)


def _complain(what: str, why: str, hint: str) -> None:
    click.echo(f"{click.style('error', fg='red', bold=True)}: {what}", err=True)
    click.echo(f"  why: {why}", err=True)
    click.echo(f"  try: {hint}", err=True)


if __name__ == "__main__":
    main()
