"""The one shape of a user's mistake: what happened, why, and what to type next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: Exit codes of every command (contract): done, something asked for failed, the request itself was wrong.
DONE, FELL_SHORT, BAD_REQUEST = 0, 1, 2


class EdgeqError(Exception):
    """A failure that is the user's to mend; the command line prints it in three lines, without a traceback.

    Args:
        what: One line: what went wrong, naming the file or the name at fault.
        why: One line: the cause.
        hint: One line: what to type or do next.
        code: A stable identifier for records and tests, such as ``"unknown-name"``.
        exit_code: 1 where something asked for failed, 2 where the request itself was wrong.
    """

    def __init__(self, what: str, why: str, hint: str, *, code: str = "error", exit_code: int = FELL_SHORT) -> None:
        super().__init__(what)
        self.what, self.why, self.hint = what, why, hint
        self.code, self.exit_code = code, exit_code

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.what, self.why, self.hint, self.code, self.exit_code)


def _rebuild(what: str, why: str, hint: str, code: str, exit_code: int) -> EdgeqError:
    return EdgeqError(what, why, hint, code=code, exit_code=exit_code)


class RequestError(EdgeqError):
    """The request itself was wrong (exit code 2): nothing was started."""

    def __init__(self, what: str, why: str, hint: str, *, code: str = "bad-request") -> None:
        super().__init__(what, why, hint, code=code, exit_code=BAD_REQUEST)


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """The valid name closest to a mistyped one, or None where nothing is close."""
    found = difflib.get_close_matches(name.lower(), list(valid), n=1, cutoff=0.5)
    return found[0] if found else None


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> RequestError:
    """The error for a name that is not one of ``valid``: names the nearest, and lists them all."""
    names = sorted(valid)
    close = nearest(name, names)
    hint = f"did you mean {close!r}?" if close else f"use one of: {', '.join(names)}"
    return RequestError(
        f"unknown {kind} {name!r}", f"valid names are {', '.join(names) or '(none)'}", hint, code="unknown-name"
    )
