"""Preprocessed samples of a dataset as files to take along: a device opens them with numpy alone, and decodes nothing.

A folder holds ``<model>.samples.json`` a model, and the pixels that these name, as they lie in the cache: models that
preprocess alike share a file. ``edgeq run --dataset FOLDER`` takes it in place of the images.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgeq.data.samples import FileSource, SampleSet, open_samples
from edgeq.files import sha256_file
from edgeq.spec.errors import EdgeqError, RequestError
from edgeq.spec.model import ModelSpec

SCHEMA = 1
_SUFFIX = ".samples.json"


def packed_name(model: str) -> str:
    """The name of the file that describes the samples of ``model``."""
    return f"{model}{_SUFFIX}"


def is_packed(folder: Path) -> bool:
    """Whether ``folder`` holds packed samples of any model."""
    return next(folder.glob(f"*{_SUFFIX}"), None) is not None


def describe_packed(samples: SampleSet, spec: ModelSpec) -> dict[str, Any]:
    """What goes into ``packed_name(spec.name)`` beside the pixels' file, for samples of a folder of images."""
    assert isinstance(samples.source, FileSource)
    pixels = samples.source.path
    described = samples.to_spec() | {"source": {"file": pixels.name, "rows": samples.source.rows}}
    return {
        "schema": SCHEMA,
        "model": _meaning(spec),
        "sha256": samples.sha256,
        "pixels_sha256": sha256_file(pixels),
        "samples": described,
    }


def open_packed(folder: Path, spec: ModelSpec) -> SampleSet:
    """The samples of ``spec``'s model in ``folder``; ``path`` is that of the images they were made of.

    Raises:
        RequestError: there are none of this model (code ``no-dataset``), or they were made for another ``model.toml``
            (``other-preprocessing``).
        EdgeqError: they are damaged (code ``no-samples``).
    """
    path = folder / packed_name(spec.name)
    if not path.is_file():
        names = sorted(each.name.removesuffix(_SUFFIX) for each in folder.glob(f"*{_SUFFIX}"))
        raise RequestError(
            f"{folder} holds no samples of {spec.name}",
            f"it holds those of {', '.join(names)}",
            f"leave the model out, or bundle it too: edgeq bundle --model {spec.name} --dataset DIR",
            code="no-dataset",
        )
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        same = found["schema"] == SCHEMA and found["model"] == _meaning(spec)
        pixels = folder / Path(found["samples"]["source"]["file"]).name
        whole = sha256_file(pixels) == found["pixels_sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, str(error)) from error
    if not same:
        raise RequestError(
            f"the samples in {folder} were made for another {spec.name}",
            "its model.toml says other preprocessing or labels than it did then",
            "bundle anew: edgeq bundle --dataset DIR",
            code="other-preprocessing",
        )
    if not whole:
        raise _damaged(pixels, "its sha256 is not the one that was packed")
    described = found["samples"]
    samples = open_samples(described | {"source": described["source"] | {"file": str(pixels)}})
    if samples.sha256 != found["sha256"]:
        raise _damaged(path, "labels or images are not those that were packed")
    return samples


def _meaning(spec: ModelSpec) -> dict[str, Any]:
    """What of a model's spec the samples and their labels hang on."""
    return spec.model_dump(mode="json", include={"name", "input_shape", "classes", "label_offset", "preprocess"})


def _damaged(path: Path, why: str) -> EdgeqError:
    return EdgeqError(
        f"cannot read the packed samples {path}", why, "unpack the bundle again: python3 edgeq-*.pyz", code="no-samples"
    )
