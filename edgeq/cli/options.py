"""Options that several verbs share, and the names that they take."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

import click
from click.core import ParameterSource

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
scenarios_dir = click.option(
    "--scenarios",
    "scenarios_dir",
    type=click.Path(path_type=Path),
    default=Path("scenarios"),
    show_default=True,
    help="Folder of profiles.",
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
#: On the device, from the user's home.
DEVICE_DIR, SSH = "edgeq", "ssh"
device_dir = click.option(
    "--device-dir", default=DEVICE_DIR, show_default=True, metavar="DIR", help="Folder for bundles on the device."
)
ssh = click.option(
    "--ssh", default=SSH, show_default=True, metavar="COMMAND", help="How to reach it: 'ssh -p 2222 -i key'."
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def device(*, required: bool) -> Callable[[F], F]:
    """``--device``, of commands that can do nothing without it, or that do the same here."""
    where = "The device, as ssh takes it." if required else "Do it on that device, and bring the records here."
    return click.option("--device", required=required, default=None, metavar="USER@HOST", help=where)


def elsewhere(device_dir: str, ssh: str) -> str:
    """The options that are to be repeated with another command for the same device."""
    return "".join(
        f" {flag} {shlex.quote(value)}"
        for flag, value, default in (("--device-dir", device_dir, DEVICE_DIR), ("--ssh", ssh, SSH))
        if value != default
    )


def given(context: click.Context, leave_out: Collection[str]) -> list[str]:
    """The options as they were typed, but those named in ``leave_out`` by their parameter: for the same verb elsewhere."""
    words: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in leave_out or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        assert isinstance(parameter, click.Option)
        value, flag = context.params[name], parameter.opts[0]
        if parameter.is_flag:
            words.append(flag)
        else:
            for each in value if parameter.multiple else (value,):
                words += [flag, str(each)]
    return words


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
