"""Options that several verbs share, and the names that they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click

from edgeq.spec.errors import RequestError
from edgeq.spec.names import BACKENDS, SCHEMES, STUDY_SCENARIOS, check_names

F = TypeVar("F", bound=Callable[..., object])

models_dir = click.option(
    "--models",
    "models_dir",
    type=click.Path(path_type=Path),
    default=Path("models"),
    show_default=True,
    help="Folder of model specs and artifacts.",
)
model = click.option("--model", "models", multiple=True, metavar="NAME", help="A model; may repeat. Default: all.")
backend = click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME",
    help=f"A framework ({', '.join(BACKENDS)}); may repeat. Default: all.",
)
scheme = click.option(
    "--scheme",
    "schemes",
    multiple=True,
    metavar="NAME",
    help=f"A precision ({', '.join(SCHEMES)}); may repeat. Default: all.",
)
scenario = click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    metavar="NAME",
    help=f"A LoadGen scenario ({', '.join(STUDY_SCENARIOS)}); may repeat. Default: these.",
)
results = click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Folder of records.",
)
threads = click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=None,
    help="Threads for each framework. Default: the physical cores that this process may use.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def chosen_models(folder: Path, asked: Sequence[str]) -> tuple[str, ...]:
    """The models asked for, or all.

    Raises:
        RequestError: the folder holds no model, or a name is unknown.
    """
    from edgeq.spec.model import model_names

    names = model_names(folder)
    if not names:
        raise RequestError(
            f"no models under {folder}",
            "no folder there holds a model.toml",
            "run from the project's folder, or pass --models DIR",
            code="no-models",
        )
    return check_names("model", asked or names, names)


def chosen(kind: str, asked: Sequence[str], valid: Sequence[str], default: Sequence[str]) -> tuple[str, ...]:
    """The names asked for, or the default ones. Raises ``RequestError`` for a name that is not valid."""
    return check_names(kind, asked or default, valid)
