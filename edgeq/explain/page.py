"""The page that ``edgeq explain`` prints: the verdict first, then the figures that it is drawn from."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgeq.explain.job import Explained, Side
from edgeq.operators import GROUPS, Group, OperatorProfile, OperatorTotal

_OPERATORS = 10
_LAYERS = 15
_SHORT: dict[Group, str] = {
    "convolution": "conv",
    "depthwise": "depthwise",
    "fully connected": "linear",
    "convert": "convert",
    "other": "other",
    "untimed": "",
}
_MEANS: dict[Group, str] = {
    "convolution": "convolution (dense, 1x1)",
    "depthwise": "depthwise convolution",
    "fully connected": "fully connected",
    "convert": "conversion (type, layout)",
    "other": "other operators",
    "untimed": "between operators",
}


def print_page(found: Explained, console: Console) -> None:
    """Prints everything that ``found`` holds; long names are broken or cut to the console's width."""
    cell, this = found.cell, found.this
    threads = "1 thread" if found.threads == 1 else f"{found.threads} threads"
    console.print(f"[bold]{cell.model}/{cell.backend}/{cell.scheme}[/] on {escape(found.cpu)}, {threads}")
    console.print()
    console.print(f"[bold]{_capital(escape(found.verdict))}.[/]", soft_wrap=True)
    console.print()
    console.print(_executed(found), soft_wrap=True)
    console.print()
    console.print(_groups(this, found.fp32))
    console.print()
    console.print(_operators(this, found.fp32))
    if this.profile.slowest:
        console.print()
        console.print(_nodes(this.profile, this.scheme))
    if found.layers is not None:
        console.print()
        _print_layers(found, console)
    console.print()
    _print_method(found, console)
    for note in found.notes:
        console.print(f"[yellow]note[/] \\[{note.code}] {escape(note.text)}", soft_wrap=True)
        if note.hint:
            console.print(f"  try: {escape(note.hint)}", soft_wrap=True)


def _executed(found: Explained) -> str:
    macs = sorted(found.macs.items(), key=lambda item: -item[1])
    shares = ", ".join(f"{share:.1%} in {precision}" for precision, share in macs) or "not known"
    return f"Asked for: {found.cell.scheme}. What runs: multiply-adds {shares}, by {escape(found.engine)}."


def _groups(side: Side, fp32: Side | None) -> Table:
    this = side.profile
    table = Table(
        title="Where the time of an inference goes (ms)", title_justify="left", box=SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("")
    for name in (side.scheme, "share", *(("fp32", "share", "change") if fp32 else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for group in GROUPS:
        row = [_MEANS[group], _ms(this.groups.get(group, 0.0)), f"{this.share(group):.0%}"]
        if fp32 is not None:
            other = fp32.profile
            gap = this.groups.get(group, 0.0) - other.groups.get(group, 0.0)
            row += [_ms(other.groups.get(group, 0.0)), f"{other.share(group):.0%}", f"{gap:+.2f}"]
        table.add_row(*row)
    total = ["[bold]an inference, profiled[/]", _ms(this.profiled_ms), "100%"]
    if fp32 is not None:
        total += [_ms(fp32.profile.profiled_ms), "100%", f"{this.profiled_ms - fp32.profile.profiled_ms:+.2f}"]
    table.add_row(*total, end_section=True)
    plain = ["without the profiler", _plain(this), ""]
    if fp32 is not None:
        plain += [_plain(fp32.profile), "", ""]
    table.add_row(*plain)
    return table


def _operators(this: Side, fp32: Side | None) -> Table:
    """The slowest kinds of operator of both, side by side where they have the same name."""
    table = Table(
        title="Operators, by the framework's own names (ms)", title_justify="left", box=SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("operator", overflow="fold")
    # Least widths, so that a long name is broken before a figure is.
    for name, width in (("group", 9), ("type", 4)):
        table.add_column(name, no_wrap=True, min_width=width)
    for name, width in (("n", 3), (this.scheme, 8), *([("fp32", 6)] if fp32 else [])):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    keyed = {_key(total): total for total in this.profile.operators}
    twins = {_key(total): total for total in fp32.profile.operators} if fp32 else {}
    keys = sorted({*keyed, *twins}, key=lambda key: -max(_of(keyed.get(key)), _of(twins.get(key))))
    for key in keys[:_OPERATORS]:
        total = keyed.get(key) or twins[key]
        row = [escape(total.operator), _SHORT[total.group], total.precision or "", str(total.count)]
        row.append(_ms(keyed[key].ms) if key in keyed else "-")
        if fp32 is not None:
            row.append(_ms(twins[key].ms) if key in twins else "-")
        table.add_row(*row)
    if len(keys) > _OPERATORS:
        table.caption = f"and {len(keys) - _OPERATORS} more (--json has them)"
        table.caption_justify = "left"
    return table


def _nodes(profile: OperatorProfile, scheme: str) -> Table:
    table = Table(
        title=f"The slowest single nodes of {scheme} (ms)", title_justify="left", box=SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("node", no_wrap=True, overflow="ellipsis", max_width=36)
    table.add_column("operator", overflow="fold")
    table.add_column("ms", justify="right", no_wrap=True, min_width=6)
    for node in profile.slowest:
        table.add_row(escape(node.name), escape(node.operator), _ms(node.ms))
    return table


def _print_layers(found: Explained, console: Console) -> None:
    assert found.layers is not None
    layers = sorted(found.layers["layers"], key=lambda layer: _worst(layer["sqnr_db"]))
    table = Table(
        title="Layers whose output is furthest from fp32's", title_justify="left", box=SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("layer", no_wrap=True, overflow="ellipsis")
    for name in ("kind", "precision"):
        table.add_column(name)
    for name in ("SQNR as it runs (dB)", "SQNR of the layer alone (dB)"):
        table.add_column(name, justify="right")
    for layer in layers[:_LAYERS]:
        both = (_db(layer["sqnr_db"]), _db(layer.get("local_sqnr_db")))
        table.add_row(escape(layer["name"]), layer["op"], layer["precision"] or "", *both)
    console.print(table)
    console.print(
        f"The {min(_LAYERS, len(layers))} worst of {len(layers)} layers, over {found.layers['samples']} samples, read by "
        f"{escape(found.layers['tool'])}. SQNR: power of the float output over power of the error; 20 dB is an error "
        "of a tenth. As it runs: with the errors of all layers before it.",
        soft_wrap=True,
    )


def _print_method(found: Explained, console: Console) -> None:
    profile = found.this.profile
    count = f"{profile.inferences} inference{'s' if profile.inferences > 1 else ''}"
    rounds = len(found.this.plain_ms)
    text = f"Timed by {escape(profile.tool)}: the mean of {count}"
    if rounds > 1:
        text += f", of the middle one of {rounds} rounds that this cell and fp32 took in turn" if found.fp32 else (
            f", of the middle one of {rounds} rounds"
        )  # fmt: skip
    console.print(text + ".", soft_wrap=True)
    for side in (found.this, found.fp32):
        if side is not None and len(side.plain_ms) > 1:
            console.print(
                f"  {side.scheme} without the profiler, round by round: "
                f"{', '.join(_ms(value) for value in side.plain_ms)} ms",
                soft_wrap=True,
            )
    if found.ratio is not None:
        console.print(
            f"  time over fp32's, paired by round: {found.ratio.middle:.2f} (95 % interval {found.ratio.low:.2f} to "
            f"{found.ratio.high:.2f})",
            soft_wrap=True,
        )
    console.print(f"Not seen by it: {escape(found.unseen)}.", soft_wrap=True)


def _key(total: OperatorTotal) -> tuple[str, str, str | None]:
    return total.operator, total.group, total.precision


def _of(total: OperatorTotal | None) -> float:
    return 0.0 if total is None else total.ms


def _plain(profile: OperatorProfile) -> str:
    return "-" if profile.plain_ms is None else _ms(profile.plain_ms)


def _worst(sqnr_db: float | None) -> float:
    return float("inf") if sqnr_db is None else sqnr_db


def _db(sqnr_db: float | None) -> str:
    return "exact" if sqnr_db is None else f"{sqnr_db:.1f}"


def _ms(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
