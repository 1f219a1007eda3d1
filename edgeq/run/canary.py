"""A few inferences before LoadGen starts: is the output alive and near torch's, and how long will the run take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from edgeq.artifact import Manifest
from edgeq.backends.batches import collect, one_by_one
from edgeq.backends.session import Array, Session
from edgeq.data.layout import to_layout
from edgeq.logits import LOW_SQNR_DB, Distance, alive, distance
from edgeq.run.record import OutputCheck
from edgeq.run.steady import Settled, settle, time_once
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

#: An output this many dB further from torch's than it was on the exporting machine is another computation.
MAX_SQNR_DROP_DB = 6.0


def load_reference(manifest: Manifest, manifest_path: Path) -> tuple[Array, Array]:
    """The model's reference samples (NCHW) and torch's float32 logits for them; verified by ``artifact.verify``."""
    with np.load(manifest_path.parent / manifest.reference.file) as stored:
        return stored["samples"], stored["logits"]


def time_queries(session: Session, query: Sequence[Array], budget_s: float) -> Settled:
    """Warms up with queries of ``len(query)`` samples, as the scenario will issue them, until their time has settled.

    A model so slow that a handful of inferences would eat the budget is timed by the fewest that tell.
    """
    ask: Callable[[], None]
    if len(query) == 1:
        ask = session.bind(query[0][None], np.empty((1, session.classes), np.float32))
    else:

        def ask() -> None:
            session.infer_many(query, lambda position, logits: None)

    return settle(lambda: time_once(ask), budget_s)


def logits_of(session: Session, samples: Array, *, many: bool) -> Array:
    """Logits of ``samples`` (NCHW), through the same path that the scenario will use."""
    batch = to_layout(samples, session.input.layout)
    if not many:
        return one_by_one(session, batch)
    return collect(session, batch)


def check_output(found: Array, expected: Array, manifest: Manifest) -> tuple[OutputCheck, list[Note]]:
    """Compares the device's logits with torch's, and with how far off they were on the exporting machine.

    Returns the figures, and the warnings ``output-differs`` (far worse than at export) and ``low-agreement`` (too far to be
    trusted at all, wherever that comes from).

    Raises:
        EdgeqError: a dead output (code ``dead-output``), or a float32 artifact that does not compute torch's network
            here (``output-differs``).
    """
    alive(found)
    gap = distance(found, expected)
    checked = OutputCheck(sqnr_db=gap.sqnr_db, top1_agreement=gap.top1_agreement, n=gap.n)
    low = _low_agreement(gap, manifest.scheme)
    exported = manifest.check
    if exported is None or gap.sqnr_db is None or gap.sqnr_db > _PLENTY_DB:
        return checked, low
    if exported.sqnr_db is not None and gap.sqnr_db >= exported.sqnr_db - MAX_SQNR_DROP_DB:
        return checked, low
    before = "no error at all" if exported.sqnr_db is None else f"{exported.sqnr_db:.1f} dB"
    what = f"the output lies {gap.sqnr_db:.1f} dB from torch's float32, where the exporting machine had {before}"
    hint = "this CPU computes something else than the exporting one: export with --target for this device"
    if manifest.scheme == "fp32":
        raise EdgeqError("this device does not compute the exported network", what, hint, code="output-differs")
    return checked, [Note(code="output-differs", text=what, hint=hint), *low]


def _low_agreement(gap: Distance, scheme: str) -> list[Note]:
    if scheme == "fp32" or gap.sqnr_db is None or gap.sqnr_db >= LOW_SQNR_DB:
        return []
    text = (
        f"logits lie {gap.sqnr_db:.1f} dB from torch's float32 on this device (SQNR on {gap.n} samples; top-1 agrees on "
        f"{gap.top1_agreement:.0%})"
    )
    return [Note(code="low-agreement", text=text, hint="measure accuracy with --dataset before trusting this artifact")]


#: Above this an output is float32's for all that matters, whatever it was elsewhere.
_PLENTY_DB = 60.0
