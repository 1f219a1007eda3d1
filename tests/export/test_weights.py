from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
safetensors_torch = pytest.importorskip("safetensors.torch")

from edgeq.data.images import list_images  # noqa: E402
from edgeq.data.samples import prepare  # noqa: E402
from edgeq.export.network import build_network  # noqa: E402
from edgeq.export.weights import load_weights, state_sha256  # noqa: E402
from edgeq.spec.errors import EdgeqError, RequestError  # noqa: E402
from edgeq.spec.model import ModelSpec, Source, load_model  # noqa: E402
from tests.data.pictures import small_spec  # noqa: E402
from tests.export import tiny  # noqa: E402

SPEC = small_spec(macs=tiny.MACS, parameters=tiny.PARAMETERS)
State = dict[str, Any]


def _state() -> State:
    torch.manual_seed(3)
    module = tiny.TinyNet()
    with torch.no_grad():
        module.norm.running_mean.uniform_(-1, 1)
    return dict(module.state_dict())


def _save(path: Path, state: State) -> Path:
    if path.suffix == ".safetensors":
        safetensors_torch.save_file(state, path)
    else:
        torch.save(state, path)
    return path


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth", "w.pt"])
def test_the_same_weights_have_the_same_hash_in_any_file(tmp_path: Path, name: str) -> None:
    state = _state()
    module, info, notes = load_weights(SPEC, str(_save(tmp_path / name, state)))
    assert (info.kind, info.name, info.seed, notes) == ("file", name, None, [])
    assert not module.training
    reference = build_network(SPEC, 0)
    reference.load_state_dict(state)
    assert info.sha256 == state_sha256(reference)
    assert all(torch.equal(tensor, state[key]) for key, tensor in module.state_dict().items())


def test_one_changed_value_changes_the_hash(tmp_path: Path) -> None:
    state = _state()
    before = load_weights(SPEC, str(_save(tmp_path / "a.pth", state)))[1].sha256
    state["classifier.bias"][0] += 1e-6
    assert load_weights(SPEC, str(_save(tmp_path / "a.pth", state)))[1].sha256 != before


def test_a_state_dict_under_its_name_and_without_counts_of_batches(tmp_path: Path) -> None:
    state = _state()
    before = load_weights(SPEC, str(_save(tmp_path / "a.pth", state)))[1].sha256
    short = {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")}
    assert len(short) == len(state) - 2
    path = _save(tmp_path / "b.pth", {"state_dict": short, "epoch": 90})
    assert load_weights(SPEC, str(path))[1].sha256 == before


def _without(key: str) -> Callable[[State], None]:
    return lambda state: state.pop(key)


def _with(key: str, value: Any) -> Callable[[State], None]:
    return lambda state: state.update({key: value})


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (_without("stem.weight"), "weights-mismatch", "1 missing: stem.weight"),
        (_with("head.weight", torch.zeros(1)), "weights-mismatch", "1 unexpected: head.weight"),
        (
            _with("stem.weight", torch.zeros(8, 3, 5, 5)),
            "weights-mismatch",
            "stem.weight [8, 3, 5, 5], not [8, 3, 3, 3]",
        ),
        (_with("stem.weight", torch.zeros(8, 3, 3, 3, dtype=torch.int8)), "weights-mismatch", "torch.int8"),
        (_with("norm.bias", torch.full((8,), float("nan"))), "weights-not-finite", "norm.bias"),
        (_with("norm.bias", torch.full((8,), float("inf"))), "weights-not-finite", "norm.bias"),
    ],
)
def test_weights_that_do_not_fit_are_named(
    tmp_path: Path, change: Callable[[State], None], code: str, says: str
) -> None:
    state = _state()
    change(state)
    with pytest.raises(RequestError) as caught:
        load_weights(SPEC, str(_save(tmp_path / "a.safetensors", state)))
    assert caught.value.code == code
    assert says in caught.value.why


def test_only_the_first_few_keys_are_named(tmp_path: Path) -> None:
    path = _save(tmp_path / "a.pth", {"model.a": torch.zeros(1)})
    with pytest.raises(RequestError) as caught:
        load_weights(SPEC, str(path))
    assert "…" in caught.value.why
    assert len(caught.value.why) < 300


def test_half_precision_weights_are_converted_with_a_note(tmp_path: Path) -> None:
    state = {key: value.half() if value.is_floating_point() else value for key, value in _state().items()}
    module, _, notes = load_weights(SPEC, str(_save(tmp_path / "a.safetensors", state)))
    assert [note.code for note in notes] == ["weights-cast"]
    assert all(parameter.dtype == torch.float32 for parameter in module.parameters())


def _damage(tmp_path: Path, kind: str) -> str:
    good = tmp_path / "good.pth"
    torch.save(_state(), good)
    data = good.read_bytes()
    if kind == "code in a pickle":
        path = tmp_path / "code.pth"
        path.write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    elif kind == "truncated":
        path = tmp_path / "cut.pth"
        path.write_bytes(data[: len(data) // 2])
    elif kind == "truncated safetensors":
        path = _save(tmp_path / "cut.safetensors", _state())
        path.write_bytes(path.read_bytes()[:-10])
    elif kind == "whole module":
        path = tmp_path / "module.pth"
        torch.save(tiny.TinyNet(), path)
    elif kind == "a list":
        path = tmp_path / "list.pth"
        torch.save([torch.zeros(1)], path)
    elif kind == "numbers":
        path = tmp_path / "numbers.pth"
        torch.save({"a": 1}, path)
    else:
        path = tmp_path / "empty.pth"
        path.write_bytes(b"")
    return str(path)


@pytest.mark.parametrize(
    "kind",
    ["code in a pickle", "truncated", "truncated safetensors", "whole module", "a list", "numbers", "empty file"],
)
def test_a_file_that_is_no_state_dict_is_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(RequestError) as caught:
        load_weights(SPEC, _damage(tmp_path, kind))
    assert caught.value.code == "bad-weights"
    assert "\n" not in caught.value.why


@pytest.mark.parametrize(
    ("choice", "code", "says"),
    [
        ("pretraind", "no-weights", "did you mean 'pretrained'?"),
        ("gone.pth", "no-weights", "--weights FILE"),
        ("there.onnx", "bad-weights-suffix", ".safetensors"),
        ("folder.pth", "no-weights", "--weights FILE"),
    ],
)
def test_choices_that_are_no_weights(tmp_path: Path, choice: str, code: str, says: str) -> None:
    (tmp_path / "there.onnx").write_bytes(b"x")
    (tmp_path / "folder.pth").mkdir()
    with pytest.raises(RequestError) as caught:
        load_weights(SPEC, choice if choice == "pretraind" else str(tmp_path / choice))
    assert caught.value.code == code
    assert says in caught.value.hint


@pytest.mark.parametrize(
    ("source", "code", "says"),
    [
        (Source(package="no_such_package", constructor="tiny"), "not-installed", "edgeq[export]"),
        (Source(package="tests.export.tiny", constructor="tiny_"), "bad-source", "'tiny'"),
    ],
)
def test_a_source_that_cannot_be_built(source: Source, code: str, says: str) -> None:
    spec = small_spec(source=source, parameters=tiny.PARAMETERS)
    for choice in ("random", "auto"):
        with pytest.raises(EdgeqError) as caught:
            load_weights(spec, choice)
        assert caught.value.code == code
        assert says in caught.value.hint


def test_the_number_of_parameters_is_checked() -> None:
    with pytest.raises(EdgeqError) as caught:
        load_weights(small_spec(parameters=tiny.PARAMETERS + 1), "random")
    assert caught.value.code == "parameters-differ"


def test_a_constructor_without_weights_and_a_model_without_pretrained_ones() -> None:
    spec = small_spec(source=Source(package="tests.export.tiny", constructor="bare"), parameters=tiny.PARAMETERS)
    with pytest.raises(EdgeqError) as caught:
        load_weights(spec, "pretrained")
    assert caught.value.code == "no-pretrained"
    _, info, notes = load_weights(spec, "auto", seed=4)
    assert (info.kind, info.name, info.seed) == ("random", "random, seed 4", 4)
    assert [note.code for note in notes] == ["random-weights"]
    assert "RANDOM" in notes[0].text


def test_building_leaves_torch_s_own_random_numbers_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    load_weights(SPEC, "random", seed=9)
    assert torch.equal(torch.rand(1), expected)


def test_densenet_weights_with_torchvision_s_old_names_load(repo: Path, tmp_path: Path) -> None:
    spec = load_model(repo / "models", "densenet121")
    state = build_network(spec, 1).state_dict()
    old = {_old_name(key): value for key, value in state.items() if not key.endswith("num_batches_tracked")}
    assert "features.denseblock1.denselayer1.norm.1.weight" in old
    module, _, notes = load_weights(spec, str(_save(tmp_path / "old.pth", old)))
    assert notes == []
    assert all(torch.equal(tensor, state[key]) for key, tensor in module.state_dict().items())


def _old_name(key: str) -> str:
    parts = key.split(".")
    if any(part.startswith("denselayer") for part in parts):
        parts[3] = f"{parts[3][:-1]}.{parts[3][-1]}"
    return ".".join(parts)


def test_real_weights_on_real_images(repo: Path, shared_data: Path) -> None:
    spec: ModelSpec = load_model(repo / "models", "mobilenet_v2")
    module, info, notes = load_weights(spec, str(shared_data / "mobilenet_v2-rot180.safetensors"))
    assert (info.kind, notes) == ("file", [])
    images = list_images(shared_data / "nips17-rot180", spec.classes, spec.label_offset)
    samples = prepare(images, spec)
    assert (samples.count, samples.bad, samples.preprocessing) == (500, (), "as is (already 224x224)")
    assert samples.labels is not None
    right = 0
    with torch.inference_mode():
        for start in range(0, 64, 16):
            batch = torch.from_numpy(samples.load(range(start, start + 16), "NCHW"))
            right += int(np.sum(module(batch).argmax(1).numpy() == samples.labels[start : start + 16]))
    assert 0.7 < right / 64 < 0.95
