"""Names of a worker's phases that its runner must know again."""

from __future__ import annotations

#: After the measurement: which of them a worker died in is told in the record.
SATURATION, OPERATORS = "saturation probe", "operator profile"
