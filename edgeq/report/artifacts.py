"""The tables of a model's artifacts: what ran of what was asked for, how well it does, and where its time goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from edgeq.operators import Group
from edgeq.report.footnotes import Footnotes
from edgeq.report.numbers import NOTHING, counted, executed, percent_spread, share, significant, tenth, whole
from edgeq.report.table import (
    FULL,
    MIDDLE,
    NARROW,
    PAGE,
    WIDE,
    Column,
    Table,
    by_artifact,
    first,
    lay_out,
    whose,
)
from edgeq.report.wording import context, joined

Row = dict[str, Any]


def artifacts(rows: Sequence[Row], notes: Footnotes, *, devices: bool) -> Table:
    """What ran: for each artifact the precision executed, its accuracy and output against fp32, its size."""
    columns = [
        *whose(rows, devices),
        Column("framework", lambda group: group[0]["backend"], True),
        Column("requested", lambda group: group[0]["scheme"], True),
        Column("executed", first(lambda row: executed(row["macs_by"]) if row["macs_by"] else NOTHING), True),
        Column("int8 MACs", first(lambda row: NOTHING if row["int8_macs"] is None else share(row["int8_macs"])),
               width=WIDE),
        Column("left in float", first(lambda row: counted(row["float_ops_by"]) or NOTHING), True, PAGE),
        *quality(rows),
        Column("size MB", first(lambda row: tenth(row["size_mb"]))),
        Column("of fp32's size", first(lambda row: NOTHING if row["size_ratio"] is None else share(row["size_ratio"])),
               width=MIDDLE),
    ]  # fmt: skip
    if any(row["probe_ok"] is not None for row in rows):
        columns.append(Column("int8 probe", first(_probe), True, WIDE))
    columns.append(Column("notes", notes.marks, True, PAGE))
    return lay_out("artifacts", "What ran", context(rows, full=False), columns, by_artifact(rows), _legend(rows))


def quality(rows: Sequence[Row]) -> list[Column]:
    """Accuracy and output, as far as any of ``rows`` tells of them."""
    columns: list[Column] = []
    if any(row["top1"] is not None for row in rows):
        columns += [top1(rows), Column("points below fp32", first(points_below)),
                    Column("top-5 %", first(_share("top5")), width=FULL)]  # fmt: skip
    if any(row["agreement_with_fp32"] is not None for row in rows):
        columns.append(Column("same top-1 as fp32 %", first(_agreement), width=MIDDLE))
    if any(row["checked"] for row in rows):
        columns += [Column("output check, SQNR dB", _sqnr, width=MIDDLE),
                    Column("output check, same top-1", _output, width=FULL)]  # fmt: skip
    return columns


def top1(rows: Sequence[Row]) -> Column:
    """Top-1 with its interval; the header says of how many images."""
    counts = joined(row["accuracy_n"] for row in rows if row["top1"] is not None)
    return Column(f"top-1 % (n = {counts})", first(_share("top1")))


def points_below(row: Row) -> str:
    """Points of top-1 lost against the same framework's fp32; negative where it is above."""
    if row["scheme"] == "fp32":
        return NOTHING
    return percent_spread(*(row[f"top1_drop{end}"] for end in ("", "_low", "_high")), difference=True)


def _share(name: str) -> Callable[[Row], str]:
    return lambda row: percent_spread(*(row[f"{name}{end}"] for end in ("", "_low", "_high")))


def _agreement(row: Row) -> str:
    return NOTHING if row["scheme"] == "fp32" else _share("agreement_with_fp32")(row)


def _sqnr(group: list[Row]) -> str:
    checked = [row["sqnr_db"] for row in group if row["checked"]]
    finite = [value for value in checked if value is not None]
    return tenth(min(finite)) if finite else "exact" if checked else NOTHING


def _output(group: list[Row]) -> str:
    checked = [row for row in group if row["output_agreement"] is not None]
    if not checked:
        return NOTHING
    least = min(checked, key=lambda row: row["output_agreement"])
    return f"{whole(least['output_agreement'] * least['output_n'])} of {least['output_n']}"


def _probe(row: Row) -> str:
    if row["probe_ok"] is None:
        return NOTHING
    if row["probe_ok"]:
        return f"right ({row['probe_recipe']})"
    found, expected = (significant(row[f"probe_{name}"]) for name in ("found", "expected"))
    return f"wrong: {found} for {expected} ({row['probe_recipe']})"


def _legend(rows: Sequence[Row]) -> str:
    parts = ["Executed: by share of multiply-adds, as the framework itself says."]
    judged = [row for row in rows if row["accuracy_n"] is not None]
    if any(row["top1"] is not None for row in rows):
        parts.append("Shares of images: with the 95 % interval (Wilson) that so many images leave.")
    if any(row["top1_drop_of"] == "paired images" for row in rows):
        parts.append("Points below fp32: the same images, paired; every image on which the two differ is taken as won "
                     "or lost, so that the interval is rather too wide.")  # fmt: skip
    if any(row["top1_drop_of"] == "images" for row in rows):
        parts.append("Points below fp32 where the images can't be paired: interval of two independent shares.")
    if judged:
        used, bad = (joined(row[name] for row in judged) for name in ("excluded_calibration", "bad_images"))
        parts.append(
            f"Accuracy: on the images of {joined(row['dataset'] for row in judged)} alone; {used} of them left out "
            f"because they served for calibration, {bad} because they can't be read."
        )
    kept = joined(row["accuracy_from"] for row in judged)
    if kept:
        parts.append(
            f"Nothing that accuracy hangs on had changed since run {kept}: kept from there, where it was judged."
        )
    if any(row["checked"] for row in rows):
        parts.append(
            "Output check: logits of a few samples against torch's float32 on this device, the worst of the "
            "scenarios; of an SQNR of so few nobody knows the spread."
        )
    if any(row["probe_ok"] is not None for row in rows):
        parts.append("Int8 probe: a convolution whose answer is known, quantized as the artifact is, on this device.")
    return " ".join(parts)


#: Groups of operators → the width of terminal from which on they are shown.
_GROUPS: dict[Group, int] = {"convolution": NARROW, "depthwise": NARROW, "fully connected": MIDDLE, "convert": NARROW,
                             "other": MIDDLE, "untimed": MIDDLE}  # fmt: skip


def where_time_goes(rows: Sequence[Row], *, devices: bool) -> Table | None:
    """Time by group of operators, and the verdict; None where no profile was recorded."""
    groups = [group for group in by_artifact(rows) if any(row["operators"] is not None for row in group)]
    if not groups:
        return None
    columns = [
        *whose(rows, devices),
        Column("framework", lambda group: group[0]["backend"], True),
        Column("requested", lambda group: group[0]["scheme"], True),
        Column("ms an inference", first(lambda row: significant(row["plain_ms"]))),
        Column("under the profiler", first(lambda row: significant(row["profiled_ms"])), width=MIDDLE),
        *(Column(f"{name} %", first(_part(name)), width=width) for name, width in _GROUPS.items()),
        Column("verdict", first(lambda row: row["verdict"] or NOTHING), True, PAGE),
    ]
    profiled = [row for row in rows if row["operators"] is not None]
    counts = sorted({row["profile_inferences"] for row in profiled})
    many = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    legend = (
        f"From a loop of its own ({many} inferences, {joined(row['profile_tool'] for row in profiled)}), never from "
        "the measured run: parts of the time under the profiler, without an interval. Convert: quantize, dequantize, "
        "cast, change of layout."
    )
    return lay_out("time", "Where the time goes", context(rows, full=False), columns, groups, legend)


def _part(name: str) -> Callable[[Row], str]:
    column = f"ms_{name.replace(' ', '_')}"

    def value(row: Row) -> str:
        if row["profiled_ms"] is None:
            return NOTHING
        return whole(100 * (row[column] or 0.0) / row["profiled_ms"])

    return value
