"""torchvision's own download against a server on loopback that serves, refuses, stalls or sends something else."""

from __future__ import annotations

import hashlib
import http.server
import io
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from edgeq.export.weights import load_weights  # noqa: E402
from edgeq.spec.errors import EdgeqError  # noqa: E402
from edgeq.spec.model import ModelSpec, Source  # noqa: E402
from tests.data.pictures import small_spec  # noqa: E402
from tests.export import tiny  # noqa: E402

SPEC: ModelSpec = small_spec(
    source=Source(package="tests.export.tiny", constructor="tiny", weights="Tiny_Weights.V1"),
    macs=tiny.MACS,
    parameters=tiny.PARAMETERS,
)


def _weights() -> tuple[dict[str, Any], bytes, str]:
    """A state dict, its file, and the name that torchvision would give it: with the start of its sha256."""
    torch.manual_seed(1)
    state = tiny.TinyNet().state_dict()
    stream = io.BytesIO()
    torch.save(state, stream)
    data = stream.getvalue()
    return state, data, f"tiny-{hashlib.sha256(data).hexdigest()[:8]}.pth"


class _Server(http.server.ThreadingHTTPServer):
    mode = "serve"
    data = b""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.release = threading.Event()
        self.requests = 0


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.requests += 1
        if self.server.mode == "refuse":
            self.send_error(403)
            return
        if self.server.mode == "stall before the answer":
            self.server.release.wait()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.data)))
        self.end_headers()
        if self.server.mode == "stall in the middle":
            self.wfile.write(self.server.data[:100])
            self.wfile.flush()
            self.server.release.wait()
        elif self.server.mode == "trickle":
            while not self.server.release.wait(0.05):
                self.wfile.write(b"x")
                self.wfile.flush()
        elif self.server.mode == "cut":
            self.wfile.write(self.server.data[:100])
        else:
            self.wfile.write(self.server.data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[_Server]:
    """A server of the tiny model's weights, and torch's cache in a folder of the test's own."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("no_proxy", "*")
    found = _Server()
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    _, found.data, name = _weights()
    url = f"http://127.0.0.1:{found.server_address[1]}/{name}"
    monkeypatch.setattr(tiny, "Tiny_Weights", tiny.weights_enum(url), raising=False)
    yield found
    found.release.set()
    found.shutdown()
    found.server_close()
    thread.join()


def _cached(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "torch" / "hub" / "checkpoints").glob("*"))


def test_weights_are_downloaded_once(server: _Server, capsys: pytest.CaptureFixture[str]) -> None:
    state = _weights()[0]
    for _ in range(2):
        module, info, notes = load_weights(SPEC, "pretrained", timeout_s=10)
        assert (info.kind, info.name, notes) == ("pretrained", "Tiny_Weights.V1", [])
        assert torch.equal(module.state_dict()["stem.weight"], state["stem.weight"])
    assert server.requests == 1
    assert capsys.readouterr().out == ""
    assert load_weights(SPEC, "auto")[1] == info


@pytest.mark.parametrize("mode", ["refuse", "stall before the answer", "stall in the middle", "trickle"])
def test_a_server_that_gives_nothing_is_given_up(server: _Server, tmp_path: Path, mode: str) -> None:
    server.mode = mode
    server.data = server.data * 10
    with pytest.raises(EdgeqError) as caught:
        load_weights(SPEC, "pretrained", timeout_s=0.5)
    assert caught.value.code == "no-network"
    assert "--weights FILE" in caught.value.hint
    assert "--weights random" in caught.value.hint
    assert socket.getdefaulttimeout() is None
    assert not [path for path in _cached(tmp_path) if path.suffix == ".pth"]


def test_nothing_listens(server: _Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/tiny-00000000.pth"
        monkeypatch.setattr(tiny, "Tiny_Weights", tiny.weights_enum(url))
        with pytest.raises(EdgeqError, match="refused") as caught:
            load_weights(SPEC, "pretrained", timeout_s=5)
    assert caught.value.code == "no-network"


def test_auto_falls_back_to_random_and_says_why(server: _Server) -> None:
    server.mode = "refuse"
    _, info, notes = load_weights(SPEC, "auto", seed=2, timeout_s=5)
    assert (info.kind, info.name) == ("random", "random, seed 2")
    assert [note.code for note in notes] == ["random-weights"]
    assert "403" in notes[0].text


@pytest.mark.parametrize("mode", ["cut", "other bytes"])
def test_a_broken_download_is_not_kept(server: _Server, tmp_path: Path, mode: str) -> None:
    server.mode = mode
    server.data = server.data[:-1] + b"?" if mode == "other bytes" else server.data
    with pytest.raises(EdgeqError) as caught:
        load_weights(SPEC, "pretrained", timeout_s=5)
    assert caught.value.code == "bad-download"
    assert _cached(tmp_path) == []


def test_a_broken_file_in_torch_s_cache_is_found(server: _Server, tmp_path: Path) -> None:
    load_weights(SPEC, "pretrained", timeout_s=5)
    (path,) = _cached(tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(EdgeqError) as caught:
        load_weights(SPEC, "pretrained", timeout_s=5)
    assert caught.value.code == "bad-download"
    assert str(path) in caught.value.hint


def test_weights_of_another_network_are_not_taken(server: _Server, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO()
    torch.save({"other": torch.zeros(1)}, stream)
    server.data = stream.getvalue()
    url = f"http://127.0.0.1:{server.server_address[1]}/no-hash-in-this-name.pth"
    monkeypatch.setattr(tiny, "Tiny_Weights", tiny.weights_enum(url))
    for choice in ("pretrained", "auto"):
        with pytest.raises(EdgeqError) as caught:
            load_weights(SPEC, choice, timeout_s=5)
        assert caught.value.code == "weights-mismatch"


def test_a_cache_that_cannot_be_written_is_not_called_a_lack_of_network(server: _Server, tmp_path: Path) -> None:
    (tmp_path / "torch").write_text("a file where torch's folder should be", encoding="utf-8")
    with pytest.raises(EdgeqError) as caught:
        load_weights(SPEC, "pretrained", timeout_s=5)
    assert caught.value.code == "cannot-write"
