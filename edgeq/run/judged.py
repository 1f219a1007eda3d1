"""The figure that a cell is judged by, by its name in ``Record.intervals``. Light, so that the tables can share it."""

from __future__ import annotations

from edgeq.run.record import Record, Round

#: What a cell of offline is judged by, as there a sample's latency is only its place in the queue.
THROUGHPUT = "samples_per_second"

#: Percentiles that a record holds, with their shares of 1; beyond the last one there is only ``max``.
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def judged(record: Record) -> str:
    """``samples_per_second`` in offline, else the latency that LoadGen judged at: ``latency_ms.p90``.

    Where a record does not hold that percentile, the next higher one, which promises no more than was asked for.
    """
    if record.cell.scenario == "offline":
        return THROUGHPUT
    asked = (record.loadgen and record.loadgen.percentile) or 0.9
    return "latency_ms." + next((name for name, value in _PERCENTILES.items() if value >= asked - 1e-9), "max")


def figure_of(record: Record | Round, name: str) -> float | None:
    """The figure that ``Record.intervals`` calls ``name``, in milliseconds or samples a second; None where there is none.

    Raises:
        AttributeError: there is no such figure.
    """
    if name == THROUGHPUT:
        return record.samples_per_second
    latency = record.latency_ms
    return None if latency is None else float(getattr(latency, name.removeprefix("latency_ms.")))
