"""TOML file → pydantic model, with the user's typos named."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from edgeq.spec.errors import RequestError, nearest

T = TypeVar("T", bound=BaseModel)


def load_toml(path: Path, kind: type[T]) -> T:
    """Reads and validates one spec file.

    Raises:
        RequestError: missing file, bad TOML, an unknown key (the nearest valid key is named), a missing key, or a
            value of the wrong type or out of range.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(
            f"cannot read {path}",
            error.strerror or str(error),
            f"check that {path} exists and is readable",
            code="missing-spec",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestError(
            f"{path} is not valid TOML", str(error), "mend the line that the message names", code="bad-toml"
        ) from error
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise _explain(path, kind, error) from error


def _explain(path: Path, kind: type[BaseModel], error: ValidationError) -> RequestError:
    # A mistyped key is reported twice, as unknown and as missing: the typo is the mistake.
    first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        valid = _keys_beside(kind, first["loc"])
        close = nearest(str(first["loc"][-1]), valid)
        hint = f"did you mean {close!r}?" if close else f"use one of: {', '.join(sorted(valid))}"
        return RequestError(f"{path}: unknown key {where!r}", "no such setting", hint, code="unknown-key")
    if first["type"] == "missing":
        return RequestError(
            f"{path}: missing key {where!r}", "this setting has no default", f"add {where} = …", code="missing-key"
        )
    return RequestError(
        f"{path}: bad value for {where!r}",
        f"{first['msg']} (got {first['input']!r})",
        f"correct {where} in {path}",
        code="bad-value",
    )


def _keys_beside(kind: type[BaseModel], loc: tuple[int | str, ...]) -> set[str]:
    """The valid keys of the table in which the unknown key at ``loc`` stands."""
    for part in loc[:-1]:
        field = next((f for n, f in kind.model_fields.items() if part in (n, f.alias)), None)
        annotation = field.annotation if field else None
        options = getattr(annotation, "__args__", (annotation,))
        nested = [a for a in options if isinstance(a, type) and issubclass(a, BaseModel)]
        if not nested:
            break
        kind = nested[0]
    return {field.alias or name for name, field in kind.model_fields.items()}
