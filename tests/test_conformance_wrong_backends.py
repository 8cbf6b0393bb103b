"""The suite tells right from wrong: each of the faults fails a case, and the same code without a fault none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.backends import MissingBackendError, load
from conformance.backends.external import External
from conformance.coverage.facts import decisive
from conformance.coverage.measure import failing
from conformance.coverage.summary import of_onnx
from conformance.vectors import collect
from conformance.wrong import CONTROLS, FAULTS
from conformance.wrong.family import Family

OF_ROI_ALIGN = [fault for fault in FAULTS if fault.operators == "roi_align"]


@pytest.mark.parametrize("operators", CONTROLS)
def test_a_second_implementation_passes_every_case(operators: str) -> None:
    cases = [case for case in collect() if case.definition.family == operators]
    assert [case.id for case in failing(CONTROLS[operators], cases)] == []


def test_every_case_is_of_a_family_that_has_a_second_implementation() -> None:
    assert {case.definition.family for case in collect()} == set(CONTROLS)


def test_each_fault_is_another_by_name_and_in_words() -> None:
    assert len(FAULTS) >= 300
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert len({(fault.operators, fault.description) for fault in FAULTS}) == len(FAULTS)


def test_each_fault_is_told_in_a_line() -> None:
    told = [fault.description for fault in FAULTS]
    assert [words for words in told if not re.fullmatch(r"[^\n]{1,120}[^.]\.", words)] == []


@pytest.mark.parametrize("operators", CONTROLS)
def test_every_family_of_faults_is_met_by_every_family_of_operators(operators: str) -> None:
    assert {fault.family for fault in FAULTS if fault.operators == operators} == set(Family)


def test_every_fault_can_be_named_as_a_backend() -> None:
    assert [fault for fault in FAULTS if not isinstance(load(f"conformance.wrong.{fault.name}"), External)] == []


@pytest.mark.parametrize("operators", CONTROLS)
def test_what_is_no_fault_cannot_be_named_as_a_backend(operators: str) -> None:
    with pytest.raises(MissingBackendError, match="NoSuchFault"):
        load(f"conformance.wrong.{operators}:NoSuchFault")


def test_the_readme_says_how_few_the_official_vectors_catch() -> None:
    official = of_onnx(collect())
    caught = [fault for fault in OF_ROI_ALIGN if next(failing(fault.backend, decisive(fault, official)), None)]
    readme = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
    said = f"{len(FAULTS)} wrong implementations; ONNX's own vectors catch {len(caught)} of the {len(OF_ROI_ALIGN)}"
    assert said in " ".join(readme.split())
