# SPDX-License-Identifier: MIT
"""The suite tells right from wrong: each mutant fails a case, and without its mistake it fails none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import catching_cases
import right_engines
from catching_cases import candidates, decisive, failing, recorded
from conformance.backends import MissingBackendError, load
from conformance.backends.external import OnnxBackend
from conformance.case import Basis, Case
from conformance.cases import collect
from conformance.families import all_mutants, family_of
from conformance.mutants.base import Category, Model, Mutant, Table, edit, with_replaced
from docs.rules import lives, rule_of
from ortops.operators.asked import OPERATORS
from ortops.reference import sampling

FAMILIES = tuple(dict.fromkeys(operator.family for operator in OPERATORS))
MUTANTS = all_mutants()
SMALL = 2**13
"""Bytes of the inputs of a case that takes little time."""
FEW_SAMPLES = 300
"""Samples of one."""


def of_family(family: str) -> list[Mutant]:
    return [mutant for mutant in MUTANTS if mutant.family == family]


def without_mistake(family: str) -> type[Model]:
    return type("Right", (Model,), {"FAMILY": family})


@pytest.mark.parametrize("family", FAMILIES)
def test_every_mutant_fails_a_case(family: str) -> None:
    by_id = {case.id: case for case in collect() if case.definition.family == family}
    # A default run counts it, but for the mutants that break a rule of this project alone.
    cases = {
        m: candidates(m, tuple(by_id[i] for i in [recorded().get(m.name)] if i in by_id)) for m in of_family(family)
    }
    passed = [mutant.name for mutant, tried in cases.items() if not any(failing(mutant.backend, tried))]
    assert passed == [], "write catching_cases.json anew: python tests/catching_cases.py"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_without_a_mistake_passes(family: str) -> None:
    caught = set(recorded().values())
    cases = [c for c in collect() if c.definition.family == family and c.id in caught and "rois_1025" not in c.id]
    assert len(cases) > 15
    assert [case.id for case in failing(without_mistake(family), cases)] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "name", "step"),
    [
        pytest.param(family, name, step, marks=pytest.mark.weekly if step == 1 or family == "dml_roi_align" else ())
        for family, engines in right_engines.ENGINES.items()
        for name in engines
        for step in ((7,) if "roi_align" in family else (7, 1))
    ],
)
def test_no_order_of_sums_and_no_rounding_that_is_allowed_fails(family: str, name: str, step: int) -> None:
    right = type(name, (Model,), {"FAMILY": family, "STEPS": right_engines.ENGINES[family][name]})
    judged = [c for c in collect() if c.definition.family == family and not c.expects_error and c.formula is None]
    if (family, name) in right_engines.BY_DEFAULT:
        judged = [case for case in judged if case.basis is not Basis.OURS]
    few = [c for c in judged if step == 1 or (c.nbytes < SMALL and family_of(c.definition).work(c) < FEW_SAMPLES)]
    # At the borders all of them, and in every other group some of each type.
    borders = "/edge/", "/values/", "/published/"
    cases = [c for i, c in enumerate(few) if i % step == 0 or any(group in c.id for group in borders)]
    assert len(cases) > 200
    assert [case.id for case in failing(right, cases)] == []


def counted_by_default(mutant: Mutant, number: int) -> list[Case]:
    """About so many small cases from everywhere that a default run counts."""
    cases = [case for case in decisive(mutant, collect()) if case.basis is not Basis.OURS]
    small = [case for case in cases if case.nbytes < SMALL]
    return small[:: max(len(small) // number, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [15, pytest.param(60, marks=pytest.mark.weekly)])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_default_run_passes_the_mutants_of_a_rule(family: str, number: int) -> None:
    of_a_rule = [mutant for mutant in of_family(family) if mutant.name in lives()]
    failed = {m.name: next(failing(m.backend, counted_by_default(m, number)), None) for m in of_a_rule}
    assert {name: case.id for name, case in failed.items() if case} == {}


def test_every_case_of_this_project_alone_has_a_rule_and_the_mutants_of_a_rule_exist() -> None:
    assert {case.id for case in collect() if case.basis is Basis.OURS and rule_of(case) is None} == set()
    assert lives().keys() <= {mutant.name for mutant in MUTANTS}


def test_mutants_differ_in_description_and_are_of_every_category() -> None:
    assert len({(mutant.family, mutant.description) for mutant in MUTANTS}) == len(MUTANTS)
    with_gradients = {operator.family for operator in OPERATORS if operator.is_gradient}
    assert {(m.family, m.category) for m in MUTANTS} == {
        (family, category)
        for family in FAMILIES
        for category in Category
        if category is not Category.GRADIENTS or family in with_gradients
    }


def test_a_mutant_can_be_named_as_a_backend() -> None:
    assert isinstance(load("conformance.families.roi_align.mutants:NoHalfPixel"), OnnxBackend)
    with pytest.raises(MissingBackendError, match="NoSuchMutant"):
        load("conformance.families.roi_align.mutants:NoSuchMutant")


def test_a_mutant_has_one_row_and_changes_functions_of_the_reference() -> None:
    table = Table()
    table.add(Category.TYPES, "Once: It is made once.", {}, "Once: It is made twice.", {})
    with pytest.raises(ValueError, match="roi_align: two mutants are called Once: names must be unique"):
        table.of("roi_align")
    with pytest.raises(ValueError, match=r"not functions of ortops\.reference: .*replace"):
        with_replaced({replace: replace})
    with pytest.raises(ValueError, match="start_of: must have the text 'r1' once"):
        with_replaced(edit(sampling.start_of, "r1", "r2"))

    for spaced in ("-  0.5", "- (\n0.5)"):
        with pytest.raises(ValueError, match=r"start_of: the edit .* must change more than lines and spaces"):
            with_replaced(edit(sampling.start_of, "- 0.5", spaced))


def test_a_mutant_that_no_case_catches_is_named_with_the_case_of_another_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = [m for f in FAMILIES for m in of_family(f) if m.short_name == "TieToTheLast"][:2]
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({second.name: recorded()[second.name]}), "utf-8")
    official = tuple(case for case in collect() if case.group == "roi_align_grad/official")
    monkeypatch.setattr(catching_cases, "FILE", file)
    monkeypatch.setattr(catching_cases, "recorded", lambda: json.loads(file.read_text("utf-8")))
    monkeypatch.setattr(catching_cases, "collect", lambda: official)
    monkeypatch.setattr(catching_cases, "all_mutants", lambda: (replace(first, steps={}), second))
    assert catching_cases.main([first.family]) == 1
    due = f"not caught: {first.name}; {second.family} catches it by case {recorded()[second.name]}\n"
    assert capsys.readouterr().out == due
    assert json.loads(file.read_text("utf-8")) == {second.name: recorded()[second.name]}
    with pytest.raises(SystemExit, match="no family roi_aline: must be one of dml_resample, "):
        catching_cases.main(["roi_aline"])


@pytest.mark.slow
def test_the_readme_says_how_few_the_official_vectors_catch() -> None:
    official = tuple(case for case in collect() if case.group == "roi_align/official")
    mutants = of_family("roi_align")
    caught = [mutant for mutant in mutants if next(failing(mutant.backend, decisive(mutant, official)), None)]
    readme = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
    said = f"ONNX's own vectors reject {len(caught)} of the {len(mutants)} wrong implementations of RoiAlign"
    assert said in " ".join(readme.split())
