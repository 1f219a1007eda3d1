"""The packaged peak networks: which are measured where, that they compute what they stand for, and how they are packed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeq.backends import installed, peaks, probes
from edgeq.backends.peaks import NETS, NUMPY, POINT, SPATIAL
from edgeq.host.cpu import family, isa_flags
from edgeq.host.device import describe
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import BACKENDS

HALF, NO_HALF = frozenset({"neon", "fp16"}), frozenset({"neon"})
HERE = [
    (backend, name)
    for backend in BACKENDS
    for name in peaks.fitting(backend, family(describe()["machine"]), frozenset(isa_flags()))
]


@pytest.mark.parametrize(("backend", "name"), HERE, ids=["-".join(each) for each in HERE])
def test_a_network_computes_in_the_precision_that_it_stands_for(backend: str, name: str, tmp_path: Path) -> None:
    if not installed(backend):
        pytest.skip(f"{backend} is not installed")
    net = peaks.open_net(backend, name, 1, tmp_path)
    try:
        # fp16 may be fp32 all the same: it then counts for that.
        precision = "int8" if name.startswith("int8") else "fp32" if name == "fp32" else next(iter(net.executed))
        assert net.executed == {precision: 1.0}
        assert net.library == backend
        net.run(3)
    finally:
        net.close()


def test_multiply_adds_are_of_outputs_that_are_really_computed() -> None:
    # 3x3 without padding: 18 -> 16 -> 14 -> 12 pixels a side.
    body = [layer.macs for layer in SPATIAL.macs() if layer.name.startswith("body")]
    assert body == [256 * 256 * 9 * side * side for side in (16, 14, 12)]
    assert [layer.macs for layer in POINT.macs()] == [3 * 256 * 196, *[256 * 256 * 196] * 8, 256 * 8]


def test_numpy_multiplies_a_product_a_thread() -> None:
    net = peaks.open_numpy(2)
    net.run(5)
    net.close()
    assert net.executed == {"fp32": 1.0}
    assert net.macs == peaks.SIDE**3
    assert net.library.startswith("numpy (")


def test_each_family_of_cpus_has_its_int8_recipe() -> None:
    for backend in BACKENDS:
        for cpu in ("x86", "arm"):
            names = peaks.fitting(backend, cpu, HALF)
            assert [name for name in names if name.startswith("int8-static")], (backend, cpu)
            assert "fp32" in names
    assert peaks.fitting("onnxruntime", "arm", NO_HALF) == ["fp32", "int8-static-s8s8"]
    assert peaks.fitting("pytorch", "x86", HALF) == ["fp32", "fp16", "int8-static-x86-8bit", "int8-static-onednn"]
    assert peaks.fitting(NUMPY, "arm", HALF) == ["fp32"]
    assert peaks.fitting("null", "x86", HALF) == []


def test_a_cpu_of_which_nothing_is_known_is_tried_in_half_precision_too() -> None:
    assert "fp16" in peaks.fitting("pytorch", "arm", frozenset())


def test_int8_has_the_recipes_of_the_newest_cpus() -> None:
    fast = {name for backend in BACKENDS for name in (probes.MADE_FOR[backend][t] for t in ("x86_64-vnni", "aarch64"))}
    assert {name for nets in NETS.values() for name in nets} >= fast


def test_every_packaged_file_belongs_to_a_network_and_all_are_small() -> None:
    named = {f"{backend}-{name}{net.suffix}.gz" for backend, nets in NETS.items() for name, net in nets.items()}
    found = list(peaks.FILES.iterdir())
    assert {file.name for file in found if not file.name.endswith(".bin.gz")} == named
    assert sum(file.stat().st_size for file in found) < 1_500_000


def test_a_missing_file_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peaks, "FILES", tmp_path)
    with pytest.raises(EdgeqError) as missing:
        peaks.unpacked("tflite", "fp32", tmp_path)
    assert missing.value.code == "no-artifact"


def test_a_network_unpacks_whole(tmp_path: Path) -> None:
    manifest, path = peaks.unpacked("openvino", "fp32", tmp_path)
    weights = path.with_suffix(".bin")
    assert path.suffix == ".xml"
    assert weights.stat().st_size >= 8 * 256 * 256 * 4
    assert np.isfinite(np.fromfile(weights, np.float32)[:65536]).all()
    assert (manifest.backend, manifest.scheme, manifest.input.shape) == ("openvino", "fp32", (3, 14, 14))
