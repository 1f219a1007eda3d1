"""A worker whose framework dies where ``EDGEQ_TEST_DIES`` says: run in the place of ``edgeq.run.worker``."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from edgeq.run import aftermath
from edgeq.run.worker import main


def _die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


if __name__ == "__main__":
    setattr(aftermath, os.environ["EDGEQ_TEST_DIES"], _die)
    sys.exit(main(sys.argv))
