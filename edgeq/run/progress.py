"""One cell's way through the rounds: which are measured, where each lies, and the record that they make together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edgeq.run.record import FILE_NAME, Record, read_record, write_record
from edgeq.run.rounds import closed, done_with, merged
from edgeq.run.store import RunFolder, next_try, set_aside
from edgeq.spec.names import Cell


class CellProgress:
    """The rounds of one cell of a run, as they lie in its folder."""

    def __init__(self, run: RunFolder, cell: Cell, rounds: int) -> None:
        """Reads what earlier tries have finished.

        Raises:
            EdgeqError: a record is damaged.
        """
        self.cell, self.rounds = cell, rounds
        self.path = run.record(cell)
        self._measured: dict[int, Record] = {}
        self._refused: Record | None = None
        whole = read_record(self.path) if rounds > 1 and self.path.is_file() else None
        if whole is not None and not whole.rounds and done_with(whole):
            self._refused = whole  # a cell that could not be measured at all has a record without rounds
        for number in range(1, rounds + 1):
            record_of_round = self.folder(number) / FILE_NAME
            if record_of_round.is_file():
                record = read_record(record_of_round)
                if done_with(record):
                    self._measured[number] = record
        # It tells of rounds that are tried again, and is kept beside the poorer one that replaces it meanwhile.
        told = [] if whole is None else [each.round for each in whole.rounds]
        tried_again = any(number not in self._measured for number in told) or not told
        self._outdated = whole is not None and self._refused is None and tried_again

    def folder(self, number: int) -> Path:
        """Where the logs of a round lie: the cell's own folder if there is but one."""
        return self.path.parent / self.place(number)

    def place(self, number: int) -> str:
        """The same from the cell's folder."""
        return "." if self.rounds == 1 else f"round-{number}"

    def wants(self, number: int) -> bool:
        """Whether round ``number`` is still to be run."""
        if self._refused is not None or number in self._measured:
            return False
        return not closed(list(self._measured.values()))

    @property
    def left(self) -> int:
        """How many rounds are still to be run."""
        return sum(self.wants(number) for number in range(1, self.rounds + 1))

    @property
    def measured(self) -> list[Record]:
        """The records of the rounds run so far, in the order of their numbers."""
        return [self._measured[number] for number in sorted(self._measured)]

    @property
    def record(self) -> Record | None:
        """The cell's record so far."""
        if self._refused is not None or not self._measured:
            return self._refused
        return merged(self.measured, self.rounds)

    def refuse(self, record: Record) -> Record:
        """Keeps the record of a cell that is not measured, in no round. Raises ``EdgeqError`` as ``write_record`` does."""
        set_aside(self.path)
        write_record(self.path, record)
        self._refused, self._outdated = record, False
        return record

    def add(self, number: int, record: Record) -> None:
        """Takes the record of a round, which lies in its folder, into the cell's, which is written anew.

        Raises:
            EdgeqError: it can't be written.
        """
        self._measured[number] = record
        if self.rounds > 1:
            self._write(merged(self.measured, self.rounds))

    def change(self, make: Callable[[Record], Record]) -> bool:
        """Puts ``make(record)`` in the place of each round's record; one that differs is kept as ``record.try-N.json``.

        Returns whether any differs. Raises ``EdgeqError`` where one can't be written.
        """
        changed = {number: new for number, old in self._measured.items() if (new := make(old)) != old}
        for number, record in changed.items():
            path = self.folder(number) / FILE_NAME
            write_record(next_try(path), self._measured[number])  # a copy: a kill in between must not cost the round
            write_record(path, record)
        self._measured |= changed
        if changed and self.rounds > 1:
            self._outdated = True
            self._write(merged(self.measured, self.rounds))
        return bool(changed)

    def _write(self, record: Record) -> None:
        if self._outdated:
            set_aside(self.path)
            self._outdated = False
        write_record(self.path, record)

    def settle(self) -> None:
        """Brings the cell's record up to date with its rounds: the run may have been killed between the two."""
        if self.rounds > 1 and self._measured and not self._refused:
            record = merged(self.measured, self.rounds)
            if not self.path.is_file() or read_record(self.path) != record:
                self._write(record)
