"""How a figure is written: here and nowhere else, so that no two tables show one figure in two ways."""

from __future__ import annotations

import math
from collections.abc import Mapping

from edgeq.spec.names import BACKENDS
from edgeq.spec.schemes import meaning

NOTHING = "-"

#: After a figure whose record holds no interval.
NO_INTERVAL = "±?"

#: Between the ends of an interval.
TO = "\N{EN DASH}"

#: More digits than these mean nothing to a reader, however narrow the interval.
_MOST_DIGITS, _MOST_DIGITS_OF_RATIO = 4, 3

#: Below this the first digits of an interval are two, above it one.
_TWO_DIGITS = 3.55

#: One side of an interval so many times the other's length, or half of it such a part of the figure: both ends are said.
_LOPSIDED, _WIDE = 1.5, 0.5

#: What a scheme's name promises to compute in.
_PROMISED = {"fp32": "fp32", "fp16": "fp16", "int8-static": "int8", "int8-dynamic": "int8"}

#: A share of multiply-adds from which on the rest is not worth a word.
_ALL = 0.995

#: A share from which on the rest is rounding.
_WHOLE = 0.9995


def significant(value: float | None) -> str:
    """Three significant digits, never fewer than the whole part: ``0.0123``, ``4.12``, ``14.0``, ``1234``."""
    if value is None:
        return NOTHING
    size = abs(value)
    if size >= 99.95:
        return f"{value:.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    if size >= 0.9995 or size == 0:
        return f"{value:.2f}"
    return f"{value:.3f}" if size >= 0.09995 else f"{value:.3g}"


def decimals(value: float, half: float, digits: int = _MOST_DIGITS) -> int:
    """How many decimals a figure is worth whose interval reaches ``half`` to each side; negative: rounded to tens.

    The Particle Data Group's rule (Review of Particle Physics, Introduction, Rounding): an interval that begins with 100 to
    354 is written with two significant digits, another with one; the figure ends where its interval does. At most
    ``digits`` significant digits of the figure in all; never rounded away to tens or hundreds that it does not reach.
    """
    size = math.floor(math.log10(abs(value))) if value else None
    most = None if size is None else digits - 1 - size
    if half <= 0:
        return 0 if most is None else most
    exponent = math.floor(math.log10(half))
    found = 1 - exponent if half < _TWO_DIGITS * 10.0**exponent else -exponent
    return found if size is None or most is None else max(min(-size, 0), min(found, most))


def spread(value: float | None, low: float | None, high: float | None, *, difference: bool = False) -> str:
    """A figure with its interval: ``12.3 ±0.4``; with both ends where it is lopsided or wide: ``12.3 (11.9-13.4)``.

    Without an interval: three significant digits and ``±?``. The half-width is never written as less than one in the
    figure's last place. A ``difference`` may be zero, so that no interval is wide for it: ``0.0 ±1.8``.
    """
    if value is None:
        return NOTHING
    if low is None or high is None:
        return f"{significant(value)} {NO_INTERVAL}"
    below, above = max(0.0, value - low), max(0.0, high - value)
    places = decimals(value, (below + above) / 2)
    last = 10.0**-places
    lopsided = abs(above - below) > last and max(above, below) > _LOPSIDED * min(above, below)
    if lopsided or (max(above, below) > _WIDE * abs(value) and not difference):
        return f"{_rounded(value, places)} ({_rounded(low, places)}{TO}{_rounded(high, places)})"
    return f"{_rounded(value, places)} ±{_rounded(max(above, below, last), places)}"


def _rounded(value: float, places: int) -> str:
    text = f"{round(value, places):.{max(0, places)}f}"
    return text.removeprefix("-") if not float(text) else text


def percent(fraction: float | None) -> str:
    """A fraction as percent with one decimal, without the sign: ``80.3``."""
    return NOTHING if fraction is None else f"{100 * fraction:.1f}"


def percent_spread(fraction: float | None, low: float | None, high: float | None, *, difference: bool = False) -> str:
    """A fraction with its interval, as percent without the sign: ``80.3 ±4.1``.

    One decimal whatever the interval: on these images the share is an exact count, and two artifacts are judged on the
    same ones; the interval is for other images.
    """
    if fraction is None or low is None or high is None:
        return percent(fraction)
    below, above = max(0.0, fraction - low), max(0.0, high - fraction)
    if not difference and max(below, above) > _LOPSIDED * min(below, above):
        return f"{percent(fraction)} ({percent(low)}{TO}{percent(high)})"
    return f"{_rounded(100 * fraction, 1)} ±{percent(max(below, above))}"


def times(ratio: float | None, low: float | None = None, high: float | None = None) -> str:
    """A speed-up with its interval: ``1.84x (1.79-1.90)``; below 1 is slower.

    ``~1 (0.95-1.08)`` where the interval holds 1: no difference was shown. ``5.38x ±?`` where there is no interval.
    """
    if ratio is None:
        return NOTHING
    if low is None or high is None:
        return f"{significant(ratio)}x {NO_INTERVAL}"
    ends = _ends(ratio, low, high)
    return f"~1 ({ends})" if holds_one(low, high) else f"{_rounded(ratio, _ratio_places(ratio, low, high))}x ({ends})"


def holds_one(low: float | None, high: float | None) -> bool:
    """Whether a speed-up's interval holds 1, to the hundredth as it is written, so that no difference was shown.

    True where there is no interval.
    """
    return low is None or high is None or (low < 1 + _HUNDREDTH and high > 1 - _HUNDREDTH)


#: What rounds to 1.00 is not told from 1.
_HUNDREDTH = 0.005


def _ratio_places(ratio: float, low: float, high: float) -> int:
    """As ``decimals``; more where the ends would otherwise be rounded to 1 which the interval does not hold."""
    places = decimals(ratio, (high - low) / 2, _MOST_DIGITS_OF_RATIO)
    while places < 2 and not holds_one(low, high) and holds_one(round(low, places), round(high, places)):
        places += 1
    return places


def _ends(ratio: float, low: float, high: float) -> str:
    """Two rounds give ends as far off as a millionth and a million: what is beyond a hundredfold is said as that."""
    places = max(0, _ratio_places(ratio, low, high))
    first = "<0.01" if low < 0.01 else _rounded(low, max(places, 2 if low < 0.1 else 0))
    last = ">100" if high > 100 else "<0.01" if high < 0.01 else _rounded(high, max(places, 2 if high < 0.1 else 0))
    return f"{first}{TO}{last}"


def whole(value: float | None) -> str:
    """A number without decimals."""
    return NOTHING if value is None else f"{value:.0f}"


def tenth(value: float | None) -> str:
    """A number with one decimal."""
    return NOTHING if value is None else f"{value:.1f}"


def share(fraction: float) -> str:
    """A share of multiply-adds: ``98 %``, ``0.4 %``, ``<0.1 %``; ``100 %`` and ``0 %`` only where it is exact."""
    value = 100 * fraction
    if 0 < value < 0.05:
        return "<0.1 %"
    if 99.5 <= value < 100:
        return ">99 %"
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %"


def executed(macs: Mapping[str, float] | None) -> str:
    """What computed, by share of multiply-adds, most first: ``fp32``; ``98 % int8, 2.0 % fp32``.

    Small shares are said too: 0.4 % of int8 is what tells a dynamic scheme from fp32.
    """
    parts = sorted(((name, part) for name, part in (macs or {}).items() if part > 0), key=lambda item: -item[1])
    if not parts:
        return "unknown"
    if len(parts) == 1 or parts[0][1] >= _WHOLE:
        return parts[0][0]
    return ", ".join(f"{share(part)} {name}" for name, part in parts)


def counted(operators: Mapping[str, int] | None, most: int = 3) -> str:
    """Operators by count, most first: ``10 Add, 2 Softmax, 4 others``."""
    found = sorted((operators or {}).items(), key=lambda item: (-item[1], item[0]))
    rest = sum(count for _, count in found[most:])
    others = [f"{rest} other{'s' if rest > 1 else ''}"] if rest else []
    return ", ".join([*(f"{count} {name}" for name, count in found[:most]), *others])


def precision_label(scheme: str, macs: Mapping[str, float] | None, backend: str | None = None) -> str:
    """The scheme, and what really computed where that is something else.

    ``fp16 (computes fp32)``; ``int8-static (98 % of MACs in int8, rest fp32)``;
    ``int8-dynamic (linear layers only, 0.4 % of MACs in int8)``.

    Args:
        scheme: The contract's name of a scheme.
        macs: Share of multiply-adds executed in each precision, as the framework said (``effective.macs``); None or
            empty where it did not run or does not say.
        backend: Names what a framework can't quantize, where ``edgeq.spec.schemes`` says so.
    """
    promised = _PROMISED.get(scheme)
    if promised is None:
        return scheme
    if not macs:
        return f"{scheme} (executed precision unknown)"
    kept = macs.get(promised, 0.0)
    if kept >= _ALL:
        return scheme
    others = {name: part for name, part in sorted(macs.items(), key=lambda item: -item[1])
              if name != promised and part > 0}  # fmt: skip
    if kept <= 0:
        return f"{scheme} (computes {' and '.join(others) or 'nothing known'})"
    if _linear_only(scheme, backend):
        return f"{scheme} (linear layers only, {share(kept)} of MACs in {promised})"
    rest = [f"rest {name}" for name in others] if len(others) == 1 else [
        f"{share(part)} in {name}" for name, part in others.items()]  # fmt: skip
    return f"{scheme} ({', '.join([f'{share(kept)} of MACs in {promised}', *rest])})"


def _linear_only(scheme: str, backend: str | None) -> bool:
    return backend in BACKENDS and "linear layers only" in meaning(str(backend), scheme).stored
