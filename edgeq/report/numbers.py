"""How a figure is written: here and nowhere else, so that no two tables show one figure in two ways."""

from __future__ import annotations

from collections.abc import Mapping

from edgeq.spec.names import BACKENDS
from edgeq.spec.schemes import meaning

NOTHING = "-"

#: What a scheme's name promises to compute in.
_PROMISED = {"fp32": "fp32", "fp16": "fp16", "int8-static": "int8", "int8-dynamic": "int8"}

#: A share of multiply-adds from which on the rest is not worth a word.
_ALL = 0.995


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


def percent(fraction: float | None) -> str:
    """A fraction as percent with one decimal, without the sign: ``80.3``."""
    return NOTHING if fraction is None else f"{100 * fraction:.1f}"


def times(ratio: float | None) -> str:
    """A speed-up: ``1.84x``; below 1 is slower."""
    if ratio is None:
        return NOTHING
    return f"{ratio:.2f}x" if 0.0995 <= ratio < 9.995 else f"{significant(ratio)}x"


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
