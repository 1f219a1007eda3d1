"""How near to the machine's measured peak each cell's multiply-adds come (``edgeq.peaks``): it informs, there is no bar."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.bars import Claim, Measured
from benchmarks.bench import MODEL, Bench, Step
from benchmarks.cells import cell, in_force, measure_cell, rate
from edgeq.peaks import efficiency
from edgeq.run.peaks import LIBRARIES, measure_peaks
from edgeq.spec.errors import EdgeqError
from edgeq.spec.model import load_model
from edgeq.spec.names import BACKENDS

SECONDS = 1.5
SCHEMES = ("fp32", "int8-static")


def steps(bench: Bench) -> list[Step]:
    """A row a backend and scheme."""
    return [_step(bench, backend, scheme) for backend in BACKENDS for scheme in SCHEMES]


def _step(bench: Bench, backend: str, scheme: str) -> Step:
    text = "offline multiply-adds a second, against the limit of the precisions that ran"
    claim = Claim(f"efficiency/{backend}/{scheme}", text, "GMAC/s")

    def run(turn: int) -> Mapping[str, Measured]:
        peaks = measure_peaks(LIBRARIES, dict(bench.device), bench.threads)  # kept on disk after the first time
        record = measure_cell(bench, cell(backend, scheme), SECONDS, claim.name, turn)
        macs = load_model(bench.models, MODEL).macs
        shares = record.effective.macs if record.effective else {}
        found = efficiency(shares, macs, rate(record), peaks)
        if found is None:
            why = f"no peak, or no account of what ran: {shares}, {peaks.words()}"
            raise EdgeqError(f"{record.cell} has no efficiency", why, "run: edgeq doctor", code="no-figure")
        detail = {**in_force(record), "macs": shares, "peaks": peaks.model_dump(mode="json"), "library": found.library}
        giga = found.macs_per_s / 1e9
        return {claim.name: Measured(giga, giga / found.share, detail)}

    return Step((claim,), run, rounds=1)
