"""One LoadGen run in a process of its own: a JSON request on stdin, what came of it in the file that it names.

The systems and the library here are for tests: each sample is filled with its own index, so that an answer can be
traced to the sample that it was made from.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgeq.backends.null import open_null
from edgeq.backends.session import SessionOptions, bound
from edgeq.loadgen.drive import drive
from edgeq.loadgen.plan import Plan
from edgeq.loadgen.protocols import Array, Call, Done
from edgeq.spec.errors import EdgeqError

SHAPE = (1, 2, 2)
CLASSES = 2500


class Numbered:
    """A library whose sample i is filled with i."""

    def __init__(self, count: int, broken: bool = False) -> None:
        self.count, self.broken = count, broken
        self.loads: list[list[int]] = []

    def load_into(self, out: Array, indices: Sequence[int], layout: str) -> None:
        if self.broken and self.loads:
            raise OSError("the disk went away")
        self.loads.append(list(indices))
        out[...] = np.asarray(indices, np.float32).reshape(-1, 1, 1, 1)


class Classifier:
    """Says class i for the sample filled with i, class i + 1 as second, and so on. Answers from fresh temporaries."""

    classes = CLASSES

    def __init__(self) -> None:
        self.calls = 0

    def infer(self, batch: Array) -> Array:
        self.calls += 1
        first = batch[:, 0, 0, 0][:, None]
        distance: Array = (np.arange(CLASSES, dtype=np.float32)[None] - first) % CLASSES
        return -distance

    def bind(self, batch: Array, logits: Array) -> Call:
        return bound(lambda given: self.infer(given), batch, logits)

    def infer_many(self, samples: Sequence[Array], done: Done) -> None:
        for first in range(0, len(samples), 3):
            done(first, self.infer(np.stack(samples[first : first + 3])))


class Threaded(Classifier):
    """Two threads, each with every other sample; the first failure is raised when both have stopped."""

    def infer_many(self, samples: Sequence[Array], done: Done) -> None:
        errors: list[BaseException] = []

        def stream(offset: int) -> None:
            try:
                for position in range(offset, len(samples), 2):
                    done(position, self.infer(samples[position][None]))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=stream, args=(offset,)) for offset in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


class Raising(Threaded):
    def infer(self, batch: Array) -> Array:
        logits = super().infer(batch)
        if self.calls >= 5:  # threads count together: the fifth may be seen as the sixth
            raise RuntimeError("the fifth inference failed")
        return logits


class Exiting(Threaded):
    def infer(self, batch: Array) -> Array:
        logits = super().infer(batch)
        if self.calls >= 5:  # threads count together: the fifth may be seen as the sixth
            raise SystemExit(3)
        return logits


class Interrupted(Threaded):
    """Gets Ctrl-C in the middle of its fifth inference."""

    def infer(self, batch: Array) -> Array:
        if self.calls == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return super().infer(batch)


class WrongShape(Classifier):
    def infer(self, batch: Array) -> Array:
        logits = super().infer(batch)
        return logits if self.calls < 5 else logits[:, :10]


class Forgetful(Classifier):
    """Returns without having answered the last sample."""

    def infer_many(self, samples: Sequence[Array], done: Done) -> None:
        super().infer_many(samples[:-1], done)


class Late(Classifier):
    """Returns at once, and answers when LoadGen is gone."""

    def infer_many(self, samples: Sequence[Array], done: Done) -> None:
        self.late = lambda: done(0, self.infer(samples[0][None]))


class Crowded(Classifier):
    """Fails where another Python thread runs beside an inference."""

    def infer(self, batch: Array) -> Array:
        if threading.active_count() != 1:
            raise RuntimeError(f"{threading.active_count()} threads")
        return super().infer(batch)


class Twice(Classifier):
    def infer_many(self, samples: Sequence[Array], done: Done) -> None:
        super().infer_many(samples, done)
        done(0, self.infer(samples[0][None]))


class Dying(Classifier):
    """Right at first, then the same number for every class: LoadGen can't tell."""

    def infer(self, batch: Array) -> Array:
        logits = super().infer(batch)
        return logits if self.calls < 5 else np.zeros_like(logits)


class NotANumber(Classifier):
    def infer(self, batch: Array) -> Array:
        logits = super().infer(batch)
        return logits if self.calls < 5 else np.full_like(logits, np.nan)


SYSTEMS: dict[str, Callable[[], Any]] = {
    kind.__name__: kind
    for kind in (
        Classifier, Threaded, Raising, Exiting, Interrupted, WrongShape, Forgetful, Late, Crowded, Twice, Dying,
        NotANumber,
    )
}  # fmt: skip
SYSTEMS["null"] = lambda: open_null(SessionOptions(threads=1), SHAPE, 1000)


def main() -> None:
    request = json.load(sys.stdin)
    library = Numbered(request["count"], request.get("broken_library", False))
    reply: dict[str, Any] = {}
    for _ in range(request.get("runs", 1)):
        try:
            system = SYSTEMS[request["system"]]()
            outcome = drive(system, library, Plan(**request["plan"]), Path(request["log_dir"]), "NCHW", SHAPE)
            notes = [note.model_dump() for note in outcome.notes]
            assert outcome.times is not None
            times = {name: values.tolist() for name, values in vars(outcome.times).items()}
            fields = dataclasses.asdict(dataclasses.replace(outcome, times=None))
            reply = {"outcome": {**fields, "notes": notes}, "times": times}
        except BaseException as error:
            code = error.code if isinstance(error, EdgeqError) else None
            reply = {"error": type(error).__name__, "text": str(error), "code": code}
    if hasattr(system, "late"):
        try:
            system.late()
        except Exception as error:
            reply["late"] = type(error).__name__
    reply["loads"] = library.loads
    reply["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    Path(request["reply"]).write_text(json.dumps(reply))


if __name__ == "__main__":
    main()
