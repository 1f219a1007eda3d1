from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else the testing machine does is no matter of these tests."""
    monkeypatch.setattr("edgeq.tune.search.snapshot", lambda: {})
