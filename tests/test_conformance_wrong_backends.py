"""The suite tells right from wrong: each of the faults fails a case, and the same code without a fault none."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conformance.backends import MissingBackendError, load
from conformance.backends.external import OnnxBackend
from conformance.coverage.measure import OFFICIAL, decisive, failing
from conformance.model import build
from conformance.vectors import collect
from conformance.wrong import CONTROLS, FAULTS, Family
from conformance.wrong.base import Faults
from conformance.wrong.sizes import add_sizes
from large_cases import large_cases

OF_ROI_ALIGN = [fault for fault in FAULTS if fault.operators == "roi_align"]


@pytest.mark.parametrize("operators", CONTROLS)
@pytest.mark.slow
def test_a_second_implementation_passes_every_case(operators: str) -> None:
    # Types and opsets differ in rounding and defaults: all cases of float, and every fourth one of the others.
    own = [case for case in collect() if case.definition.family == operators]
    cases = [case for i, case in enumerate(own) if case.element_type == "float" or i % 4 == 0]
    assert [case.id for case in failing(CONTROLS[operators], cases)] == []


def test_every_case_is_of_a_family_that_has_a_second_implementation() -> None:
    assert {case.definition.family for case in collect()} == set(CONTROLS)


@pytest.mark.parametrize("operators", ["roi_align", "dml_roi_align", "roi_align_rotated"])
def test_a_second_implementation_passes_large_cases(operators: str) -> None:
    assert [case.id for case in failing(CONTROLS[operators], large_cases(operators))] == []


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("operators", ["roi_align", "dml_roi_align", "roi_align_rotated"])
def test_a_large_case_catches_a_fault_whatever_the_size_from_which_on_it_is_wrong(operators: str, seed: int) -> None:
    faults = add_sizes(Faults(CONTROLS[operators]), seed, has_maxima=operators != "roi_align_rotated")
    of_gradients = [case for case in large_cases(operators) if case.id.startswith("g/")]
    missed = [
        fault.__doc__
        for fault in faults
        if not any(failing(fault, of_gradients if fault.of_gradients_alone else large_cases(operators)))
    ]
    assert missed == []


def test_faults_of_sizes_are_drawn_from_a_seed() -> None:
    words = [[str(fault.__doc__) for fault in add_sizes(Faults(CONTROLS["roi_align"]), seed)] for seed in (1, 1, 2)]
    assert words[0] == words[1]
    assert words[0] != words[2]
    drawn = [int(number) for line in words[0] for number in re.findall(r"(?:beyond|block of) (\d+)", line)]
    assert len(drawn) >= 10
    assert all(4 <= number <= 65504 for number in drawn)


def test_a_prepared_model_runs_inputs_of_other_lengths_one_after_the_other() -> None:
    # Of the same model: attributes alike, lengths not.
    cases = [case for case in large_cases("roi_align") if case.id.startswith("f/large/channels")]
    assert len({case.inputs["X"].shape for case in cases}) == len(cases) == 2
    prepared = CONTROLS["roi_align"].prepare(build(replace(cases[0], named_axes=frozenset({("X", 1)})), "standard"))
    for case in (*cases, *cases):
        (y,) = prepared.run([case.inputs[name] for name in ("X", "rois", "batch_indices")])
        (alone,) = CONTROLS["roi_align"].prepare(build(case, "standard")).run(list(case.inputs.values()))
        np.testing.assert_array_equal(y, alone)


def test_inputs_may_be_constants_of_the_model() -> None:
    case = large_cases("roi_align")[0]
    constant = replace(case, initializers=("rois", "batch_indices"))
    (y,) = CONTROLS["roi_align"].prepare(build(constant, "standard")).run([case.inputs["X"]])
    (expected,) = CONTROLS["roi_align"].prepare(build(case, "standard")).run(list(case.inputs.values()))
    np.testing.assert_array_equal(y, expected)


def test_each_fault_is_another_by_name_and_in_words() -> None:
    assert len(FAULTS) >= 380
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert len({(fault.operators, fault.description) for fault in FAULTS}) == len(FAULTS)


def test_each_fault_is_told_in_a_line() -> None:
    told = [fault.description for fault in FAULTS]
    assert [words for words in told if not re.fullmatch(r"[^\n]{1,120}[^.]\.", words)] == []


@pytest.mark.parametrize("operators", CONTROLS)
def test_every_family_of_faults_is_met_by_every_family_of_operators(operators: str) -> None:
    assert {fault.family for fault in FAULTS if fault.operators == operators} == set(Family)


def test_every_fault_can_be_named_as_a_backend() -> None:
    assert [fault for fault in FAULTS if not isinstance(load(f"conformance.wrong.{fault.name}"), OnnxBackend)] == []


@pytest.mark.parametrize("operators", CONTROLS)
def test_what_is_no_fault_cannot_be_named_as_a_backend(operators: str) -> None:
    with pytest.raises(MissingBackendError, match="NoSuchFault"):
        load(f"conformance.wrong.{operators}:NoSuchFault")


def test_a_fault_is_made_once_and_changes_steps_that_there_are() -> None:
    fault = Faults(CONTROLS["roi_align"])
    fault("Once", "It is made once.")()
    with pytest.raises(ValueError, match="Once is made twice"):
        fault("Once", "It is made twice.")()
    with pytest.raises(AttributeError, match="no_such_step"):
        fault("Other", "It changes nothing.")(no_such_step=lambda _, up: up())


def test_the_readme_says_how_few_the_official_vectors_catch() -> None:
    official = tuple(case for case in collect() if case.family == OFFICIAL)
    caught = [fault for fault in OF_ROI_ALIGN if next(failing(fault.backend, decisive(fault, official)), None)]
    readme = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
    said = f"{len(FAULTS)} wrong implementations; ONNX's own vectors catch {len(caught)} of the {len(OF_ROI_ALIGN)}"
    assert said in " ".join(readme.split())
