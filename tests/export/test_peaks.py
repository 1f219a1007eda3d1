"""The packaged peak networks are what the exporters of today make."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeq.backends import open_session, peaks
from edgeq.backends.peaks import NETS, POINT, SPATIAL, Shape
from edgeq.backends.session import SessionOptions
from edgeq.export import peaks as making
from edgeq.export.macs import layers
from edgeq.spec.names import BACKENDS


@pytest.mark.parametrize("shape", [POINT, SPATIAL])
def test_layers_are_as_the_session_is_told(shape: Shape) -> None:
    assert layers(making.network(shape), making.spec(shape)) == shape.macs()


@pytest.mark.parametrize("shape", [POINT, SPATIAL])
def test_no_layer_dies_or_blows_up(shape: Shape) -> None:
    import torch

    network, scales = making.network(shape), []
    for relu in network.relu:
        relu.register_forward_hook(lambda *found: scales.append(float(found[2].std())))
    with torch.no_grad():
        network(torch.from_numpy(np.stack(list(making.Noise(shape)))))
    assert len(scales) == shape.layers + 1
    assert all(0.2 < scale < 3 for scale in scales)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rebuilt_network_is_the_packaged_one(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # PyTorch's float16 kernels take seconds without the arithmetic.
    names = [name for name in NETS[backend] if (backend, name) != ("pytorch", "fp16")]
    packaged = {name: _logits(backend, name, tmp_path / "packaged") for name in names}
    (tmp_path / "out").mkdir()
    making.write(backend, names, tmp_path / "out")
    monkeypatch.setattr(peaks, "FILES", tmp_path / "out")
    for name in names:
        rebuilt = _logits(backend, name, tmp_path / "rebuilt")
        assert np.abs(rebuilt - packaged[name]).max() < 0.05 * np.abs(packaged[name]).max(), name


def _logits(backend: str, name: str, folder: Path) -> Any:
    folder.mkdir(exist_ok=True)
    manifest, path = peaks.unpacked(backend, name, folder)
    sample = next(iter(making.Noise(NETS[backend][name].shape)))
    session = open_session(manifest, path, SessionOptions(threads=1))
    try:
        if manifest.input.layout == "NHWC":
            sample = np.ascontiguousarray(sample.transpose(1, 2, 0))
        return session.infer(sample[None])
    finally:
        session.close()


def test_no_file_tells_where_it_was_made(tmp_path: Path) -> None:
    here = str(Path(making.__file__).parent).encode()
    for packed in peaks.FILES.iterdir():
        content = gzip.decompress(packed.read_bytes())
        assert here not in content
        if ".pt" in packed.name:
            (tmp_path / "net.pt").write_bytes(content)
            with zipfile.ZipFile(tmp_path / "net.pt") as archive:
                assert not any(here in archive.read(name) for name in archive.namelist())
