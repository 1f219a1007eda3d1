"""Records → tables. Reads records and nothing else; pandas is loaded only when a report is made."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgeq.installing import pip_install
from edgeq.spec.errors import EdgeqError


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without Python's garbage collector while inside: nothing of a report is garbage before it is written, and looking for
    some among ten thousand records takes three times as long as reading them."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@_uncollected()
def write_report(results: Path, runs: Sequence[Path] | None, out: Path, formats: set[str]) -> list[Path]:
    """Writes the report's files. See ``edgeq.report.output.write_report``; also raises as ``require`` does."""
    require()
    from edgeq.report import output

    return output.write_report(results, runs, out, formats)


@_uncollected()
def print_report(results: Path, runs: Sequence[Path] | None = None) -> None:
    """Prints the report to the terminal. See ``edgeq.report.output.print_report``; also raises as ``require`` does."""
    require()
    from edgeq.report import output

    output.print_report(results, runs)


@_uncollected()
def make_report(results: Path, runs: Sequence[Path] | None, out: Path, formats: set[str]) -> list[Path]:
    """Writes the report's files and prints it, reading the records once. Raises as ``write_report`` does."""
    require()
    from edgeq.report import output

    output.check_formats(formats)
    report = output.build(results, runs)
    written = output.write(report, out, formats)
    output.show(report)
    return written


@_uncollected()
def print_overlap(results: Path, runs: Sequence[Path]) -> None:
    """Prints two runs cell by cell. See ``edgeq.report.output.print_overlap``; also raises as ``require`` does."""
    require()
    from edgeq.report import output

    output.print_overlap(results, runs)


def require() -> None:
    """Raises ``EdgeqError`` (``not-installed``) where pandas is missing."""
    if importlib.util.find_spec("pandas") is None:
        raise EdgeqError(
            "no report can be made here",
            "pandas is not installed",
            f"run: {pip_install('edgeq[report]')}, or copy the results folder to a machine that has it",
            code="not-installed",
        )
