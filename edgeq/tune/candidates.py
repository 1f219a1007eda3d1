"""Which settings are worth a try for a scenario. Pure: numbers in, settings out."""

from __future__ import annotations

import math

from edgeq.setting import QUERY, Setting
from edgeq.spec.names import OFFLINE, SINGLE_STREAM

#: Samples a call that are tried offline.
BATCHES = (1, 4, 8, 16, 32)
#: Those that are tried with numbers of streams between one and a thread a stream.
MIDDLE_BATCHES = (1, 8)


def candidates(scenario: str, threads: int, default: Setting, *, batches: bool) -> list[Setting]:
    """The settings to try with up to ``threads`` threads, ``default`` first, none twice.

    Args:
        batches: Whether a call may take several samples at all.
    """
    if scenario == SINGLE_STREAM:
        found = [Setting(threads=count) for count in (*powers(threads), threads)]
    elif scenario == OFFLINE:
        found = [
            Setting(threads=threads, streams=streams, batch=batch)
            for streams in stream_counts(threads)
            for batch in (BATCHES if streams in (1, threads) else MIDDLE_BATCHES)
        ]
    else:
        found = [
            Setting(threads=threads, streams=streams, batch=batch)
            for streams in stream_counts(threads)
            if streams <= QUERY
            for batch in (1, math.ceil(QUERY / streams))
            if (streams - 1) * batch < QUERY  # else a stream has nothing to do
        ]
    return [each for each in dict.fromkeys([default, *found]) if batches or each.batch == 1]


def stream_counts(threads: int) -> list[int]:
    """One stream, a stream a thread, and the powers of two between that divide the threads evenly."""
    return [1, *(count for count in powers(threads)[1:] if threads % count == 0), *([threads] if threads > 1 else [])]


def powers(threads: int) -> list[int]:
    """The powers of two below ``threads``, 1 among them."""
    return [2**exponent for exponent in range(max(1, (threads - 1).bit_length()))]
