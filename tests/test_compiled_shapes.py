# SPDX-License-Identifier: MIT
"""The compiled checks of a call's shapes, against what `ortops.shapes` says of models and `Operator.why_required`."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from in_process import c_function
from ortops.foreign.standard import standard_operators
from ortops.native import types
from ortops.native.constants import Constant, Memory, Several
from ortops.native.definitions import attribute_value, definition_of
from ortops.native.node import shapes as compiled_shapes
from ortops.native.structs import Struct, offset_of
from ortops.operators import BY_NAME, OPERATORS
from ortops.shapes import Axes
from ortops.spec import MAX_RANK, RANK, Attribute, Operator, Rule, Tensor, ordered

Lengths = Sequence[int | None]


@functools.cache
def function(name: str) -> Any:
    """A function of ``native.node.shapes``, which takes the addresses of a node and a call."""
    run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    return run(c_function(getattr(compiled_shapes, name)))


class _Guarded(Struct):
    """A call, and a number that nobody may change."""

    call: types.Call
    guard: int


_BEFORE_LENGTHS = offset_of(types.Call, "lengths")


class Call:
    """A node with checked attributes, and one call of it.

    Args:
        operator: the definition.
        attributes: the result of `Operator.check_attributes`.
        shapes: by name, the shape of each tensor that the call has, with None for an unknown length; None for an unknown
            rank. Of an output it does not matter.
        values: by name, the elements of inputs that are lengths.
    """

    def __init__(
        self,
        operator: Operator,
        attributes: Mapping[str, Any],
        shapes: Mapping[str, Lengths | None],
        values: Mapping[str, Sequence[int]],
    ) -> None:
        self.operator, self._memory = operator, Memory()
        node = dict.fromkeys(types.Node.fields) | {
            "definition": definition_of(operator),
            "first_type": 0,
            "label": 0,
            "attributes": [attribute_value(attribute, attributes[attribute.name]) for attribute in operator.attributes],
        }
        self._node = self._memory.address(Constant(types.Node, **node))
        self._guarded = _Guarded()
        self._guarded.guard = -2
        self._call: Any = self._guarded.call
        self._call.text_size, self._call.text[0] = 1, 255  # of an earlier error
        self._tensors = (*operator.inputs, *operator.outputs)
        for row, tensor in enumerate(self._tensors):
            if tensor.name in shapes:
                self._describe(row, shapes[tensor.name], values.get(tensor.name))

    @property
    def lengths(self) -> list[int]:
        """The copy of the elements that are lengths."""
        return list(self._call.lengths)

    def _describe(self, row: int, shape: Lengths | None, elements: Sequence[int] | None) -> None:
        tensor = self._call.tensors[row]
        tensor.type = 1
        tensor.rank = -1 if shape is None else len(shape)
        for i, length in enumerate(shape or ()):
            tensor.dims[i] = -1 if length is None else length
        tensor.address = 0 if elements is None else self._memory.address(Several("int64", elements))

    def infer(self) -> list[Lengths | None] | str:
        """The shapes of all outputs, or the error."""
        return self._run("infer_shapes") or [
            self._shape(row) for row in range(len(self.operator.inputs), len(self._tensors))
        ]

    def check_wanted(self) -> str | None:
        """The error, if there is one."""
        self._call.text_size = 0
        return self._run("check_wanted")

    def _shape(self, row: int) -> Lengths | None:
        tensor = self._call.tensors[row]
        if tensor.rank < 0:
            return None
        return tuple(None if length < 0 else length for length in tensor.dims[: tensor.rank])

    def _run(self, name: str) -> str | None:
        before = bytes(self._guarded)[:_BEFORE_LENGTHS]
        status = function(name)(self._node, ctypes.addressof(self._call))
        assert bytes(self._guarded)[:_BEFORE_LENGTHS] == before
        assert self._guarded.guard == -2
        assert status in (types.OK, types.INVALID)
        content = bytes(self._call.text[: self._call.text_size])
        return content.decode() if status == types.INVALID else None


ALL = (*OPERATORS, *standard_operators(22))
LONGEST = 2**63 - 1

SMALL = st.integers(0, 6)
LENGTH = SMALL | st.sampled_from([1, 2, 3]) | st.integers(0, LONGEST) | st.integers(LONGEST - 2, LONGEST)


@pytest.fixture(scope="module", autouse=True)
def _compile() -> None:
    function("infer_shapes")
    function("check_wanted")


def expected(
    operator: Operator,
    attributes: Mapping[str, Any],
    shapes: Mapping[str, Lengths | None],
    values: Mapping[str, Sequence[int]],
) -> list[Lengths | None] | str:
    """What Python says: the shapes of all outputs, or the error."""
    axes = Axes(operator, attributes)
    try:
        for tensor in operator.inputs:
            shape = shapes.get(tensor.name)
            if tensor.name not in shapes and not tensor.optional:
                return f"{tensor.name} is missing: {operator.name} requires it"
            if shape is not None:
                axes.bind_shape(tensor, shape)
                axes.bind_values(tensor, list(values.get(tensor.name, ())))
        return [axes.shape_of(tensor) for tensor in operator.outputs]  # type: ignore[misc]
    except ValueError as error:
        return str(error)


def _value(attribute: Attribute, rank: int) -> st.SearchStrategy[Any]:
    """Values that an attribute allows."""
    if attribute.type == "STRING":
        return st.sampled_from(attribute.choices)
    if attribute.type.startswith("INT"):
        least, largest = attribute.minimum or 0, LONGEST if attribute.maximum is None else attribute.maximum
        one: st.SearchStrategy[Any] = st.integers(least, min(least + 4, largest)) | st.integers(least, largest)
    elif attribute.positive:
        one = st.sampled_from([0.5, 1.0, 1.5, 2.0, 0.1]) | st.floats(1e-30, 1e30)
    else:
        one = st.floats(-1e30, 1e30)
    count = len(attribute.axes) or rank
    values = st.lists(one, min_size=count, max_size=count)
    return one if not attribute.is_list else values if attribute.axes else st.just([]) | values


class Problem:
    """The arguments of a call whose shapes agree."""

    def __init__(self, draw: Any, operator: Operator) -> None:
        self._draw = draw
        self.operator = operator
        self.rank = draw(st.integers(1, MAX_RANK))
        given = {one.name: draw(_value(one, draw(st.just(self.rank) | st.just(2)))) for one in operator.attributes}
        try:
            self.attributes = operator.check_attributes(given)
        except ValueError:  # a rule between attributes
            changed = {"minimum_samples_per_output": 1, "scales": [0.5] * self.rank}
            changed |= {one.name: [] for one in operator.attributes if one.is_per_axis and one.name != "scales"}
            known = {one.name for one in operator.attributes}
            self.attributes = operator.check_attributes(given | {k: v for k, v in changed.items() if k in known})
        self._lengths: dict[str, int] = {RANK: self.rank}
        for one in operator.attributes:
            if one.type == "INT":
                self._lengths[one.name] = self.attributes[one.name]
            self._lengths |= dict(zip(one.axes, self.attributes[one.name], strict=True)) if one.axes else {}
        for equation in operator.equations:
            product = self._length(equation.axis)
            for name in equation.by:
                product *= self._length(name)
            self._lengths[equation.of] = min(product, LONGEST)
        self.shapes: dict[str, list[int | None] | None] = {}
        self.values: dict[str, list[int]] = {}
        for tensor in operator.inputs:
            self._add(tensor)

    def _length(self, axis: int | str) -> int:
        if isinstance(axis, int):
            return axis
        return self._lengths.setdefault(axis, self._draw(LENGTH))

    def _add(self, tensor: Tensor) -> None:
        rank = self.rank if tensor.has_variable_rank else self._draw(st.sampled_from(tensor.ranks))
        self.shapes[tensor.name] = [self._length(axis) for axis in tensor.axes(rank)]
        if tensor.element_axes:
            self.values[tensor.name] = [self._length(axis) for axis in tensor.axes_of_elements(self.rank)]

    def mutate(self) -> None:
        """Change something, perhaps so that shapes disagree."""
        draw, name = self._draw, self._draw(st.sampled_from([tensor.name for tensor in self.operator.inputs]))
        shape, kind = self.shapes.get(name), self._draw(st.integers(0, 8))
        values = self.values.get(name)
        if kind == 0:
            self.shapes.pop(name, None)
            self.values.pop(name, None)
        elif shape is None:
            return
        elif kind == 1:
            self.values.pop(name, None)
            self.shapes[name] = None
        elif kind == 2:
            self.shapes[name] = draw(st.lists(LENGTH, max_size=8))
        elif kind == 3:
            shape.insert(draw(st.integers(0, len(shape))), draw(st.just(1) | LENGTH))
            del shape[8:]
        elif kind == 4 and shape:
            del shape[draw(st.integers(0, len(shape) - 1))]
        elif kind == 5 and values:
            values[draw(st.integers(0, len(values) - 1))] = draw(LENGTH | st.integers(-3, -1) | st.just(-(2**63)))
        elif kind == 6 and shape:
            shape[draw(st.integers(0, len(shape) - 1))] = None
        elif shape:
            shape[draw(st.integers(0, len(shape) - 1))] = draw(LENGTH)
        if values is not None and self.shapes.get(name) != [len(values)]:
            self.values.pop(name, None)  # there are no such elements


def _is_told(tensor: Tensor, shape: Lengths | None) -> Lengths | None:
    """What compiled code tells of an output's shape.

    It tells nothing of a rank that only the shape of another input gives, and of a length that does not fit in 64 bits.
    """
    if shape is None or len(shape) > max(MAX_RANK, len(tensor.shape)):
        return None
    return tuple(None if length is None or length >= 2**63 else length for length in shape)


@pytest.mark.parametrize(
    "operator", ALL, ids=lambda operator: f"{operator.domain}{operator.name}{len(operator.attributes)}"
)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_shapes_and_errors_are_those_of_python(operator: Operator, data: st.DataObject) -> None:
    problem = Problem(data.draw, operator)
    for _ in range(data.draw(st.integers(0, 3))):
        problem.mutate()
    wanted = expected(operator, problem.attributes, problem.shapes, problem.values)
    told = Call(operator, problem.attributes, problem.shapes, problem.values).infer()
    assert told == (wanted if isinstance(wanted, str) else list(map(_is_told, operator.outputs, wanted)))


def expected_wanted(operator: Operator, attributes: Mapping[str, Any], present: Sequence[str]) -> str | None:
    """What Python says of the tensors that a call has."""
    wanted = [tensor.name for tensor in operator.outputs if tensor.name in present]
    if operator.is_gradient and not wanted:
        return (
            f"{' and '.join(tensor.name for tensor in operator.outputs)} are left out: at least one output is required"
        )
    for tensor in operator.inputs if operator.is_gradient else ():
        reason = None if tensor.name in present else operator.why_required(tensor, attributes, wanted)
        if reason is not None:
            return f"{tensor.name} is missing: must be given for {reason}"
    return None


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_missing_tensors_of_gradients_are_those_of_python(operator: Operator, data: st.DataObject) -> None:
    attributes = Problem(data.draw, operator).attributes
    names = [tensor.name for tensor in (*operator.inputs, *operator.outputs)]
    present = [name for name in names if data.draw(st.booleans())]
    shapes: dict[str, Lengths | None] = dict.fromkeys(present)
    assert Call(operator, attributes, shapes, {}).check_wanted() == expected_wanted(operator, attributes, present)


def _error(operator: Operator, shapes: Mapping[str, Lengths], values: Mapping[str, Sequence[int]], **given: Any) -> Any:
    attributes = operator.check_attributes(given)
    found = Call(operator, attributes, shapes, values).infer()
    assert found == expected(operator, attributes, shapes, values)
    return found


def test_products_that_do_not_fit_in_64_bits_are_told_exactly() -> None:
    huge = {"output_height": LONGEST, "output_width": LONGEST - 1}
    ours: dict[str, Lengths] = {"rois": (1, 4), "batch_indices": (1,)}
    forward, gradient = BY_NAME["PSRoIAlign"], BY_NAME["PSRoIAlignGrad"]
    assert f"multiple of {LONGEST * (LONGEST - 1)} " in _error(forward, {"X": (1, LONGEST, 1, 1)} | ours, {}, **huge)
    assert _error(forward, {"X": (1, 0, 1, 1)} | ours, {}, **huge) == [(1, 0, LONGEST, LONGEST - 1)]
    shapes = {"dY": (1, LONGEST, LONGEST, LONGEST - 1), "x_shape": (4,)} | ours
    assert f"must be {LONGEST**2 * (LONGEST - 1)} (C of" in _error(gradient, shapes, {"x_shape": (1, LONGEST, 1, 1)})


def test_a_scale_must_not_make_an_axis_too_long() -> None:
    resample = BY_NAME["DmlResample"]
    assert _error(resample, {"InputTensor": (2**62 - 1, 1)}, {}, scales=[1.5, 1.0]) == [(int((2**62 - 1) * 1.5), 1)]
    scales = [1.0, float(np.float32(1.9999999))]
    assert "scales[1] = 2.0: must not" in _error(resample, {"InputTensor": (1, 2**62)}, {}, scales=[1.0, 2.0])
    assert isinstance(_error(resample, {"InputTensor": (1, 2**62)}, {}, scales=scales), list)


def test_elements_are_read_once() -> None:
    operator = BY_NAME["RoiAlignGrad"]
    shapes = {"dY": (1, 1, 1, 1), "rois": (1, 4), "batch_indices": (1,), "x_shape": (4,)}
    call = Call(operator, operator.check_attributes({}), shapes, {"x_shape": [3, 1, 5, 7]})
    assert call.infer() == [(3, 1, 5, 7), (1, 4)]
    assert call.lengths == [3, 1, 5, 7, 0, 0, 0, 0]


@pytest.mark.parametrize("name", ["RoiAlignGrad", "DmlRoiAlignGrad", "DmlResampleGrad"])
@pytest.mark.parametrize("element", [-1, -2, -(2**63)])
def test_elements_must_not_be_negative(name: str, element: int) -> None:
    operator = BY_NAME[name]
    sizes = {"1": 1, "num_rois": 1, "output_height": 2, "output_width": 2, RANK: 4}
    shapes = {
        tensor.name: [sizes.get(str(axis), 4) for axis in tensor.axes(tensor.ranks[-1])] for tensor in operator.inputs
    }
    error = _error(operator, shapes, {"x_shape": [4, 4, element, 4]})
    assert error == f"x_shape is {[4, 4, element, 4]}: x_shape[2] must be >= 0"


def test_elements_may_break_an_equation() -> None:
    x_shape = next(tensor for tensor in BY_NAME["PSRoIAlignGrad"].inputs if tensor.name == "x_shape")
    forward = BY_NAME["PSRoIAlign"]
    operator = replace(forward, inputs=(replace(x_shape, type="int64"), *forward.inputs))
    error = _error(operator, {"x_shape": (4,)}, {"x_shape": (1, 5, 8, 8)}, output_height=2, output_width=3)
    assert error == "x_shape is [1, 5, 8, 8]: C = 5 must be a multiple of 6 (output_height * output_width)"


def test_what_a_definition_cannot_tell_is_refused() -> None:
    roi_align = BY_NAME["RoiAlign_22"]
    odd = Rule(("mode",), lambda _: True, "", {})
    with pytest.raises(ValueError, match="RoiAlign_22 has a rule that compiled code does not know"):
        definition_of(replace(roi_align, rules=(odd,)))
    more = tuple(replace(tensor, name=f"{tensor.name}{i}") for i in range(3) for tensor in roi_align.inputs)
    with pytest.raises(ValueError, match="RoiAlign_22 has more tensors or axes than compiled code has room for"):
        definition_of(replace(roi_align, inputs=more))
    with pytest.raises(ValueError, match="compiled code cannot infer its outputs' shapes"):
        definition_of(replace(roi_align, shapes=lambda _shapes, _attributes: None))
    assert definition_of(replace(roi_align, rules=(ordered("output_height", "output_width"),)))
