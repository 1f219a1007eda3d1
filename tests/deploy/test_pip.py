"""pip, asked for what goes into a bundle: its failures become one telling line."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeq.deploy.pip import pip, telling
from edgeq.spec.errors import EdgeqError


def test_a_failure_says_what_why_and_what_next(tmp_path: Path) -> None:
    with pytest.raises(EdgeqError) as raised:
        pip(
            ["download", "--no-index", "--dest", str(tmp_path), "no-such-package"],
            what="it can't be had", hint="try again", code="no-wheel",
        )  # fmt: skip
    error = raised.value
    assert (error.what, error.hint, error.code) == ("it can't be had", "try again", "no-wheel")
    assert "no-such-package" in error.why
    assert not error.why.startswith("ERROR")


def test_the_environment_is_added_to_this_process_s(tmp_path: Path) -> None:
    with pytest.raises(EdgeqError, match="no-such-package"):
        pip(
            ["download", "--dest", str(tmp_path), "no-such-package"],
            what="it can't be had", hint="", code="no-wheel", environment={"PIP_NO_INDEX": "1"},
        )  # fmt: skip
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            "Building\n  loadgen.cc:3:10: fatal error: no.h: gone\nERROR: Failed building wheel",
            "loadgen.cc:3:10: fatal",
        ),
        ("WARNING: an Error of the network\nERROR: No matching distribution found for x", "No matching distribution"),
        ("Traceback\nOSError: disk full", "OSError: disk full"),
        ("one\ntwo\n", "two"),
        ("", "pip gave no reason"),
    ],
)
def test_the_line_that_tells_most(said: str, expected: str) -> None:
    assert telling(said).startswith(expected)


def test_a_long_line_is_cut() -> None:
    assert len(telling("ERROR: " + "x" * 1000)) == 300
