"""How a cell uses the device: threads, streams, batch. The default, and what ``edgeq tune`` stored beside the artifact.

Light: imports no framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgeq.artifact import Manifest
from edgeq.files import sha256_json, write_json
from edgeq.spec.names import MULTI_STREAM, SINGLE_STREAM
from edgeq.spec.note import Note
from edgeq.spec.profile import MultiStream


class Setting(BaseModel):
    """``threads`` in all, divided among ``streams`` that infer at once, each ``batch`` samples a call."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    threads: int = Field(ge=1)
    streams: int = Field(default=1, ge=1)
    batch: int = Field(default=1, ge=1)

    def words(self) -> str:
        """Such as ``2 threads, 2 streams, batch 1``."""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        streams = "1 stream" if self.streams == 1 else f"{self.streams} streams"
        return f"{threads}, {streams}, batch {self.batch}"


class Candidate(BaseModel):
    """A setting that was tried: samples a second of the first look, then of each round, in turn with the others."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    setting: Setting
    samples_per_second: list[float]
    """Of one that did not come near the fastest in the first look, this look alone."""
    note: Note | None = None
    """Why it was not tried, or went out."""


class Tuned(BaseModel):
    """What a search found for one scenario of an artifact, on one device."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    scenario: str
    key: str
    """``tuning_key`` of what it holds for; under another key it is not used."""
    setting: Setting
    default: Setting
    gain: float
    """Speed of ``setting`` over that of ``default``: geometric mean over the rounds; 1 where the default stays."""
    gain_low: float | None = None
    gain_high: float | None = None
    """Its 95 % interval; None where the default stays."""
    when: str
    """ISO 8601."""
    candidates: list[Candidate] = Field(default_factory=list)
    notes: list[Note] = Field(default_factory=list)
    """What there is to say of the search: a busy machine, fewer rounds than were asked for."""


class TunedFile(BaseModel):
    """``<artifact's name>.<device>.tuned.json``, beside the artifact: a ``Tuned`` a scenario and number of threads."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, defer_build=True)
    schema_: Literal[1] = Field(default=1, alias="schema")
    found: dict[str, Tuned] = Field(default_factory=dict)
    """By ``<scenario>/<threads allowed>``."""


#: Codes of notes that say that others had a part in what a search measured (``throttled``: of an older edgeq's).
UNSTEADY = ("busy-neighbour", "unsteady", "throttled")

#: Samples of a multi-stream query, in every profile that comes with edgeq.
QUERY: int = MultiStream.model_fields["samples_per_query"].default


#: Samples a call that int8-static gains by where a kernel's set-up, or reading the weights, counts beside its arithmetic;
#: twice as many gain no more (docs/tuning.md).
_FEW = 4
#: Weights of linear layers beyond those that a cache holds: read for every call, whatever its number of samples.
_LARGE_LINEAR = 1 << 24


def default_setting(scenario: str, threads: int, manifest: Manifest | None = None) -> Setting:
    """What a cell runs with where nothing was tuned: all threads on one sample, or a thread a stream.

    Offline and multi-stream give each stream one sample a call, or a few where that is faster by 10 % or more: within
    10 % of the best that was found for the artifacts measured (docs/tuning.md).

    Args:
        manifest: The artifact's; None without a model.
    """
    if scenario == SINGLE_STREAM:
        return Setting(threads=threads)
    most = QUERY if scenario == MULTI_STREAM else threads
    streams = max(n for n in range(1, min(threads, most) + 1) if threads % n == 0)
    batch = _FEW if manifest is not None and _gains_by_few(manifest) else 1
    if scenario == MULTI_STREAM and streams > 1:
        batch = min(batch, (QUERY - 1) // (streams - 1))  # no stream is left without a sample
    return Setting(threads=threads, streams=streams, batch=batch)


def _gains_by_few(manifest: Manifest) -> bool:
    """Whether single samples would cost 10 %, as measured on x86: int8-static of two frameworks, and large linear layers of
    ONNX Runtime's. Not TFLite, whose files may reshape to one sample."""
    if manifest.scheme != "int8-static":
        return False
    linear = sum(layer.macs for layer in manifest.layers if layer.op == "linear")
    return manifest.backend in ("openvino", "pytorch") or (manifest.backend == "onnxruntime" and linear > _LARGE_LINEAR)


def tuning_key(manifest: Manifest, device: Mapping[str, Any], versions: Mapping[str, str], threads: int) -> str:
    """Hash of what a tuned setting hangs on: artifact, device, versions of framework and edgeq, threads allowed."""
    return sha256_json(
        {
            "artifact": manifest.key,
            "device": {name: device.get(name) for name in ("slug", "machine", "cpu", "isa", "cores", "emulated")},
            "versions": dict(versions),
            "threads": threads,
        }
    )


def tuned_path(manifest: Path, device: Mapping[str, Any]) -> Path:
    """Where the settings found on ``device`` for the artifact of ``manifest`` stand."""
    return manifest.with_name(f"{manifest.stem}.{device['slug']}.tuned.json")


def setting_for(
    path: Path, manifest: Manifest, scenario: str, threads: int, key: str, device: Mapping[str, Any]
) -> tuple[Setting, bool, list[Note]]:
    """The setting of a cell, whether it was tuned, and what there is to say of it.

    Args:
        path: Where ``manifest``, the artifact's, stands.
        threads: Allowed to the cell.
        key: ``tuning_key`` of the artifact here and now.

    Returns:
        The stored setting where there is one for the same key, with the note ``tuned-unsteady`` where a disturbed machine
        made it leave the default; else the default, with ``tuned-stale`` where what is stored was found for something
        else, or can't be read.
    """
    default, file = default_setting(scenario, threads, manifest), tuned_path(path, device)
    if not file.is_file():
        return default, False, []
    whole = read_tuned(file)
    if whole is None:
        return default, False, [_stale(f"{file.name} can't be read")]
    tuned = whole.found.get(_place(scenario, threads))
    if tuned is None:
        return default, False, []
    if not _holds(tuned, key, default):
        return default, False, [_stale("it was found with another artifact, framework version or device")]
    return tuned.setting, True, _unsteady(tuned)


def stored(
    path: Path, manifest: Manifest, scenario: str, threads: int, key: str, device: Mapping[str, Any]
) -> Tuned | None:
    """What was found before and still holds; None where ``setting_for`` would give the default."""
    whole = read_tuned(tuned_path(path, device))
    tuned = whole.found.get(_place(scenario, threads)) if whole else None
    return tuned if tuned and _holds(tuned, key, default_setting(scenario, threads, manifest)) else None


def _holds(tuned: Tuned, key: str, default: Setting) -> bool:
    """Another default than the one it was compared with might be the better one."""
    return tuned.key == key and tuned.default == default


def _stale(why: str) -> Note:
    text = f"the tuned setting was not used, the default was: {why}"
    return Note(code="tuned-stale", text=text, hint="run: edgeq tune")


def _unsteady(tuned: Tuned) -> list[Note]:
    found = [note.text for note in tuned.notes if note.code in UNSTEADY]
    if not found or tuned.setting == tuned.default:
        return []
    text = f"the setting ({tuned.setting.words()}) was tuned on a disturbed machine: {'; '.join(found)}"
    return [Note(code="tuned-unsteady", text=text, hint="run: edgeq tune --again, on a quiet machine")]


def read_tuned(path: Path) -> TunedFile | None:
    """What is stored; None where nothing is, or nothing whole."""
    try:
        return TunedFile.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError):
        return None


def store_tuned(manifest: Path, device: Mapping[str, Any], threads: int, tuned: Tuned) -> Path:
    """Adds ``tuned`` to what is stored beside the artifact, atomically; returns the file.

    Raises:
        EdgeqError: the disk is full, or the folder can't be written.
    """
    path = tuned_path(manifest, device)
    found = read_tuned(path) or TunedFile()
    kept = {**found.found, _place(tuned.scenario, threads): tuned}
    write_json(path, TunedFile(found=kept).model_dump(mode="json", by_alias=True))
    return path


def _place(scenario: str, threads: int) -> str:
    return f"{scenario}/{threads}"
