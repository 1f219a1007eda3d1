"""An exported model on disk: the file that a backend loads, and the manifest that says what it is.

``models/<model>/artifacts/<backend>/<scheme>[.<target>].<ext>`` beside ``<same name>.json``. Export writes the manifest
last, so a file without one is not an artifact. Light: imports no framework.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgeq.files import sha256_file, write_json
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

SCHEMA = 1
_OPEN = ConfigDict(extra="forbid", populate_by_name=True, defer_build=True)

#: What an artifact can be quantized for; ``any`` where the target makes no difference to the file.
TARGETS = ("x86_64", "x86_64-vnni", "aarch64")
ANY_TARGET = "any"


class FileEntry(BaseModel):
    """A file of the artifact, named relative to its manifest."""

    model_config = _OPEN
    name: str
    sha256: str
    bytes: int


class WeightsInfo(BaseModel):
    """Where the float32 weights came from."""

    model_config = _OPEN
    kind: Literal["pretrained", "random", "file"]
    name: str
    """Weights name, file name, or "random, seed N"."""
    sha256: str
    """Of the state dict's tensors, in key order: the same for the same weights, whatever file they came in."""
    seed: int | None = None


class CalibrationInfo(BaseModel):
    """The calibration set, whichever schemes made use of it."""

    model_config = _OPEN
    kind: Literal["folder", "synthetic"]
    path: str | None = None
    count: int
    seed: int
    sha256: str
    images: list[str] = Field(default_factory=list)
    """SHA-256 of each image file used, so that evaluation can leave these images out."""


class InputInfo(BaseModel):
    """What the artifact's input tensor takes; one sample is ``shape`` without a batch dimension."""

    model_config = _OPEN
    shape: tuple[int, int, int]
    layout: Literal["NCHW", "NHWC"]
    dtype: Literal["float32"] = "float32"
    batch: int | None = 1
    """Samples that one call of the artifact takes; None where it takes any number."""


class Layer(BaseModel):
    """A convolution or linear layer of the float model, in execution order, and its multiply-adds for one sample."""

    model_config = _OPEN
    name: str
    op: Literal["conv", "depthwise", "linear"]
    macs: int


class Check(BaseModel):
    """The artifact, loaded and run right after it was written, against torch's float32 logits."""

    model_config = _OPEN
    n: int
    """Samples compared: calibration samples, as many as the time allowed for the check lets run."""
    sqnr_db: float | None
    """10 log10(signal power / error power) over all logits; None where the error is exactly zero."""
    max_rel_error: float
    """max |a - b| / max |b| over all logits."""
    top1_agreement: float
    macs: dict[str, float]
    """Share of multiply-adds executed in each precision, on the exporting machine."""
    quantized_macs: float
    size_ratio: float | None
    """Bytes of this artifact over bytes of the same backend's fp32 artifact; None where that one failed."""


class Reference(BaseModel):
    """A few samples and torch's float32 logits for them, shared by the model's artifacts (``reference-*.npz``)."""

    model_config = _OPEN
    file: str
    sha256: str


class SelectionInfo(BaseModel):
    """Labelled images by which layers to keep in float were chosen: none of them was calibrated on."""

    model_config = _OPEN
    path: str
    count: int
    sha256: str
    """Of the samples' content and labels."""
    images: list[str] = Field(default_factory=list)
    """SHA-256 of each image file used, so that evaluation can leave these images out."""


class LayerSearch(BaseModel):
    """What ``--max-top1-drop`` found: the smallest set of layers in float that keeps top-1, and what it costs.

    All top-1 figures are of the selection images (``Manifest.selection``), on the exporting machine. Drops are in
    percentage points, below fp32 of the same backend.
    """

    model_config = _OPEN
    max_top1_drop: float
    reached: bool
    n: int
    fp32_top1: float
    top1_before: float
    """With the recipe as it is."""
    top1: float
    drop: float
    drop_interval: tuple[float, float]
    """95 %, for the same images (Newcombe's for paired shares)."""
    float_layers: list[str] = Field(default_factory=list)
    """Kept in float by this search, worst first."""
    layers: int
    """Convolution and linear layers of the model."""
    float_macs: float
    """Their share of the model's multiply-adds."""
    trials: int
    """Artifacts that were built and judged, the first and the last one included."""
    size_ratio: float
    """Bytes over those of the recipe as it is."""
    latency_ratio: float | None = None
    """Median latency over that of the recipe as it is, measured in turn on the exporting machine: indicative. None
    where no layer was kept."""


class Manifest(BaseModel):
    """What stands beside each artifact. ``status`` ``failed`` keeps the reason where an artifact should have been."""

    model_config = _OPEN
    schema_: int = Field(default=SCHEMA, alias="schema")
    model: str
    backend: str
    scheme: str
    target: str
    status: Literal["ok", "failed"]
    reason: Note | None = None
    files: list[FileEntry] = Field(default_factory=list)
    key: str
    """Hash of everything that went in; the same key means that there is nothing to export anew."""
    weights: WeightsInfo
    calibration: CalibrationInfo
    selection: SelectionInfo | None = None
    """Where layers were searched for (``--max-top1-drop``)."""
    search: LayerSearch | None = None
    details: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    host: dict[str, Any] = Field(default_factory=dict)
    input: InputInfo
    classes: int
    reference: Reference
    layers: list[Layer] = Field(default_factory=list)
    check: Check | None = None
    warnings: list[Note] = Field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.files)

    @property
    def seen_images(self) -> set[str]:
        """SHA-256 of every image file that this artifact was made with: accuracy is not to be measured on those."""
        return {*self.calibration.images, *(self.selection.images if self.selection else ())}


def describe_search(found: LayerSearch) -> str:
    """One line: what was found, and what it cost."""
    interval = f"95 %: {found.drop_interval[0]:.1f} to {found.drop_interval[1]:.1f}"
    side = "below" if found.drop >= 0 else "above"
    gap = f"{abs(found.drop):.1f} points {side} fp32's {found.fp32_top1:.1%}"
    gap += f" (drop, {interval}, paired on {found.n} images)"
    if not found.float_layers:
        return f"top-1 {found.top1:.1%}, {gap}; no layer kept in float, {found.trials} trials"
    latency = f", latency x{found.latency_ratio:.2f} (indicative)" if found.latency_ratio is not None else ""
    return (
        f"top-1 {found.top1_before:.1%} -> {found.top1:.1%}, {gap}; {len(found.float_layers)} of {found.layers} layers "
        f"({found.float_macs:.1%} of MACs) kept in float; size x{found.size_ratio:.2f}{latency}; {found.trials} trials"
    )


def artifacts_dir(models_dir: Path, model: str) -> Path:
    """Where the exported artifacts of ``model`` stand."""
    return models_dir / model / "artifacts"


def stem(scheme: str, target: str) -> str:
    """File name without extension: ``int8-static.x86_64-vnni``, or ``fp32`` where the target makes no difference."""
    return scheme if target == ANY_TARGET else f"{scheme}.{target}"


def manifest_path(models_dir: Path, model: str, backend: str, scheme: str, target: str) -> Path:
    """The manifest of one artifact."""
    return artifacts_dir(models_dir, model) / backend / f"{stem(scheme, target)}.json"


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Writes the manifest atomically. Raises ``EdgeqError`` where the disk is full or the folder can't be written."""
    write_json(path, manifest.model_dump(mode="json", by_alias=True))


def read_manifest(path: Path) -> Manifest:
    """Reads one manifest.

    Raises:
        EdgeqError: the file is missing (code ``no-artifact``) or is not a manifest (``bad-manifest``).
    """
    again = "run: edgeq export"
    try:
        return Manifest.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EdgeqError(f"no artifact at {path}", error.strerror or str(error), again, code="no-artifact") from error
    except (ValidationError, UnicodeDecodeError) as error:
        first = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise EdgeqError(f"{path} is not a manifest", first, again, code="bad-manifest") from error


def find_manifest(models_dir: Path, model: str, backend: str, scheme: str, target: str) -> Path:
    """The manifest to run on a device of ``target``: the one made for it, else one for any, else one for another.

    Raises:
        EdgeqError: none is there (code ``no-artifact``).
    """
    order = (target, ANY_TARGET, *(t for t in TARGETS if t != target))
    for candidate in order:
        path = manifest_path(models_dir, model, backend, scheme, candidate)
        if path.is_file():
            return path
    raise EdgeqError(
        f"no artifact for {model}/{backend}/{scheme}",
        f"nothing exported under {artifacts_dir(models_dir, model)}",
        f"run: edgeq export --model {model} --backend {backend} --scheme {scheme}",
        code="no-artifact",
    )


def verify(path: Path, manifest: Manifest, *, model: str, backend: str, scheme: str) -> Path:
    """Checks that the artifact is what its manifest says and what the cell asks for; returns the file to load.

    Raises:
        EdgeqError: a failed export (its own code), another model's or scheme's manifest (``wrong-artifact``), a missing
            file (``no-artifact``), a truncated one (``truncated``), or other bytes than were exported (``bad-sha256``).
    """
    again = (
        f"run: edgeq export --model {model} --backend {backend} --scheme {scheme} "
        "(with the --weights and --calibration used before)"
    )
    if (manifest.model, manifest.backend, manifest.scheme) != (model, backend, scheme):
        raise EdgeqError(
            f"{path} is the manifest of {manifest.model}/{manifest.backend}/{manifest.scheme}",
            f"it stands where {model}/{backend}/{scheme} should be",
            again,
            code="wrong-artifact",
        )
    exported(manifest)
    for entry in [
        *manifest.files,
        FileEntry(**manifest.reference.model_dump(include={"sha256"}), name=manifest.reference.file, bytes=-1),
    ]:
        _verify_file(path.parent / entry.name, entry, again)
    return path.parent / manifest.files[0].name


def exported(manifest: Manifest) -> None:
    """Raises ``EdgeqError`` (code ``export-failed``, with the export's own reason) where there is no artifact."""
    if manifest.status == "ok":
        return
    what = f"{manifest.model}/{manifest.backend}/{manifest.scheme}"
    reason = manifest.reason or Note(code="export-failed", text="no reason was recorded")
    raise EdgeqError(
        f"{what} was not exported",
        reason.text,
        reason.hint or f"run: edgeq export --model {manifest.model}",
        code="export-failed",
    )


def _verify_file(file: Path, entry: FileEntry, again: str) -> None:
    if not file.is_file():
        raise EdgeqError(f"{file} is missing", "its manifest is there, the file is not", again, code="no-artifact")
    size = file.stat().st_size
    if 0 <= size < entry.bytes:
        raise EdgeqError(f"{file} is truncated", f"{size} bytes of {entry.bytes}", again, code="truncated")
    found = sha256_file(file)
    if found != entry.sha256:
        raise EdgeqError(
            f"{file} is not the file that was exported",
            f"sha256 {found[:12]}… where the manifest says {entry.sha256[:12]}…",
            again,
            code="bad-sha256",
        )
