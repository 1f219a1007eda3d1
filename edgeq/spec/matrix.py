"""The matrix: every cell asked for, and for one that can't be, the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgeq.spec.names import NO_MODEL, NULL, Cell
from edgeq.spec.note import Note
from edgeq.spec.schemes import meaning


@dataclass(frozen=True)
class Planned:
    """A cell of the matrix; ``reason`` says why it can't be measured, or is None."""

    cell: Cell
    reason: Note | None = None


def matrix(
    models: Sequence[str], backends: Sequence[str], schemes: Sequence[str], scenarios: Sequence[str]
) -> list[Planned]:
    """All combinations, model by model, then backend, scheme and scenario, in the order given.

    The ``null`` backend has no model and no scheme: it gives one cell a scenario.
    """
    planned: list[Planned] = []
    if NULL in backends:
        planned += [_plan(Cell(NO_MODEL, NULL, NO_MODEL, scenario)) for scenario in scenarios]
    for model in models:
        for backend in backends:
            if backend == NULL:
                continue
            for scheme in schemes:
                planned += [_plan(Cell(model, backend, scheme, scenario)) for scenario in scenarios]
    return planned


def _plan(cell: Cell) -> Planned:
    if cell.scenario == "server":
        return Planned(
            cell,
            Note(
                code="not-offered",
                text="edgeq does not drive LoadGen's server scenario",
                hint="use single-stream, multi-stream or offline",
            ),
        )
    offered = None if cell.backend == NULL else meaning(cell.backend, cell.scheme).not_offered
    return Planned(cell, offered)
