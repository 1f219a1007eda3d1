"""How much memory another session will take, by what earlier ones took. Pure: bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Mapping

from edgeq.run.footprint import Footprint
from edgeq.setting import Setting

#: Measured growth is taken so many times, as allocators round up, and at least for this many samples: they re-use, too.
MARGIN, LEAST = 1.25, 16
#: Share of what is free that a session may take.
SHARE = 0.8


def needed(setting: Setting, expected: Footprint, sample: int, grown: Mapping[Setting, int]) -> int:
    """Bytes that a session will take.

    Args:
        setting: The session's.
        expected: By its backend and scheme; its activations count until growth was measured.
        sample: Size of one float32 sample.
        grown: Bytes by which the process grew with sessions of other settings: two that differ in ``batch`` alone show what
            a sample takes.
    """
    measured = _a_sample(setting, sample, grown)
    if measured is None:
        return expected.most
    return expected.most - expected.activations + round(setting.streams * setting.batch * measured)


def _a_sample(setting: Setting, sample: int, grown: Mapping[Setting, int]) -> float | None:
    kin = {
        other.batch: size
        for other, size in grown.items()
        if (other.threads, other.streams) == (setting.threads, setting.streams)
    }
    larger = [batch for batch in kin if batch > 1]
    if 1 not in kin or not larger:
        return None
    batch = max(larger)
    return max(LEAST * sample, MARGIN * (kin[batch] - kin[1]) / (batch - 1) / setting.streams)
