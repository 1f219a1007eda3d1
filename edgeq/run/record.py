"""The record of a cell: what was asked, what ran, what was measured, and every warning that bears on it.

One JSON file a cell, written atomically and readable with nothing but ``json``. Light: imports no framework, no pandas.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import from_json

from edgeq.artifact import Check, FileEntry, Manifest, WeightsInfo
from edgeq.files import write_json
from edgeq.operators import OperatorProfile
from edgeq.peaks import Peaks
from edgeq.run.during import During
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import Cell
from edgeq.spec.note import Note

SCHEMA = 4
"""2 added rounds, intervals, the operator profile and the saturation probe; 3 the setting, the model's multiply-adds and the
machine's peaks; 4 what the device did during the measurement, and what slowed it down. A record of an older schema is read as
one without."""
FILE_NAME = "record.json"

#: A top-1 more than this far below the same framework's fp32 is a loss: such a cell is shown, and not ranked (3 points).
MAX_TOP1_DROP = 0.03

Status = Literal["ok", "invalid", "skipped", "failed"]

# JSON has no NaN and no infinity. A figure that is one is a mistake, to be found where it is made: refused in typed
# fields, and not turned into null in free-form ones (pydantic's default), so that write_record can refuse it there.
_STRICT = ConfigDict(
    extra="forbid", populate_by_name=True, allow_inf_nan=False, ser_json_inf_nan="constants", defer_build=True
)


class RunInfo(BaseModel):
    """The run that a record belongs to."""

    model_config = _STRICT
    id: str
    profile: str
    title: str
    """The profile's title, which says what its figures may be compared with."""
    mlperf_rules: bool = False
    started: str
    """When this cell started: ISO 8601 with an offset from UTC."""
    order: int = Field(ge=0)
    """Position of the cell in the run, from 0, or of its first round: figures that drift with it are a device that warms
    up."""
    round: int = Field(default=1, ge=1)


class CalibrationSummary(BaseModel):
    """A manifest's ``CalibrationInfo`` without its list of images (``sha256`` is over that list)."""

    model_config = _STRICT
    kind: Literal["folder", "synthetic"]
    path: str | None = None
    count: int
    seed: int
    sha256: str


class ArtifactInfo(BaseModel):
    """The manifest's part of a record: which file ran, and where it came from."""

    model_config = _STRICT
    file: str
    """The file that the backend loaded, as a path from where the run was started."""
    files: list[FileEntry]
    bytes: int
    target: str
    key: str
    weights: WeightsInfo
    calibration: CalibrationSummary
    check: Check | None = None
    details: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    """Of the tools that exported it."""
    host: dict[str, Any] = Field(default_factory=dict)
    """The machine that exported it."""
    macs: int | None = None
    """Multiply-adds of the float model for one sample; None where its manifest lists no layers."""

    @classmethod
    def of(cls, manifest: Manifest, file: Path | str) -> ArtifactInfo:
        """The record's part of ``manifest``; ``file`` is the file that was loaded."""
        calibration = CalibrationSummary(**manifest.calibration.model_dump(exclude={"images"}))
        return cls(
            file=str(file),
            files=manifest.files,
            bytes=manifest.bytes,
            target=manifest.target,
            key=manifest.key,
            weights=manifest.weights,
            calibration=calibration,
            check=manifest.check,
            details=manifest.details,
            versions=manifest.versions,
            host=manifest.host,
            macs=sum(layer.macs for layer in manifest.layers) or None,
        )


class Requested(BaseModel):
    """What the run asked for."""

    model_config = _STRICT
    threads: int
    streams: int
    batch: int = 1
    """Samples a call."""
    setting: Literal["default", "tuned"] = "default"
    """Where threads, streams and batch come from: ``tuned`` by ``edgeq tune`` for this artifact and device."""
    profile: str
    rounds: int = Field(default=1, ge=1)
    dataset: str | None = None
    environment: dict[str, str] = Field(default_factory=dict)
    """Variables set for the worker."""


class EffectiveInfo(BaseModel):
    """``edgeq.backends.session.Effective``, as it stands in a record (``macs`` are shares of 1)."""

    model_config = _STRICT
    threads: int
    streams: int
    batch: int
    engine: str
    macs: dict[str, float]
    float_ops: dict[str, int] = Field(default_factory=dict)
    extra: dict[str, Any] = Field(default_factory=dict)


class Latency(BaseModel):
    """Milliseconds a **query**: one sample in single-stream, all samples of the query in multi-stream."""

    model_config = _STRICT
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class HostStates(BaseModel):
    """What the device was doing: ``edgeq.host.snapshot()`` before and after the measurement, and what a sampler saw."""

    model_config = _STRICT
    before: dict[str, Any] | None = None
    during: During | None = None
    after: dict[str, Any] | None = None
    slowed_by: list[str] = Field(default_factory=list)
    """Why the device held itself back, in words, if it did before, during or after: bits of ``edgeq.host.firmware.BITS``, or
    ``thermal throttling`` (x86). The warning ``unsteady`` says so too."""


class Accuracy(BaseModel):
    """LoadGen's accuracy run. ``top1``, ``top5`` and ``agreement_with_fp32`` are fractions, 0 to 1."""

    model_config = _STRICT
    top1: float = Field(ge=0, le=1)
    top5: float = Field(ge=0, le=1)
    agreement_with_fp32: float | None = Field(default=None, ge=0, le=1)
    """Share of images with the same top-1 as the same backend's fp32 artifact."""
    n: int = Field(ge=1)
    """Images judged."""
    dataset: str
    preprocessing: str
    """What was done to each image, or its hash."""
    excluded_calibration: int = 0
    """Images left out because the artifact was calibrated on them."""
    bad_images: list[str] = Field(default_factory=list)
    """Images of the dataset that are missing or can't be read: counted out, and named."""
    kept_from: str | None = None
    """Id of the earlier run that judged the same artifact on the same images, in the same order, on this device with the same
    framework and setting; None where this run did."""


class OutputCheck(BaseModel):
    """The session's logits for the artifact's reference samples against torch's float32, on this device."""

    model_config = _STRICT
    sqnr_db: float | None
    """10 log10(signal power / error power); None where the error is exactly zero."""
    top1_agreement: float = Field(ge=0, le=1)
    n: int = Field(ge=1)
    stable: bool | None = None
    """The same output after the run as before it; None where the run did not get that far."""


class Canary(BaseModel):
    """A few inferences before LoadGen starts, from which the run was planned."""

    model_config = _STRICT
    ms_per_sample: float
    n: int
    estimate_s: float
    """How long the planned LoadGen run was expected to take."""


class LoadgenInfo(BaseModel):
    """What LoadGen's own logs say."""

    model_config = _STRICT
    version: str
    scenario: str
    settings: dict[str, Any] = Field(default_factory=dict)
    """In force, as read back from the detail log."""
    valid: bool
    errors: list[str] = Field(default_factory=list)
    percentile: float | None = Field(default=None, gt=0, lt=1)
    """At which the latency is judged, such as 0.9; None in offline."""
    early_stopping_ms: float | None = None
    """LoadGen's early-stopping estimate of that percentile, an upper bound; None where it gave none."""
    log_dir: str | None = None


class Overhead(BaseModel):
    """Microseconds that LoadGen and edgeq take with no model behind them (backend ``null``)."""

    model_config = _STRICT
    per_query: float
    per_sample: float


class Interval(BaseModel):
    """A 95 % confidence interval of a figure, in the figure's unit (see ``edgeq.run.intervals``)."""

    model_config = _STRICT
    low: float
    high: float
    n: int = Field(ge=2)
    """How many rounds, or blocks of one round, it is drawn from."""
    of: Literal["rounds", "blocks"]
    """``blocks``: from within one round, which knows nothing of how rounds differ."""


class Round(BaseModel):
    """One round's measurement of the cell; the record's own figures are made of the rounds that are ``ok``.

    They are the rounds' medians, but for maxima (``latency_ms.max``, peaks of memory), counts (``queries``, ``samples``,
    ``duration_s`` and ``cpu_s`` add up), and ``host``: before the first round, during any, and after the last.
    """

    model_config = _STRICT
    round: int = Field(ge=1)
    order: int = Field(ge=0)
    started: str
    status: Status
    reason: Note | None = None
    latency_ms: Latency | None = None
    samples_per_second: float | None = None
    queries: int | None = None
    samples: int | None = None
    duration_s: float | None = None
    load_ms: float | None = None
    first_inference_ms: float | None = None
    cpu_per_wall: float | None = None
    host: HostStates = Field(default_factory=HostStates)
    early_stopping_ms: float | None = None
    intervals: dict[str, Interval] = Field(default_factory=dict)
    """From within the round, by the names of ``Record.intervals``."""
    warnings: list[str] = Field(default_factory=list)
    """Codes; their texts are among the record's."""
    folder: str
    """Where its logs lie, beside the record."""


class ProbeInfo(BaseModel):
    """A convolution whose answer is known, quantized by the artifact's recipe and run on this device (trap 1)."""

    model_config = _STRICT
    recipe: str
    """Such as ``u8 x s8``."""
    expected: float
    found: float | None
    """The output farthest from ``expected``; None where it was not a number."""
    ok: bool
    kept: bool = False
    """Whether it was not run again, but found before on this device: by the same files, code, framework and environment."""


class Record(BaseModel):
    """One cell, finished. Times in the units that the names end in; ``None`` where a thing was not measured."""

    model_config = _STRICT
    schema_: int = Field(default=SCHEMA, alias="schema")
    cell: Cell
    status: Status
    reason: Note | None = None
    """Why a cell is not ``ok``."""
    run: RunInfo
    artifact: ArtifactInfo | None = None
    device: dict[str, Any] = Field(default_factory=dict)
    """``edgeq.host.describe()``."""
    versions: dict[str, str] = Field(default_factory=dict)
    requested: Requested | None = None
    effective: EffectiveInfo | None = None
    latency_ms: Latency | None = None
    """None in offline, where a sample's latency is only its place in the queue."""
    samples_per_second: float | None = None
    queries: int | None = None
    samples: int | None = None
    duration_s: float | None = None
    load_ms: float | None = None
    first_inference_ms: float | None = None
    import_ms: float | None = None
    """Python's import of the framework, not part of ``load_ms``."""
    warmup: int | None = None
    """Samples inferred before LoadGen started."""
    peak_rss_mb: float | None = None
    """Of the worker process to the end of the measurement, in 10^6 bytes: with the samples and queries in memory."""
    loaded_rss_mb: float | None = None
    """The same up to LoadGen's start: the framework, the model and what an inference needs."""
    cpu_s: float | None = None
    """CPU time, user and system, of the worker while queries were issued and answered."""
    cpu_per_wall: float | None = None
    """``cpu_s`` over the wall time of the same span: about the number of threads that really worked."""
    host: HostStates = Field(default_factory=HostStates)
    accuracy: Accuracy | None = None
    output_check: OutputCheck | None = None
    canary: Canary | None = None
    loadgen: LoadgenInfo | None = None
    overhead_us: Overhead | None = None
    intervals: dict[str, Interval] = Field(default_factory=dict)
    """By figure: ``samples_per_second``, ``latency_ms.p50``, ``latency_ms.p90`` …"""
    rounds: list[Round] = Field(default_factory=list)
    profile: OperatorProfile | None = None
    """Time by operator; measured once an artifact and run, with the session of its first cell."""
    probe: ProbeInfo | None = None
    """Of an int8 cell."""
    peaks: Peaks | None = None
    """The most multiply-adds a second that any library does on this device, by precision; None without a model."""
    warnings: list[Note] = Field(default_factory=list)

    @model_validator(mode="after")
    def _status_says_what_is_there(self) -> Self:
        if self.status != "ok":
            if self.reason is None:
                raise ValueError(f"a record that is {self.status} needs a reason")
            return self
        if self.reason is not None:
            raise ValueError("a record that is ok has no reason; use warnings")
        if self.loadgen is None or not self.loadgen.valid or self.loadgen.errors:
            raise ValueError("a record is ok only where LoadGen's run was valid and without errors")
        figure = self.samples_per_second if self.cell.scenario == "offline" else self.latency_ms
        if figure is None:
            raise ValueError(f"a record that is ok needs its {self.cell.scenario} figure")
        return self

    @classmethod
    def failed(cls, cell: Cell, reason: Note, run: RunInfo, **known: Any) -> Record:
        """A cell that was tried and did not finish; ``known`` are the fields found out before it failed."""
        return cls(cell=cell, status="failed", reason=reason, run=run, **known)

    @classmethod
    def skipped(cls, cell: Cell, reason: Note, run: RunInfo, **known: Any) -> Record:
        """A cell that was not measured, for a reason known beforehand (not offered, not installed, too slow)."""
        return cls(cell=cell, status="skipped", reason=reason, run=run, **known)


def loses_accuracy(top1: float, fp32_top1: float) -> bool:
    """Whether top-1 lies more than ``MAX_TOP1_DROP`` below fp32's; exactly so much is not a loss, whatever rounds."""
    return fp32_top1 - top1 > MAX_TOP1_DROP + 1e-9


def record_path(run_dir: Path, cell: Cell) -> Path:
    """Where a cell's record stands: ``<run>/<model>/<backend>/<scheme>/<scenario>/record.json``."""
    return run_dir / cell.model / cell.backend / cell.scheme / cell.scenario / FILE_NAME


def write_record(path: Path, record: Record) -> None:
    """Writes ``record`` atomically: whole, or not at all.

    Raises:
        EdgeqError: the disk is full (``disk-full``), the folder can't be written (``cannot-write``), or a free-form
            field holds a value that is not strict JSON, such as NaN (``bad-record``).
    """
    value = record.model_dump(mode="json", by_alias=True)
    try:
        json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise EdgeqError(
            f"cannot write {path}",
            f"the record of {record.cell} holds a number that JSON has not: {error}",
            "report this as a bug of edgeq's, with the command that you ran",
            code="bad-record",
        ) from error
    write_json(path, value)


def read_record(path: Path) -> Record:
    """Reads one record.

    Raises:
        EdgeqError: the file is missing (``no-record``), was written by a newer edgeq (``newer-schema``), or is not a
            record (``bad-record``).
    """
    try:
        value = from_json(path.read_bytes(), allow_inf_nan=False)
    except OSError as error:
        raise EdgeqError(
            f"cannot read {path}", error.strerror or str(error), "run: edgeq run --resume", code="no-record"
        ) from error
    except ValueError as error:
        raise _corrupt(path, str(error)) from error
    if not isinstance(value, Mapping):
        raise _corrupt(path, "not a JSON object")
    schema = value.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise _corrupt(path, f"its schema is {schema!r}, not a number from 1")
    if schema > SCHEMA:
        raise EdgeqError(
            f"{path} was written by a newer edgeq",
            f"its schema is {schema}, this edgeq reads up to {SCHEMA}",
            "update edgeq, or name other runs",
            code="newer-schema",
        )
    try:
        return Record.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _corrupt(path, f"{where}: {first['msg']}" if where else first["msg"]) from error


def _corrupt(path: Path, why: str) -> EdgeqError:
    return EdgeqError(f"{path} is not a record", why, "delete it, then run: edgeq run --resume", code="bad-record")
