"""How near a cell comes to the machine's limit, from what its record holds."""

from __future__ import annotations

from typing import Any

from edgeq.peaks import Efficiency, efficiency
from edgeq.run.record import Record
from edgeq.spec.names import MULTI_STREAM, SINGLE_STREAM
from edgeq.spec.note import Note

Row = dict[str, Any]

#: Notes on the machine's peaks that bear on every share of them.
_DOUBTS = ("peak-disturbed",)


def rate(record: Record) -> float | None:
    """Samples a second: of queries one at a time, their samples over the median latency; else the throughput."""
    if record.cell.scenario not in (SINGLE_STREAM, MULTI_STREAM):
        return record.samples_per_second
    if record.latency_ms is None or record.latency_ms.p50 <= 0 or not record.queries or not record.samples:
        return None
    return 1e3 * record.samples / record.queries / record.latency_ms.p50


def achieved(record: Record) -> Efficiency | None:
    """None where the record lacks any part of it, or where not all of what ran could be accounted for."""
    found, ran, peaks = rate(record), record.effective, record.peaks
    macs = record.artifact.macs if record.artifact else None
    unsure = any(note.code == "macs-unaccounted" for note in record.warnings)
    if found is None or ran is None or macs is None or peaks is None or unsure:
        return None
    return efficiency(ran.macs, macs, found, peaks)


def columns(record: Record) -> Row:
    """The frame's columns of it."""
    found, peaks = achieved(record), record.peaks
    return {
        "macs_per_sample": record.artifact and record.artifact.macs,
        "macs_per_second": found and found.macs_per_s, "peak_share": found and found.share,
        "peak_library": found and found.library, "peaks": peaks.words() if peaks and peaks.by else None,
    }  # fmt: skip


def notes(record: Record) -> list[Note]:
    """What a reader of a cell's share of the peak must know."""
    found = achieved(record)
    if found is None or record.peaks is None or record.status != "ok":
        return []
    told = [note for note in record.peaks.notes if note.code in _DOUBTS]
    if found.share > 1:
        text = (
            f"{100 * found.share:.0f} % of the machine's measured peak: that was measured too low, or a kernel does fewer "
            "multiply-adds than are counted (Winograd's algorithm; a border of zeros left out)"
        )
        hint = (
            "measure the peak again on a quiet machine: remove the folder peaks in edgeq's cache, then start a new run"
        )
        told.append(Note(code="above-peak", text=text, hint=hint))
    return told
