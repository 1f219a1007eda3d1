"""LoadGen's accuracy log → the five best classes of every sample."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeq.loadgen.log import ACCURACY
from edgeq.loadgen.sut import TOP
from edgeq.spec.errors import EdgeqError

Labels = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Predictions:
    """What was predicted for each sample of a library."""

    best: Labels
    """int32 ``[n, 5]`` by sample index: class indices, best first, -1 where there are fewer classes."""
    repeats: int
    """Answers beyond one a sample: LoadGen pads a multi-stream run to whole queries."""

    @property
    def n(self) -> int:
        return len(self.best)

    def top1(self, labels: npt.ArrayLike) -> float:
        """Share of samples whose best class is the label, 0 to 1. ``labels``: ``[n]``, by sample index."""
        return float((self.best[:, 0] == self._labels(labels)).mean())

    def top5(self, labels: npt.ArrayLike) -> float:
        """Share of samples whose label is among the five best classes, 0 to 1. ``labels``: ``[n]``."""
        return float((self.best == self._labels(labels)[:, None]).any(axis=1).mean())

    def agreement(self, other: Predictions) -> float:
        """Share of samples for which both have the same best class, 0 to 1."""
        return self.top1(other.best[:, 0])

    def _labels(self, labels: npt.ArrayLike) -> npt.NDArray[Any]:
        found = np.asarray(labels)
        if found.shape != (self.n,):
            raise ValueError(f"labels have shape {found.shape}, predictions are {self.n}")
        return found


def read_accuracy(log_dir: Path, total: int) -> Predictions:
    """Reads ``mlperf_log_accuracy.json`` of an accuracy run that ``drive`` made over ``total`` samples.

    Raises:
        EdgeqError: the log is missing or damaged, a sample is missing, unknown, or answered twice in two ways (code
            ``loadgen-log``).
    """
    path = log_dir / ACCURACY
    best: Labels = np.full((total, TOP), -1, np.int32)
    seen = np.zeros(total, bool)
    count = 0
    for index, answer in _entries(path):
        if not 0 <= index < total:
            raise _bad_log(path, f"it holds sample {index}; there are {total}")
        if seen[index] and not np.array_equal(best[index], answer):
            raise _bad_log(path, f"sample {index} has two different answers")
        best[index], seen[index] = answer, True
        count += 1
    if not seen.all():
        missing = np.flatnonzero(~seen)
        raise _bad_log(path, f"{len(missing)} of {total} samples are missing, the first is {missing[0]}")
    return Predictions(best, count - total)


def _entries(path: Path) -> Iterator[tuple[int, Labels]]:
    """Sample and answer of each entry; LoadGen writes one a line. Read one by one: 50,000 at once would take 20 MB."""
    try:
        with path.open(encoding="utf-8") as log:
            if next(log, "") != "[\n":
                raise ValueError("it does not begin as a list")
            more = True
            for line in log:
                if line.strip() == "]" and not more and next(log, None) is None:
                    return
                if not more:
                    raise ValueError(f"a comma is missing before {line[:40]!r}")
                more = line.endswith(",\n")
                entry = json.loads(line.rstrip(",\n"))
                yield int(entry["qsl_idx"]), _decode(entry["data"])
            raise ValueError("its list does not end")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _bad_log(path, str(error) or type(error).__name__) from error


def _decode(data: str) -> Labels:
    """Hex of five int32, in the byte order of the machine that ran: all that edgeq runs on are little-endian."""
    answer = np.frombuffer(bytes.fromhex(data), "<i4")
    if len(answer) != TOP:
        raise ValueError(f"an answer holds {len(answer)} classes, not {TOP}")
    return answer.astype(np.int32)


def _bad_log(path: Path, why: str) -> EdgeqError:
    return EdgeqError(
        f"LoadGen's log {path} can't be used",
        why,
        "run the accuracy run again; check that the disk is not full",
        code="loadgen-log",
    )
