"""Is there disk for what a worker writes? Asked before each, so that the run stops while all is whole."""

from __future__ import annotations

import shutil
from pathlib import Path

from edgeq.files import write_error
from edgeq.spec.errors import EdgeqError

#: Left over for everything else that writes to this disk: below this much no worker is started.
LEAST_FREE = 16 << 20
#: Job, result and LoadGen's logs of a performance run, which do not grow with its queries (0.1 MB, LoadGen 6.0.17); and
#: the device's state once a second for an hour.
A_CELL = 2 << 20
#: An accuracy run logs each sample's answer and each sample loaded, and keeps its predictions: 175 bytes a sample as measured
#: with 50,000.
BYTES_PER_ANSWER = 200


def needed(answers: int = 0) -> int:
    """Bytes that must be free before a worker starts; ``answers`` is the number of samples of an accuracy run."""
    return LEAST_FREE + A_CELL + BYTES_PER_ANSWER * answers


def enough_disk(folder: Path, wanted: int) -> None:
    """Raises ``EdgeqError`` (code ``disk-full``) where less than ``wanted`` bytes are free in ``folder``."""
    free = shutil.disk_usage(folder).free
    if free < wanted:
        full = write_error(folder, OSError(28, "No space left on device"))
        why = f"{free / 1e6:.0f} MB are free there, what comes next needs {wanted / 1e6:.0f} MB"
        raise EdgeqError(full.what, why, full.hint, code=full.code)
