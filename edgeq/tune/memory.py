"""How much memory a setting's session will take, before it is opened. Pure: bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Mapping

from edgeq.setting import Setting

#: Activations of one sample, in samples: VGG-19's first two convolutions hold 2 x 64 channels where the sample has 3, 43
#: times as much, and a framework's scratch memory comes on top. Counts until growth was measured.
ACTIVATIONS = 64
#: Measured growth is taken so many times, as allocators round up, and at least for this many samples: they re-use, too.
MARGIN, LEAST = 1.25, 16
#: Share of what is free that a session may take.
SHARE = 0.8


def needed(setting: Setting, weights: int, sample: int, grown: Mapping[Setting, int], *, widened: bool = False) -> int:
    """Bytes that a session will take.

    Args:
        setting: The session's.
        weights: Size of the artifact: the file, and each stream may hold a copy of it in a form of its own.
        sample: Size of one float32 sample.
        grown: Bytes by which the process grew with sessions of other settings: two that differ in ``batch`` alone show what
            a sample takes.
        widened: The artifact's float16 weights may become float32.
    """
    copies = weights * (1 + setting.streams * (2 if widened else 1))
    return round(copies + setting.streams * setting.batch * _a_sample(setting, sample, grown))


def _a_sample(setting: Setting, sample: int, grown: Mapping[Setting, int]) -> float:
    kin = {
        other.batch: size
        for other, size in grown.items()
        if (other.threads, other.streams) == (setting.threads, setting.streams)
    }
    larger = [batch for batch in kin if batch > 1]
    if 1 not in kin or not larger:
        return ACTIVATIONS * sample
    batch = max(larger)
    return max(LEAST * sample, MARGIN * (kin[batch] - kin[1]) / (batch - 1) / setting.streams)
