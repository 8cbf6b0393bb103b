"""The words in an operator's definition record (`definitions`), which compiled code reads.

A record begins with a head. In the head, each ``..._AT`` is the record index of a section's first item. A text is the
address of a C string in UTF-8. Rules and other messages that several words would determine are stored as texts.
"""

from __future__ import annotations

from ortops.calls.layout import ATTRIBUTE_WORDS, MAX_DIMS

OWN_FOR_NONE, OWN_FOR_ABSENT, OWN_FOR_ALL = range(3)

MAX_RANK = 4
"""The largest rank of a tensor of variable rank, and the most values of an attribute (`spec.MAX_RANK`)."""

NONE = -1
"""The number of an attribute, an input or an axis that does not exist."""

(
    NAME,
    IS_GRADIENT,
    OUTPUT_NAMES,
    RANK_AXIS,
    ATTRIBUTE_COUNT,
    ATTRIBUTES_AT,
    RULE_COUNT,
    RULES_AT,
    INPUT_COUNT,
    OUTPUT_COUNT,
    TENSORS_AT,
    TYPE_COUNT,
    TYPES_AT,
    AXIS_COUNT,
    AXES_AT,
    EQUATION_COUNT,
    EQUATIONS_AT,
    CONSTANT_COUNT,
    CONSTANTS_AT,
    OUTPUT_MEMORY,
    HEAD_WORDS,
) = range(21)
"""The head.

NAME: text, the operator's name in errors.
IS_GRADIENT: 1 if the operator computes another operator's gradient, and so needs a wanted output; else 0.
OUTPUT_NAMES: text, the names of all outputs, joined by " and ".
CONSTANTS_AT: texts, the names of the operator's constants in alphabetical order, which a node must not have as attributes.
OUTPUT_MEMORY: which outputs the entry fills in memory of its own: OWN_FOR_NONE; OWN_FOR_ABSENT: outputs that a node leaves
    out, which are absent otherwise; OWN_FOR_ALL, since the entry sets their lengths.
RANK_AXIS: the number of the axis whose length is the rank of the tensors with variable rank; NONE if all ranks are fixed.
"""

(
    ATTRIBUTE_NAME,
    ATTRIBUTE_TYPE,
    TYPE_NAME,
    IS_REQUIRED,
    MINIMUM,
    MAXIMUM,
    IS_POSITIVE,
    IS_FINITE,
    RULE,
    CHOICE_COUNT,
    CHOICES_AT,
    IS_PER_AXIS,
    IS_ANY_LENGTH,
    AXIS_NAME_COUNT,
    AXIS_NAMES,
    HAS_DEFAULT,
    DEFAULT,
) = range(17)
ATTRIBUTE_ITEM_WORDS = DEFAULT + ATTRIBUTE_WORDS
"""An attribute, at ATTRIBUTES_AT + ATTRIBUTE_ITEM_WORDS * row; its value has the same row in a node.

ATTRIBUTE_NAME: text.
ATTRIBUTE_TYPE: INT, FLOAT, STRING or their lists, as OrtOpAttrType.
TYPE_NAME: text, the type in errors.
IS_REQUIRED: 1 if ONNX requires the attribute.
MINIMUM, MAXIMUM: the smallest and the largest allowed number for INT and INTS; int64's limits if there is no other limit.
IS_POSITIVE, IS_FINITE: for FLOAT and FLOATS: 1 if a number must be finite and above 0; 1 if it must be finite.
RULE: text, the rule for a value or for each value of a list (`spec.Attribute.rule`).
CHOICE_COUNT, CHOICES_AT: the number of allowed strings, and the index of their first text. A node holds the string's number.
IS_PER_AXIS: 1 for a list that is empty or has a value for each axis of the tensors with variable rank; at most MAX_RANK.
    All such lists of a node that are not empty must have the same number of values.
IS_ANY_LENGTH: 1 for a list of any length, whose values are at an address (`layout.ATTRIBUTE_WORDS`).
AXIS_NAME_COUNT: for a list that gives the lengths of named axes: the number of values that it must have; else 0.
AXIS_NAMES: text, the names of these axes, joined by ", ".
HAS_DEFAULT: 0 if there is no default, so that a node must have the attribute.
DEFAULT: ATTRIBUTE_WORDS, as in a node.
"""

INT, INTS, FLOAT, FLOATS, STRING = 1, 2, 3, 4, 5
"""Attribute types, as OrtOpAttrType."""

RULE_KIND, RULE_ROW_COUNT, RULE_ROWS = 0, 1, 2
RULE_ITEM_WORDS = RULE_ROWS + 4
"""A rule between attributes, at RULES_AT + RULE_ITEM_WORDS * number: its kind, and its attributes' rows.

ASCENDING: two numbers a and b; the error is "a = 3: must be <= b = 2".
ONE_GIVEN: lists, one of which must have values; the error is "a and b are empty: at least one must have values".
"""

ASCENDING, ONE_GIVEN = 0, 1

(
    TENSOR_NAME,
    IS_OPTIONAL,
    TYPE_VARIABLE,
    IS_VARIABLE_RANK,
    LEAST_RANK,
    LARGEST_RANK,
    RANK_RULE,
    LEADING_FROM,
    DERIVED_FROM,
    SIZES_ROW,
    SCALES_ROW,
    REQUIRED_UNLESS,
    EXEMPT_VALUE,
    REQUIRED_FOR_COUNT,
    ELEMENT_COUNT,
    AXES,
) = range(16)
ELEMENT_AXES = AXES + MAX_DIMS
REQUIRED_FOR = ELEMENT_AXES + MAX_RANK
TENSOR_ITEM_WORDS = REQUIRED_FOR + 2
"""A tensor, at TENSORS_AT + TENSOR_ITEM_WORDS * row; inputs come first, then outputs, as in a call.

TENSOR_NAME: text. IS_OPTIONAL: 1 if a node may leave the tensor out.
TYPE_VARIABLE: the number of the tensor's type, below TYPE_COUNT. Tensors with the same number have the same element type.
IS_VARIABLE_RANK: 1 if the tensor may have 1 to MAX_RANK axes.
LEAST_RANK, LARGEST_RANK: the smallest and the largest allowed rank. RANK_RULE: text, these and the axes, in an error.
LEADING_FROM: for an output: the row of the input that has the same leading axes of length 1, or NONE.
DERIVED_FROM: for an output with variable rank whose lengths follow from other axes (`spec.Scaled`): the number of the first
    of these axes, or NONE. SIZES_ROW, SCALES_ROW: the rows of the attributes.
REQUIRED_UNLESS, EXEMPT_VALUE: for an optional input: the row of an attribute, and its only value that lets a node leave the
    input out; or NONE.
REQUIRED_FOR_COUNT, REQUIRED_FOR: for an optional input: the call's rows of the outputs that need it.
ELEMENT_COUNT, ELEMENT_AXES: for an int64 input whose elements are lengths: the number of axes, and the axes' numbers.
AXES: each axis's number, or -1 - length for an axis of fixed length. There are MAX_RANK numbers for a variable rank, else
    LEAST_RANK; more axes, of length 1, may come before these.
"""

ELEMENT_TYPE_COUNT, ELEMENT_TYPES, TYPE_ITEM_WORDS = 0, 1, 16
"""A type variable, or a tensor's own type, at TYPES_AT + TYPE_ITEM_WORDS * number: the number of allowed element types, then
these types as ONNX's TensorProto.DataType."""

AXIS_NAME, AXIS_ROW, AXIS_VALUE, AXIS_SOURCE, AXIS_ITEM_WORDS = range(5)
"""A named axis, at AXES_AT + AXIS_ITEM_WORDS * number. The axes of a tensor with variable rank have consecutive numbers.

AXIS_NAME: text.
AXIS_ROW, AXIS_VALUE: the row of the attribute that gives the length, and the index of its value; or NONE.
AXIS_SOURCE: text, the attribute in errors.
"""

MAX_AXES = 16
"""The most named axes."""

EQUATION_PART, EQUATION_WHOLE, DIVISOR, EQUATION_SOURCE, DIVISOR_COUNT, DIVISORS = range(6)
EQUATION_ITEM_WORDS = DIVISORS + 2
"""An equation (`spec.Quotient`), at EQUATIONS_AT + EQUATION_ITEM_WORDS * number: axis EQUATION_PART is axis EQUATION_WHOLE
divided by all axes in DIVISORS.

DIVISOR: text, the product of the divisors' names. EQUATION_SOURCE: text, the equation in errors.
"""
