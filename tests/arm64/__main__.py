"""``make test-arm64``: edgeq on an emulated Raspberry Pi, installed from a bundle as on a real one."""

from __future__ import annotations

import sys

from rich.console import Console

from edgeq.spec.errors import EdgeqError
from tests.arm64.steps import Course


def main() -> int:
    """Exit code 0 where every step passed, 1 where one failed, 2 where nothing could be played."""
    console = Console(highlight=False, soft_wrap=True)
    try:
        return Course(console).go()
    except EdgeqError as error:
        console.print(f"[red]error[/]: {error.what}\n  why: {error.why}\n  try: {error.hint}")
        return 2
    except KeyboardInterrupt:
        console.print("\ninterrupted: what is cached is kept; make test-arm64 begins its steps anew")
        return 130


if __name__ == "__main__":
    sys.exit(main())
