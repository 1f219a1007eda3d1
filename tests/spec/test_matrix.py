from __future__ import annotations

from pathlib import Path

from edgeq.spec.matrix import matrix
from edgeq.spec.names import BACKENDS, SCENARIOS, SCHEMES, STUDY_SCENARIOS
from edgeq.spec.schemes import as_markdown, meaning


def test_the_studys_matrix_is_whole() -> None:
    cells = [plan.cell for plan in matrix(["a", "b", "c"], BACKENDS, SCHEMES, STUDY_SCENARIOS)]
    assert len(cells) == len(set(cells)) == 3 * 4 * 4 * 3


def test_a_cell_that_can_not_be_says_why() -> None:
    planned = matrix(["a"], ["tflite"], ["fp32"], SCENARIOS)
    reasons = {plan.cell.scenario: plan.reason for plan in planned}
    assert reasons["server"] is not None
    assert reasons["server"].code == "not-offered"
    assert all(reasons[scenario] is None for scenario in STUDY_SCENARIOS)


def test_null_has_no_model_and_no_scheme() -> None:
    planned = matrix(["a", "b"], ["null"], SCHEMES, STUDY_SCENARIOS)
    assert [str(plan.cell) for plan in planned] == [f"none/null/none/{scenario}" for scenario in STUDY_SCENARIOS]


def test_every_scheme_has_a_meaning_in_every_framework() -> None:
    for backend in BACKENDS:
        for scheme in SCHEMES:
            found = meaning(backend, scheme)
            assert found.stored
            assert found.computed


def test_the_page_of_schemes_is_the_codes_table(repo: Path) -> None:
    page = repo / "docs" / "schemes.md"
    assert page.read_text(encoding="utf-8") == as_markdown(), "run: python -m edgeq.spec.schemes > docs/schemes.md"
