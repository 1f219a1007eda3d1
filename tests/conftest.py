from __future__ import annotations

import os
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def repo() -> Path:
    """The checkout that the tests stand in."""
    return REPO


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real weights and labelled images, where they are at hand; tests that need them skip elsewhere."""
    folder = Path(os.environ.get("EDGEQ_SHARED", REPO.parent / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"needs real weights and images in {folder} (set EDGEQ_SHARED)")
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Preprocessed samples go to a cache of the test session's own."""
    monkeypatch.setenv("EDGEQ_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
