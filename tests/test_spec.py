# SPDX-License-Identifier: MIT
"""Definitions of operators as data."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

import ortops
from ortops.operators import BY_NAME
from ortops.operators.roi_align import ROI_ALIGN_22
from ortops.spec import Attribute, Operator, Rule, Tensor


@pytest.mark.parametrize("opset", [10, 16, 22])
def test_roi_align_has_the_attributes_defaults_and_types_of_onnx(opset: int) -> None:
    ours, onnxs = BY_NAME[f"RoiAlign_{opset}"], onnx.defs.get_schema("RoiAlign", opset)
    defaults = {a.name: onnx.helper.get_attribute_value(a.default_value) for a in onnxs.attributes.values()}
    defaults = {name: value.decode() if isinstance(value, bytes) else value for name, value in defaults.items()}
    assert {a.name: a.default for a in ours.attributes} == defaults
    for our, their in zip((*ours.inputs, *ours.outputs), (*onnxs.inputs, *onnxs.outputs), strict=True):
        assert our.name == their.name
        assert {f"tensor({name})" for name in ours.element_types(our)} == set(their.types)
    assert ours.standard == ("RoiAlign", onnxs.since_version)


def test_opset_10_means_output_half_pixel() -> None:
    assert BY_NAME["RoiAlign_10"].check_attributes({})["coordinate_transformation_mode"] == "output_half_pixel"
    with pytest.raises(TypeError, match="RoiAlign_10 has no attribute coordinate_transformation_mode"):
        BY_NAME["RoiAlign_10"].check_attributes({"coordinate_transformation_mode": "half_pixel"})


def test_a_default_must_keep_the_rule() -> None:
    with pytest.raises(ValueError, match="size = 0: must be >= 1"):
        Attribute("size", "INT", 0, minimum=1)


@pytest.mark.parametrize("value", [-(2**63), 2**63 - 1, np.int64(-(2**63)), np.uint64(2**63 - 1), 0])
def test_an_int_attribute_has_every_int64(value: Any) -> None:
    assert Attribute("a", "INT").check(value) == value
    assert Attribute("a", "INTS", any_length=True).check([value]) == (value,)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, np.uint64(2**64 - 1)])
def test_an_int_attribute_beyond_int64_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^a = .*: must fit in 64 bits$"):
        Attribute("a", "INT").check(value)


def test_a_float_attribute_has_infinities_and_nan_unless_its_rule_excludes_them() -> None:
    for value in (math.inf, -math.inf, math.nan):
        assert np.array_equal(Attribute("a", "FLOAT").check(value), value, equal_nan=True)
        for ruled in (Attribute("a", "FLOAT", finite=True), Attribute("a", "FLOAT", positive=True)):
            with pytest.raises(ValueError, match=r"a = .*: must be finite"):
                ruled.check(value)
    assert Attribute("a", "FLOAT").check(1e39) == math.inf  # as ONNX stores it
    with pytest.raises(ValueError, match=r"a = 10+: must fit in 64 bits"):
        Attribute("a", "FLOAT").check(10**400)


def test_a_rule_names_the_bounds_that_there_are() -> None:
    for bounds, rule in (((1, None), ">= 1"), ((None, 2), "<= 2"), ((1, 2), ">= 1 and <= 2")):
        assert Attribute("a", "INT", minimum=bounds[0], maximum=bounds[1]).rule == f"must be {rule}"


def test_an_attribute_may_depend_on_another() -> None:
    few = Rule(
        ("mode", "sampling_ratio"),
        lambda values: values[0] == "avg" or values[1] <= 8,
        "sampling_ratio = {sampling_ratio}: must be <= 8 for mode = {mode!r}",
        {"mode": "max", "sampling_ratio": 9},
    )
    limited = replace(ROI_ALIGN_22, rules=(few,))
    assert limited.check_attributes({"mode": "avg", "sampling_ratio": 9})["sampling_ratio"] == 9
    with pytest.raises(ValueError, match=r"^sampling_ratio = 9: must be <= 8 for mode = 'max'$"):
        limited.check_attributes(few.broken)
    with pytest.raises(ValueError, match=r"RoiAlign_22: a rule has \['ratio'\]: must be attributes"):
        replace(ROI_ALIGN_22, rules=(replace(few, attributes=("mode", "ratio")),))


def test_a_definition_with_an_unknown_axis_or_type_is_refused() -> None:
    def operator(output: Tensor) -> Operator:
        inputs = (Tensor("x", "T", ("N",)),)
        return Operator("Op", "op", "op", "", (), inputs, (output,), {"T": ("float",)})

    operator(Tensor("y", "T", ("N", 2)))
    with pytest.raises(ValueError, match=r"no input or attribute gives axis \['M'\] of y"):
        operator(Tensor("y", "T", ("M",)))
    with pytest.raises(ValueError, match="y has type 'U'"):
        operator(Tensor("y", "U", ("N",)))
    with pytest.raises(ValueError, match=r"\['x', 'x'\] repeat a name"):
        Operator("Op", "op", "op", "", (), (Tensor("x", "T", ()), Tensor("x", "T", ())), (), {"T": ("float",)})


@pytest.mark.parametrize("operator", ortops.OPERATORS, ids=lambda operator: operator.name)
def test_every_operator_says_what_it_computes_and_what_defines_it(operator: Operator) -> None:
    assert operator.doc.endswith(".")
    assert "https://" in operator.source
    names = [tensor.name for tensor in operator.outputs]
    if not operator.is_gradient:
        names += [tensor.name for tensor in operator.inputs] + [attribute.name for attribute in operator.attributes]
    assert [name for name in names if name not in operator.formula] == []
    lines = operator.formula.split("\n")
    assert operator.formula.isascii()
    assert lines == [line.rstrip() for line in operator.formula.strip().splitlines()]
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("operator", ortops.OPERATORS, ids=lambda operator: operator.name)
def test_every_attribute_and_tensor_is_described_by_sentences(operator: Operator) -> None:
    docs = {attribute.name: attribute.doc for attribute in operator.attributes}
    docs |= {tensor.name: tensor.doc for tensor in (*operator.inputs, *operator.outputs)}
    assert {name: doc for name, doc in docs.items() if not doc.endswith(".") or len(doc.split()) < 5} == {}
