"""``models/<name>/model.toml``: what a model is, before any framework sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from edgeq.spec.errors import RequestError, unknown_name
from edgeq.spec.names import NO_MODEL
from edgeq.spec.tomlfile import load_toml

_STRICT = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Source(BaseModel):
    """Where the float32 network and its pretrained weights come from: any Python package that can be imported."""

    model_config = _STRICT
    package: str = "torchvision.models"
    """The module to import, by the name that ``import`` takes."""
    constructor: str
    """In that module: what gives the network when it is called. Dots reach into classes."""
    arguments: dict[str, StrictStr | StrictBool | StrictInt | StrictFloat] = Field(default_factory=dict)
    """What it is called with, by keyword."""
    weights: str | None = None
    """A member of torchvision's ``WeightsEnum``, or a function that is called without arguments and gives a file's
    path; in ``package``, or in another one named before a colon: ``other_package:function``."""
    requires: tuple[str, ...] = ()
    """What to ask pip for where a package is missing; none where the extra ``export`` brings it."""


class Preprocess(BaseModel):
    """JPEG → float32 sample: resize the shorter side, crop the centre, then ``(x/255 - mean) / std`` a channel."""

    model_config = _STRICT
    resize: int = Field(gt=0)
    crop: int = Field(gt=0)
    interpolation: Literal["bilinear", "bicubic", "nearest"] = "bilinear"
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


class ModelSpec(BaseModel):
    """One ``model.toml``. ``macs`` and ``parameters`` are facts that export checks against the network built."""

    model_config = _STRICT
    name: str
    title: str
    source: Source
    input_shape: tuple[int, int, int]
    """Channels, height, width of one sample."""
    classes: int = Field(gt=1)
    label_offset: int = 0
    """Added to a dataset's label to give the index of the network's output (1 where class 0 is 'background')."""
    macs: int = Field(ge=0)
    """Multiply-adds of the convolution and linear layers for one sample."""
    parameters: int = Field(ge=0)
    preprocess: Preprocess


#: What the ``null`` backend takes: samples of the usual size, and no network.
NO_MODEL_SPEC = ModelSpec(
    name=NO_MODEL,
    title="no model",
    source=Source(package="", constructor=""),
    input_shape=(3, 224, 224),
    classes=1000,
    macs=0,
    parameters=0,
    preprocess=Preprocess(resize=224, crop=224, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
)


def model_names(models_dir: Path) -> tuple[str, ...]:
    """The names of all folders under ``models_dir`` that hold a ``model.toml``, sorted."""
    return tuple(sorted(path.parent.name for path in models_dir.glob("*/model.toml")))


def load_model(models_dir: Path, name: str) -> ModelSpec:
    """Reads ``models_dir/name/model.toml``.

    Raises:
        RequestError: no such model (the nearest name is given), or a mistake in the file.
    """
    path = models_dir / name / "model.toml"
    if not path.is_file():
        names = model_names(models_dir)
        if not names:
            raise RequestError(
                f"no models under {models_dir}",
                "no folder there holds a model.toml",
                "run from the project's folder, or pass --models DIR",
                code="no-models",
            )
        raise unknown_name("model", name, names)
    spec = load_toml(path, ModelSpec)
    if spec.name != name:
        raise RequestError(
            f"{path}: name is {spec.name!r}",
            f"it stands in the folder {name!r}",
            f"set name = {name!r}",
            code="bad-value",
        )
    return spec
