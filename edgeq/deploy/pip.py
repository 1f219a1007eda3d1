"""This interpreter's pip, asked for what goes into a bundle."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence

from edgeq.spec.errors import EdgeqError

#: pip's own errors, and a compiler's; then anything that speaks of one.
_TELLING = (re.compile(r"^(?:ERROR|error):|: (?:fatal )?error:"), re.compile("error", re.IGNORECASE))


def pip(
    arguments: Sequence[str], *, what: str, hint: str, code: str, environment: Mapping[str, str] | None = None
) -> None:
    """Runs ``pip`` with ``arguments``.

    Args:
        what: What it did not come to, for the error.
        hint: What to try then.
        code: Of the error.
        environment: On top of this process's.

    Raises:
        EdgeqError: pip failed; the reason is the line of its output that tells most.
    """
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(
        command, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise EdgeqError(what, telling(done.stderr or done.stdout), hint, code=code)


def telling(said: str) -> str:
    """The first line that names an error, what pip or a compiler says of it first; without one, the last; 300 characters."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for pattern in _TELLING:
        for line in lines:
            if pattern.search(line):
                return line.removeprefix("ERROR: ")[:300]
    return (lines or ["pip gave no reason"])[-1][:300]
