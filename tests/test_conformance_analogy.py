# SPDX-License-Identifier: MIT
"""A family by analogy: its reference and the operator to which it is similar agree, and so do the bounds and pictures."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest

from conformance.case import Case
from conformance.cases import collect
from conformance.compare import allowed_errors
from conformance.error_terms import unit_roundoff
from conformance.expected_values import expected_outputs
from conformance.explain.explanation import explain
from conformance.families import family_of
from conformance.families.analogy import FamilyByAnalogy
from conformance.families.ps_roi_align import FAMILY, repeated
from conformance.fuzz.strategy import some_cases
from conformance.run import Answer, judge

OWN = tuple(case for case in collect() if isinstance(family_of(case.definition), FamilyByAnalogy))
VALID = tuple(case for case in OWN if not case.expects_error and case.formula is None)


def random() -> Iterator[Case]:
    """Random cases that are valid."""
    for case in some_cases(5, 80, ("PSRoIAlign", "PSRoIAlignGrad")):
        with contextlib.suppress(TypeError, ValueError):
            expected_outputs(case)
            yield case


def of_analogy(case: Case) -> dict[str, np.ndarray]:
    """What follows from the reference of the other operator."""
    family = family_of(case.definition)
    assert isinstance(family, FamilyByAnalogy)
    places = family.places(case)
    outputs = expected_outputs(family.other(case))
    return {name: places[name].taken(y) if name in places else y for name, y in outputs.items()}


@pytest.mark.parametrize("case", VALID[::8], ids=lambda case: case.id)
def test_the_reference_and_the_analogy_agree(case: Case) -> None:
    assert_agreement(case)


def test_the_reference_and_the_analogy_agree_on_random_cases() -> None:
    for case in random():
        assert_agreement(case)


def assert_agreement(case: Case) -> None:
    computed = expected_outputs(dataclasses.replace(case, expected=None))
    by_analogy = of_analogy(case)
    for name, y in computed.items():
        # Only drois may be summed in another order.
        np.testing.assert_allclose(by_analogy[name], y, rtol=1e-12 if name == "drois" else 0, atol=1e-12, strict=True)


def test_every_fault_of_the_other_operator_is_one_but_those_of_its_modes() -> None:
    faults: dict[str, set[str]] = defaultdict(set)
    for case in collect():
        if case.expects_error and case.operator not in ("RoiAlign_10", "RoiAlign_16"):
            faults[case.definition.family].add("/".join([str(case.definition.is_gradient), case.id.split("/")[2]]))
    of_modes = {fault for fault in faults["roi_align"] if re.search("mode_|max", fault)}
    assert faults["roi_align"] - of_modes <= faults[FAMILY.name]
    assert faults[FAMILY.name] - faults["roi_align"] == {"False/channels_not_whole", "True/channels_not_whole"}


def test_a_bound_is_that_of_the_same_element_of_the_other_operator() -> None:
    case = next(case for case in VALID if case.id == "ps_roi_align/matrix/images_and_channels/avg/half_pixel/float")
    allowed, y = allowed_errors(case)["Y"], expected_outputs(case)["Y"]
    assert allowed.shape == y.shape
    assert allowed.min() > 0
    assert allowed.max() < 500 * unit_roundoff(case.dtype) * np.abs(case.inputs["X"]).max()


def test_an_explanation_shows_the_element_of_the_other_operator() -> None:
    case = next(case for case in VALID if case.id == "ps_roi_align/matrix/images_and_channels/avg/half_pixel/float")
    y = expected_outputs(case)["Y"].astype(np.float32)
    y[1, 1, 0, 1] += 1
    bins = int(np.prod(y.shape[2:]))
    answer = Answer("outputs", {"Y": y})
    explanation = explain(case, answer, judge(case, answer))
    assert explanation.case is case
    assert f"channel {bins + 1}" in explanation.heading
    (values,) = (table for table in explanation.tables if table.marked is not None and table.title.startswith("Y"))
    assert [row[0] for row in values.rows if abs(float(row[-1])) > 0.5] == ["[1, 1, 0, 1]"]


def test_a_call_in_another_mode_has_no_analogy() -> None:
    inputs = {"X": np.ones((1, 2, 3, 4))}
    assert repeated({"mode": "max"}, inputs) is None
    changes = repeated({"output_height": 2, "output_width": 3}, inputs)
    assert changes is not None
    assert changes["X"](inputs["X"]).shape == (1, 12, 3, 4)
