from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgeq.export.smallest import Layers, smallest

NAMES = tuple(f"layer{index}" for index in range(53))


def additive(costs: dict[str, float], calls: list[Layers]) -> object:
    """A drop that is the sum of what each layer in int8 costs."""

    def judge(layers: Layers) -> float:
        calls.append(layers)
        return sum(cost for name, cost in costs.items() if name not in layers)

    return judge


@given(st.lists(st.floats(0, 5), min_size=1, max_size=53), st.floats(0, 20))
def test_what_is_found_holds_the_limit_and_each_set_is_tried_once(costs: list[float], limit: float) -> None:
    by_name = dict(zip(NAMES, sorted(costs, reverse=True), strict=False))
    calls: list[Layers] = []
    found = smallest(list(by_name), additive(by_name, calls), limit, 1000)  # type: ignore[arg-type]
    assert found.reached
    assert not found.spent
    assert sum(cost for name, cost in by_name.items() if name not in found.layers) <= limit
    assert len(calls) == len(set(calls)) == found.trials
    if found.layers:  # ranked by true cost: no smaller set can do
        remaining = sorted(by_name.values(), reverse=True)[len(found.layers) - 1 :]
        assert sum(remaining) > limit


def test_one_bad_layer_is_found_in_few_trials() -> None:
    calls: list[Layers] = []
    found = smallest(NAMES, additive({NAMES[0]: 9.0}, calls), 1.0, 24)  # type: ignore[arg-type]
    assert (found.layers, found.trials) == ((NAMES[0],), 2)


def test_a_layer_that_only_ranks_high_is_left_out_again() -> None:
    calls: list[Layers] = []
    found = smallest(NAMES, additive({NAMES[5]: 3.0, NAMES[1]: 3.0}, calls), 1.0, 24)  # type: ignore[arg-type]
    assert set(found.layers) == {NAMES[1], NAMES[5]}


def test_nothing_to_do_is_one_trial() -> None:
    found = smallest(NAMES, lambda layers: 0.5, 1.0, 24)
    assert (found.layers, found.trials, found.reached) == ((), 1, True)


def test_what_can_not_be_reached_says_so_and_gives_the_best() -> None:
    found = smallest(NAMES[:8], lambda layers: 9.0 - len(layers), 0.5, 24)
    assert (found.reached, found.layers, found.spent) == (False, NAMES[:8], False)


def test_a_spent_budget_gives_the_best_so_far() -> None:
    found = smallest(NAMES, lambda layers: 60.0 - len(layers), 30.0, 4)
    assert (found.reached, len(found.layers), found.spent, found.trials) == (False, 4, True, 4)


@given(st.integers(0, 2**32), st.integers(1, 30))
def test_a_drop_of_any_shape_ends_within_the_budget(seed: int, budget: int) -> None:
    import random

    draw = random.Random(seed)
    found = smallest(NAMES, lambda layers: draw.uniform(-1, 5), 1.0, budget)
    assert found.trials <= budget
