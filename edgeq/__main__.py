"""``python -m edgeq``."""

from edgeq.cli.main import main

main()
