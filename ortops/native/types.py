"""What Python and compiled code share of a call: its tensors and its error, its node, and the definition of its operator.

A text is the address of a C string in UTF-8. Rules and other messages that several values would determine are texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeAlias

from ortops.native.elements import INTERRUPTED as INTERRUPTED  # noqa: PLC0414 - a result of calls, too
from ortops.native.elements import OUT_OF_MEMORY as OUT_OF_MEMORY  # noqa: PLC0414
from ortops.native.elements import Address
from ortops.native.kernels.functions import Driver
from ortops.native.structs import POINTER, Byte, Struct, Union

Text: TypeAlias = int

if TYPE_CHECKING:
    Compute: TypeAlias = Address[Callable[["Node", "Call"], int]]
else:
    Compute = int

MAX_DIMS = 8
"""The most dimensions that are stored for a tensor, enough to refuse a tensor with more."""

MAX_TENSORS = 8
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

OWN_FOR_NONE, OWN_FOR_ABSENT, OWN_FOR_ALL = range(3)
"""Which outputs an entry fills in memory of its own: none; those that a node leaves out, which are absent otherwise; or all,
since the entry sets their lengths."""

INT, INTS, FLOAT, FLOATS, STRING = 1, 2, 3, 4, 5
"""Attribute types, as OrtOpAttrType."""

ASCENDING, ONE_GIVEN = 0, 1
"""The kinds of rules between attributes.

ASCENDING: two numbers a and b; the error is "a = 3: must be <= b = 2".
ONE_GIVEN: lists, one of which must have values; the error is "a and b are empty: at least one must have values".
"""


class Tensor(Struct):
    """A tensor of a call.

    address: its elements' address; 0 if they are unknown, as in a model's shape inference.
    type: its element type as ONNX's TensorProto.DataType; 0 for an absent tensor.
    rank: the number of its dimensions; -1 if it is unknown.
    dims: its dimensions; -1 for an unknown one.
    """

    address: int
    type: int
    rank: int
    dims: Annotated[list[int], MAX_DIMS]


class Call(Struct):
    """A call of a node.

    runner, context: the runner of tasks (`jit.runners`); the runner is 0 in a model's shape inference.
    status: the address of an OrtStatus if ONNX Runtime failed.
    lengths: a copy of the input's elements if they are lengths (`Tensor.element_axes`).
    tensors: the inputs of the definition, then its outputs.
    text_size, text: an error's text (`messages`): its length in bytes, and its bytes with a zero byte at the end.
    """

    runner: int
    context: int
    status: int
    lengths: Annotated[list[int], MAX_DIMS]
    tensors: Annotated[list[Tensor], MAX_TENSORS]
    text_size: int
    text: Annotated[list[Byte], TEXT_BYTES]


class Values(Union):
    """An attribute's values.

    ints: integers, or a string's number among the choices.
    floats: floats.
    elsewhere: the address of the values of a list of any length.
    """

    ints: Annotated[list[int], MAX_RANK]
    floats: Annotated[list[float], MAX_RANK]
    elsewhere: int


class Attribute(Struct):
    """The number of an attribute's values, and these. A number or a string has one; an empty list has none."""

    count: int
    values: Values


class Axis(Struct):
    """A named axis. The axes of a tensor with variable rank have consecutive numbers.

    attribute, value: the number of the attribute that gives the length, and the index of its value; or NONE.
    source: the attribute in errors.
    """

    name: Text
    attribute: int
    value: int
    source: Text


class Equation(Struct):
    """An equation (`spec.Quotient`): axis `part` is axis `whole` divided by all axes in `divisors`.

    product: the product of the divisors' names.
    source: the equation in errors.
    """

    part: int
    whole: int
    product: Text
    source: Text
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
    """An attribute of an operator.

    type: INT, FLOAT, STRING or their lists.
    type_name: the type in errors.
    is_required: whether ONNX requires the attribute.
    minimum, maximum: for INT and INTS: the smallest and the largest allowed number; if there are none, int64's.
    is_positive, is_finite: for FLOAT and FLOATS: whether a number must be finite and above 0; whether it must be finite.
    rule: the rule for a value or for each value of a list (`spec.Attribute.rule`).
    choice_count, choices: the allowed strings. A node holds the string's number.
    is_per_axis: whether a list is empty or has a value for each axis of the tensors with variable rank; at most MAX_RANK.
        All such lists of a node that are not empty must have the same number of values.
    is_any_length: whether a list may have any length, and its values are elsewhere.
    axis_count: for a list that gives the lengths of named axes: the number of values that it must have; else 0.
    axes: the names of these axes, joined by ", ".
    has_default: whether there is a default; without one a node must have the attribute.
    default: as in a node.
    """

    name: Text
    type: int
    type_name: Text
    is_required: int
    minimum: int
    maximum: int
    is_positive: int
    is_finite: int
    rule: Text
    choice_count: int
    choices: Annotated[list[Text], POINTER]
    is_per_axis: int
    is_any_length: int
    axis_count: int
    axes: Text
    has_default: int
    default: Attribute


class TensorDefinition(Struct):
    """An input or an output of an operator.

    is_optional: whether a node may leave the tensor out.
    type_variable: the number of the tensor's type. Tensors with the same number have the same element type.
    is_variable_rank: whether the tensor may have 1 to MAX_RANK axes.
    least_rank, largest_rank: the smallest and the largest allowed rank.
    rank_rule: these and the axes, in an error.
    leading_from: for an output: the number of the input that has the same leading axes of length 1, or NONE.
    derived_from: for an output with variable rank whose lengths follow from other axes (`spec.Scaled`): the number of the
        first of these axes, or NONE.
    sizes, scales: the numbers of the attributes from which they follow.
    required_unless, exempt_value: for an optional input: the number of an attribute, and its only value that lets a node
        leave the input out; or NONE.
    output_count, outputs: for an optional input: the outputs that need it, by their numbers among a call's tensors.
    element_count, element_axes: for an int64 input whose elements are lengths: the axes' numbers.
    axes: each axis's number, or -1 - length for an axis of fixed length. There are MAX_RANK numbers for a variable rank,
        else `least_rank`; more axes, of length 1, may come before these.
    """

    name: Text
    is_optional: int
    type_variable: int
    is_variable_rank: int
    least_rank: int
    largest_rank: int
    rank_rule: Text
    leading_from: int
    derived_from: int
    sizes: int
    scales: int
    required_unless: int
    exempt_value: int
    output_count: int
    outputs: Annotated[list[int], 2]
    element_count: int
    element_axes: Annotated[list[int], MAX_RANK]
    axes: Annotated[list[int], MAX_DIMS]


class Lengths(Struct):
    """What is known of a call's named axes: their lengths, and for each a text that names its source."""

    known: Annotated[list[int], MAX_AXES]
    sources: Annotated[list[Text], MAX_AXES]


class Definition(Struct):
    """An operator.

    name: the operator's name in errors.
    is_gradient: whether the operator computes another operator's gradient, and so needs a wanted output.
    output_names: the names of all outputs, joined by " and ".
    rank_axis: the number of the axis whose length is the rank of the tensors with variable rank; NONE if there are none.
    output_memory: OWN_FOR_NONE, OWN_FOR_ABSENT or OWN_FOR_ALL.
    tensors: the inputs, then the outputs, as in a call.
    constants: the names of the operator's constants in alphabetical order, which a node must not have as attributes.
    """

    name: Text
    is_gradient: int
    output_names: Text
    rank_axis: int
    output_memory: int
    attribute_count: int
    attributes: Annotated[list[AttributeDefinition], POINTER]
    rule_count: int
    rules: Annotated[list[AttributeRule], POINTER]
    input_count: int
    output_count: int
    tensors: Annotated[list[TensorDefinition], POINTER]
    types: Annotated[list[TypeVariable], POINTER]
    axis_count: int
    axes: Annotated[list[Axis], POINTER]
    equation_count: int
    equations: Annotated[list[Equation], POINTER]
    constant_count: int
    constants: Annotated[list[Text], POINTER]


class Shapes(Struct):
    """The functions that infer and check shapes.

    infer: `shapes.infer_shapes`, or a function that also asks one of a user (`user_lengths.shapes_entry`).
    check: `shapes.check_wanted`.
    infer_by_names: `shapes.infer_shapes`.
    """

    infer: Compute
    check: Compute
    infer_by_names: Compute


class Entry(Struct):
    """What computes the outputs of an operator.

    enter: the function.
    short_of_memory: the error if memory runs out.
    """

    enter: Compute
    short_of_memory: Text


class Node(Struct):
    """A node: the checked attributes of a model's node.

    first_type: the element type of the first input; 0 if any is right.
    driver, driver_of_rois: for Y or dX and for drois, which the node's attributes and element type choose; 0 if the node
        never needs the driver.
    label: the operator's name in errors.
    attributes: those of the definition.
    """

    definition: Annotated[Definition, POINTER]
    shapes: Annotated[Shapes, POINTER]
    entry: Annotated[Entry, POINTER]
    first_type: int
    driver: Annotated[Driver, POINTER]
    driver_of_rois: Annotated[Driver, POINTER]
    label: Text
    attributes: Annotated[list[Attribute], 0]
