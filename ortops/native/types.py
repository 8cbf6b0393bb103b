# SPDX-License-Identifier: MIT
"""What Python and compiled code share of a call: its tensors and its error, its node, and the definition of its operator.

A text is the address of a C string in UTF-8. Rules and other messages that several values would determine are texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias

from ortops.native.elements import INTERRUPTED as INTERRUPTED  # noqa: PLC0414 - a result of calls, too
from ortops.native.elements import OUT_OF_MEMORY as OUT_OF_MEMORY  # noqa: PLC0414
from ortops.native.elements import Address
from ortops.native.kernels.functions import Driver
from ortops.native.structs import POINTER, Byte, Struct, Union

Text: TypeAlias = int

Compute: TypeAlias = Address[Callable[["Node", "Call"], int]]

MAX_DIMS = 8
"""The most dimensions that are stored for a tensor, enough to refuse a tensor with more."""

MAX_TENSORS = 9
"""The most inputs and outputs of an operator together."""

MAX_RANK = 4
"""The largest rank of a tensor of variable rank, and the most values of an attribute (`spec.MAX_RANK`)."""

MAX_AXES = 16
"""The most named axes."""

TEXT_BYTES = 2048

NONE = -1
"""The number of an attribute, an input or an axis that does not exist."""

OK, INVALID, FAILED = 0, 2, 3
"""A compiled call's statuses, in addition to OUT_OF_MEMORY and INTERRUPTED.

INVALID: the call has an error text.
FAILED: ONNX Runtime failed, with `status`.
INTERRUPTED: a signal handler raised an exception, which is saved for the thread (`exceptions`).
"""

BUFFERS_FOR_NONE, BUFFERS_FOR_OMITTED, BUFFERS_FOR_ALL = range(3)
"""Which outputs an entry fills in temporary buffers: none; those that a node leaves out, which are absent otherwise; or all,
since the entry sets their lengths."""

INT, INTS, FLOAT, FLOATS, STRING = 1, 2, 3, 4, 5
ATTRIBUTE_TYPES = {"INT": INT, "INTS": INTS, "FLOAT": FLOAT, "FLOATS": FLOATS, "STRING": STRING, "STRINGS": 6}
"""Attribute types, as OrtOpAttrType."""

ASCENDING, ONE_GIVEN = 0, 1
"""The kinds of rules between attributes.

ASCENDING: two numbers a and b; the error is "a = 3: must be <= b = 2".
ONE_GIVEN: lists, one of which must have values; the error is "a and b are empty: at least one must have values".
"""


class Tensor(Struct):
    """A tensor of a call."""

    address: int  # of its elements; 0 if they are unknown, as in a model's shape inference
    type: int  # of its elements, as ONNX's TensorProto.DataType; 0 for an absent tensor
    rank: int  # -1 if it is unknown
    dims: Annotated[list[int], MAX_DIMS]  # -1 if one is unknown


class Call(Struct):
    """A call of a node."""

    runner: int  # of tasks (`compute.runner_on`); 0 in a model's shape inference
    context: int  # what the runner gets
    status: int  # the OrtStatus if ONNX Runtime failed
    lengths: Annotated[list[int], MAX_DIMS]  # a copy of an input's elements that are lengths (`Tensor.element_axes`)
    tensors: Annotated[list[Tensor], MAX_TENSORS]  # the inputs of the definition, then its outputs
    text_size: int  # of an error's text (`messages`), without the zero byte at its end
    text: Annotated[list[Byte], TEXT_BYTES]


class Values(Union):
    """An attribute's values."""

    ints: Annotated[list[int], MAX_RANK]  # or a string's number among the choices
    floats: Annotated[list[float], MAX_RANK]
    elsewhere: int  # the address of the values of a list of any length


class Attribute(Struct):
    """The number of an attribute's values, and these. A number or a string has one; an empty list has none."""

    count: int
    values: Values


class Axis(Struct):
    """A named axis. The axes of a tensor with variable rank have consecutive numbers."""

    name: Text
    attribute: int  # the number of the attribute that gives the length, or NONE
    value: int  # the index of its value
    source: Text  # the attribute in errors


class Equation(Struct):
    """An equation (`spec.Quotient`): axis `part` is axis `whole` divided by all axes in `divisors`."""

    part: int
    whole: int
    product: Text  # of the divisors' names
    source: Text  # the equation in errors
    divisor_count: int
    divisors: Annotated[list[int], 2]


class TypeVariable(Struct):
    """A type variable, or a tensor's own type: the allowed element types as ONNX's TensorProto.DataType."""

    count: int
    types: Annotated[list[int], 15]


class AttributeRule(Struct):
    """A rule between attributes: its kind, and its attributes' numbers."""

    kind: int
    count: int
    attributes: Annotated[list[int], 4]


class AttributeDefinition(Struct):
    """An attribute of an operator."""

    name: Text
    type: int  # INT, FLOAT, STRING or their lists
    type_name: Text  # in errors
    minimum: int  # the smallest and the largest allowed number for INT and INTS; int64's if there is no other limit
    maximum: int
    is_positive: int  # for FLOAT and FLOATS: whether a number must be finite and above 0
    is_finite: int  # whether it must be finite
    rule: Text  # for a value or for each value of a list (`spec.Attribute.rule`)
    choice_count: int
    choices: Annotated[list[Text], POINTER]  # the allowed strings
    is_per_axis: int  # whether a list is empty or has a value for each axis of the tensors of variable rank
    is_any_length: int  # whether a list may have any length, and its values are elsewhere
    axis_count: int  # for a list of the lengths of named axes: the number of values that it must have; else 0
    axes: Text  # the names of these axes, joined by ", "
    has_default: int  # without a default a node must have the attribute
    default: Attribute


class TensorDefinition(Struct):
    """An input or an output of an operator."""

    name: Text
    is_optional: int  # whether a node may leave the tensor out
    type_variable: int  # its number; tensors with the same number have the same element type
    is_variable_rank: int  # whether the tensor may have 1 to MAX_RANK axes
    least_rank: int
    largest_rank: int
    rank_rule: Text  # the ranks and the axes, in an error
    leading_from: int  # for an output: the number of the input that has the same leading axes of length 1, or NONE
    derived_from: int  # for lengths that follow from other axes (`spec.Scaled`): the first of these axes, or NONE
    sizes: int  # the numbers of the attributes from which they follow
    scales: int
    required_unless: int  # for an optional input: the number of an attribute, or NONE,
    exempt_value: int  # and its only value that lets a node leave the input out
    output_count: int
    outputs: Annotated[list[int], 2]  # for an optional input: the outputs that need it, by their numbers in a call
    element_count: int
    element_axes: Annotated[list[int], MAX_RANK]  # for an int64 input whose elements are lengths: their axes' numbers
    axes: Annotated[list[int], MAX_DIMS]  # numbers, or -1 - length; further axes, of length 1, come before


class Lengths(Struct):
    """What is known of a call's named axes: their lengths, and for each a text that names its source."""

    known: Annotated[list[int], MAX_AXES]
    sources: Annotated[list[Text], MAX_AXES]


class Definition(Struct):
    """An operator."""

    name: Text  # in errors
    is_gradient: int  # whether it computes another operator's gradient, and so needs a wanted output
    output_names: Text  # joined by " and "
    rank_axis: int  # the number of the axis whose length is the rank of tensors with variable rank, or NONE
    output_memory: int  # BUFFERS_FOR_NONE, BUFFERS_FOR_OMITTED or BUFFERS_FOR_ALL
    attribute_count: int
    attributes: Annotated[list[AttributeDefinition], POINTER]
    rule_count: int
    rules: Annotated[list[AttributeRule], POINTER]
    input_count: int
    output_count: int
    tensors: Annotated[list[TensorDefinition], POINTER]  # the inputs, then the outputs, as in a call
    types: Annotated[list[TypeVariable], POINTER]
    axis_count: int
    axes: Annotated[list[Axis], POINTER]
    equation_count: int
    equations: Annotated[list[Equation], POINTER]
    constant_count: int
    constants: Annotated[list[Text], POINTER]  # names in alphabetical order, which no attribute of a node may have


class Shapes(Struct):
    """The functions that infer and check shapes."""

    infer: Compute  # `shapes.infer_shapes`, or a function that also asks one of a user (`custom.lengths.shapes_entry`)
    check: Compute  # `shapes.check_wanted`
    infer_by_names: Compute  # `shapes.infer_shapes`


class Entry(Struct):
    """What computes the outputs of an operator."""

    enter: Compute
    short_of_memory: Text  # the error if memory runs out


class Node(Struct):
    """A node: the checked attributes of a model's node."""

    definition: Annotated[Definition, POINTER]
    shapes: Annotated[Shapes, POINTER]
    entry: Annotated[Entry, POINTER]
    first_type: int  # the element type of the first input; 0 if any is right
    driver: Annotated[Driver, POINTER]  # for Y or dX, by the node's attributes and element type
    driver_of_rois: Annotated[Driver, POINTER]  # for drois; 0 if the node never needs it
    label: Text  # the operator's name in errors
    attributes: Annotated[list[Attribute], 0]  # those of the definition
