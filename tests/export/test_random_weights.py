from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from edgeq.data.samples import synthetic  # noqa: E402
from edgeq.export.network import build_network  # noqa: E402
from edgeq.export.random_weights import SAMPLES, SEED_OFFSET, make_sane  # noqa: E402
from edgeq.export.weights import load_weights, state_sha256  # noqa: E402
from edgeq.spec.errors import EdgeqError  # noqa: E402
from edgeq.spec.model import ModelSpec, load_model  # noqa: E402
from tests.data.pictures import small_spec  # noqa: E402
from tests.export import tiny  # noqa: E402

SPEC = small_spec(macs=tiny.MACS, parameters=tiny.PARAMETERS)


def _logits(module: Any, spec: ModelSpec, count: int) -> Any:
    with torch.inference_mode():
        return module(torch.from_numpy(synthetic(spec, count, seed=0).load(range(count), "NCHW")))


def test_the_seed_makes_the_weights_whatever_the_threads() -> None:
    first = load_weights(SPEC, "random", seed=5)[1]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        assert load_weights(SPEC, "random", seed=5)[1] == first
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    assert load_weights(SPEC, "random", seed=6)[1].sha256 != first.sha256


def test_every_layer_has_unit_scale_and_no_hook_stays_behind() -> None:
    module = build_network(SPEC, 0)
    make_sane(module, SPEC, 0)
    assert not any(layer._forward_hooks for layer in module.modules())
    spreads: dict[str, float] = {}
    for name, layer in module.named_modules():
        if name:
            layer.register_forward_hook(lambda _l, _i, out, name=name: spreads.update({name: float(out.std())}))
    _logits(module, SPEC, 32)
    assert len(spreads) == 6
    assert all(0.5 < spread < 2 for spread in spreads.values()), spreads


def test_what_the_hooks_put_out_is_what_the_corrected_network_puts_out() -> None:
    """One pass corrects all layers: over the same samples, each batch norm sees the statistics that it holds."""
    module = build_network(SPEC, 0)
    make_sane(module, SPEC, 0)
    seen: dict[str, Any] = {}
    for name in ("stem", "depthwise"):
        module.get_submodule(name).register_forward_hook(lambda _l, _i, out, name=name: seen.update({name: out}))
    batch = torch.from_numpy(synthetic(SPEC, SAMPLES, seed=SEED_OFFSET).load(range(SAMPLES), "NCHW"))
    with torch.inference_mode():
        logits = module(batch)
    for layer, norm in (("stem", "norm"), ("depthwise", "norm2")):
        held = module.get_submodule(norm)
        variance = seen[layer].var(dim=(0, 2, 3), unbiased=False)
        torch.testing.assert_close(seen[layer].mean(dim=(0, 2, 3)), held.running_mean, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(variance, held.running_var, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(logits.mean(dim=0), torch.zeros(10), rtol=0, atol=1e-4)
    assert float(logits.std()) == pytest.approx(1, abs=1e-3)


def test_a_network_that_puts_out_a_constant_is_refused() -> None:
    module = build_network(SPEC, 0)
    module.get_submodule("stem").weight.data.zero_()
    with pytest.raises(EdgeqError) as caught:
        make_sane(module, SPEC, 0)
    assert caught.value.code == "degenerate-weights"


@pytest.mark.parametrize(
    ("model", "count", "distinct"), [("mobilenet_v2", 32, 12), ("densenet121", 32, 12), ("vgg19", 6, 4)]
)
def test_the_three_models_tell_samples_apart(repo: Path, model: str, count: int, distinct: int) -> None:
    pytest.importorskip("torchvision")
    spec = load_model(repo / "models", model)
    module = build_network(spec, 0)
    make_sane(module, spec, 0)
    logits = _logits(module, spec, count)
    assert 0.7 < float(logits.std()) < 1.5
    assert len(logits.argmax(1).unique()) >= distinct
    assert len(state_sha256(module)) == 64
