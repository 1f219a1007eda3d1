"""microsoft/onnxruntime#8313 and #10104: where threads run, and how many, moves the figures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgeq.host.cpu import physical_cores
from edgeq.host.device import describe
from tests.host import trees
from tests.traps.cells import trial
from tests.traps.conftest import Artifact


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("backend", ["onnxruntime", "pytorch"])
def test_threads_are_given_read_back_and_recorded(
    artifact: Artifact, repo: Path, tmp_path: Path, backend: str, threads: int
) -> None:
    found = trial(artifact(backend, "fp32"), repo, tmp_path, threads=threads)
    session = found.load()
    assert session.effective().threads == threads
    session.close()
    requested = found.known["requested"]
    assert requested.threads == threads
    assert requested.environment["OMP_NUM_THREADS"] == str(threads)


def test_the_default_is_what_affinity_allows_not_what_the_machine_has(tmp_path: Path) -> None:
    root = trees.epyc(tmp_path)
    assert physical_cores(root, {0, 1, 2, 3}) == 2
    assert physical_cores(root, {0, 1}) == 1
    assert describe(root, "x86_64", {}, {0, 2})["threads_allowed"] == 2
    if hasattr(os, "sched_getaffinity"):
        assert describe()["threads_allowed"] == len(os.sched_getaffinity(0))
