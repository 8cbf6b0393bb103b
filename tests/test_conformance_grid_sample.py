# SPDX-License-Identifier: MIT
"""The reference of GridSample against ONNX's vectors, its error bounds, and its well-posed cases."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.backend.test.case import node

from conformance.case import Array, Case
from conformance.cases import grids
from conformance.compare import allowed_errors, compare
from conformance.expected_values import evaluated, reference
from conformance.fuzz.check import is_well_posed
from ortops.operators import OPERATORS
from ortops.operators.asked import BY_NAME, WITHOUT_KERNEL
from ortops.reference import evaluate
from suite_runs import small_case

MATRIX = [case for case in grids.cases() if "/matrix/" in case.id and case.element_type == "float"]
USERS = [case for case in grids.cases() if case.formula is not None]


def vectors() -> dict[str, Any]:
    """ONNX's vectors of GridSample, by name."""
    importlib.import_module("onnx.backend.test.case.node.gridsample")
    return {vector.name: vector for vector in node._NodeTestCases if "gridsample" in vector.name}  # noqa: SLF001


@pytest.mark.parametrize("name", vectors())
def test_the_reference_gives_onnxs_vectors(name: str) -> None:
    vector = vectors()[name]
    (operator,) = vector.model.graph.node
    given = {a.name: onnx.helper.get_attribute_value(a) for a in operator.attribute}
    attributes = {name: value.decode() if isinstance(value, bytes) else value for name, value in given.items()}
    for inputs, outputs in vector.data_sets:
        definition = BY_NAME["GridSample_22_5D" if inputs[0].ndim == 5 else "GridSample_22"]
        (y,) = evaluate(definition, inputs, attributes)
        assert y is not None
        # They are printed with four decimals, or computed in float32.
        np.testing.assert_allclose(y, outputs[0], rtol=0, atol=6e-5)


def test_an_operator_without_a_kernel_is_none_of_ortops() -> None:
    assert {operator.name for operator in WITHOUT_KERNEL}.isdisjoint(operator.name for operator in OPERATORS)
    assert all(operator.standard and not operator.is_gradient for operator in WITHOUT_KERNEL)


def moved(case: Case, factor: float) -> dict[str, Array]:
    """The answer to a case whose grid is off by a factor, up or down."""
    sign = np.random.default_rng(0).choice([-1, 1], case.inputs["grid"].shape)
    grid = case.inputs["grid"].astype(np.float64) * (1 + sign * factor)
    values = reference(case.definition, case.attributes, {**case.inputs, "grid": grid}, case.outputs)
    return {name: value.astype(case.dtype) for name, value in values.items()}


@pytest.mark.parametrize("case", MATRIX, ids=lambda case: case.id)
def test_a_grid_that_is_off_by_a_rounding_passes_and_by_a_thousandth_fails(case: Case) -> None:
    assert compare(case, moved(case, 2.0**-24))[0]
    assert compare(case, moved(case, 1e-3))[0] is ("/nearest_" in case.id)


@pytest.mark.parametrize("case", USERS, ids=lambda case: case.id)
def test_sizes_of_users_have_the_means_of_the_reference(case: Case) -> None:
    assert case.formula is not None
    small = case.formula.smaller()
    assert 80 < case.formula.work / small.work < 125
    inputs = {name: small.tensor(name) for name in small.inputs}
    y = evaluated(case.definition, {}, inputs, ["Y"])["Y"]
    np.testing.assert_allclose(small.tensor("Y"), y, rtol=0, atol=1e-3)
    assert small.tensor("Y").shape == y.shape == small.outputs["Y"].shape
    assert np.std(y) > 20 * float(small.error_terms("Y", 2.0**-24).coordinate_error)
    small_one = Case(case.id, case.source, case.operator, {}, inputs, ("Y",), "")
    assert compare(small_one, {"Y": small.tensor("Y")})[0]
    assert allowed_errors(small_one)["Y"].max() < 1


def at(x: list[float], pixels: list[float], **attributes: Any) -> Case:
    """A case of one row in float, at these numbers of the grid."""
    grid = np.array([[[[g, 0.0] for g in pixels]]], np.float32)
    return small_case("GridSample_22", None, attributes, np.array([[[x]]], np.float32), grid)


ROW = [1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (at(ROW, [0.123], mode="linear"), True),
        # A half is exact in numbers of few bits, and else rounding decides.
        (at(ROW, [0.0, 0.5], mode="nearest"), True),
        (at([*ROW, 16.0, 3.0], [1 / 3 - 1e-8], mode="nearest"), False),
        (at([*ROW, 16.0, 3.0], [0.3], mode="nearest"), True),
        # Halves beyond the edges may be rounded or reflected first; about centres both agree.
        (at(ROW, [-1.5], mode="nearest", padding_mode="reflection"), False),
        (at([*ROW, 16.0], [-1.75], mode="nearest", padding_mode="reflection", align_corners=1), True),
        # What has no rule: NaN, and the reflection of infinity.
        (at(ROW, [math.nan]), False),
        (at(ROW, [math.inf], padding_mode="reflection"), False),
        (at(ROW, [math.inf], padding_mode="border"), True),
        # A pixel of infinity or NaN with the weight 0.
        (at([1.0, 2.0, math.inf, 8.0], [-0.25]), False),
        (at([1.0, 2.0, 4.0, math.nan], [0.123]), True),
    ],
)
def test_a_case_is_well_posed_unless_rounding_decides_or_there_is_no_rule(case: Case, expected: bool) -> None:
    assert is_well_posed(case) is expected
