"""The command that installs a package where edgeq runs: hints say it in words that work there."""

from __future__ import annotations

import os
import shlex
import sys

#: Set by ``run.sh`` of a bundle: its folder.
BUNDLE = "EDGEQ_BUNDLE"


def pip_install(*packages: str, pinned: bool = True) -> str:
    """A command line; on a device that was set up from a bundle, by its own Python and with the wheels that it brought.

    Args:
        packages: Requirements, such as ``edgeq[tflite]``.
        pinned: In the versions that edgeq was tested with.
    """
    folder = os.environ.get(BUNDLE)
    words = ["pip", "install"] if folder is None else [sys.executable, "-m", "pip", "install"]
    if pinned:
        words += ["-c", "constraints.txt" if folder is None else f"{folder}/constraints.txt"]
    if folder is not None:
        words += ["--find-links", f"{folder}/wheels"]
    return shlex.join([*words, *packages])
