"""Write the text of an error that `shapes` finds."""

from __future__ import annotations

from ortops.calls.definition_words import (
    ATTRIBUTE_ITEM_WORDS,
    ATTRIBUTE_NAME,
    ATTRIBUTES_AT,
    AXES_AT,
    AXIS_ITEM_WORDS,
    AXIS_NAME,
    CHOICES_AT,
    DIVISOR,
    DIVISOR_COUNT,
    DIVISORS,
    EQUATION_COUNT,
    EQUATION_ITEM_WORDS,
    EQUATION_PART,
    EQUATION_WHOLE,
    EQUATIONS_AT,
    MAX_AXES,
    NAME,
    OUTPUT_NAMES,
    RANK_RULE,
    SCALES_ROW,
    TENSOR_ITEM_WORDS,
    TENSOR_NAME,
    TENSORS_AT,
)
from ortops.calls.layout import (
    ATTRIBUTE_WORDS,
    ATTRIBUTES,
    DEFINITION,
    DIMS,
    INVALID,
    LENGTHS,
    MAX_DIMS,
    TENSOR_WORDS,
    TENSORS,
)
from ortops.calls.messages import write_float, write_int, write_list, write_product, write_shape, write_text
from ortops.jit.compile import compiled, noinline
from ortops.jit.elements import Words
from ortops.jit.scalar import address_of, float64_pointer, int64_pointer, local, minimum, offset
from ortops.jit.text import text

STATE_WORDS = 2 * MAX_AXES
"""The known lengths of axes, then for each a text that names its source."""

UNKNOWN, TOO_LONG = -1, -2
"""Values for a length that is unknown, and for a length that does not fit in 64 bits."""

(
    REQUIRED,
    ANY_RANK,
    NO_NEGATIVE,
    PRODUCT,
    MULTIPLE,
    SCALED,
    LEFT_OUT,
    NEEDED_BY_ATTRIBUTE,
    NEEDED_BY_OUTPUT,
) = range(MAX_AXES, MAX_AXES + 9)
"""The rules that a call can break. A rule may also be an axis number, whose length an input must have, or -1 - length.

REQUIRED: the call must have the input.
ANY_RANK: the input must have one of several ranks.
NO_NEGATIVE: an element must be >= 0.
PRODUCT, MULTIPLE: an equation, whose number is the place: a length must be a product of others, or a multiple of it.
SCALED: a scale must not make an axis too long; the place is the axis.
LEFT_OUT: at least one output must be wanted.
NEEDED_BY_ATTRIBUTE, NEEDED_BY_OUTPUT: an attribute's value or an output needs the input; the place is its row.
"""

OF_ELEMENTS, OF_RANK = MAX_DIMS, 2 * MAX_DIMS
"""Places: OF_ELEMENTS + i is element i of the input and not length i of its shape; OF_RANK is its rank."""


@noinline
def refuse(node: Words, call: Words, state: Words, row: int, place: int, rule: int) -> int:
    """Write an error's text into a call.

    Args:
        node: the node.
        call: the call.
        state: the known lengths of axes (STATE_WORDS), for rules about lengths.
        row: the row of the input that breaks the rule; for SCALED, of the output.
        place: the part that is wrong, as the rule describes; for a rule about lengths, an index, or see OF_ELEMENTS.
        rule: the rule.

    Returns:
        INVALID.
    """
    definition = int64_pointer(node[DEFINITION])
    tensor = _tensor(definition, row)
    if rule == LEFT_OUT:
        write_text(call, definition[OUTPUT_NAMES])
        write_text(call, text(" are left out: at least one output is required"))
    elif rule == SCALED:
        attribute = tensor[SCALES_ROW]
        _write_item(call, _attribute_name(definition, attribute), place)
        write_text(call, text(" = "))
        values = float64_pointer(address_of(offset(node, ATTRIBUTES + ATTRIBUTE_WORDS * attribute)))
        write_float(call, values[1 + place])
        write_text(call, text(": must not make an axis longer than 2**63 - 1"))
    elif rule in (REQUIRED, NEEDED_BY_ATTRIBUTE, NEEDED_BY_OUTPUT):
        _write_missing(node, call, tensor[TENSOR_NAME], place, rule)
    else:
        _write_given(
            call, tensor[TENSOR_NAME], offset(call, TENSORS + TENSOR_WORDS * row), OF_ELEMENTS <= place < OF_RANK
        )
        if rule == ANY_RANK:
            write_text(call, tensor[RANK_RULE])
        elif rule in (PRODUCT, MULTIPLE):
            _write_equation(definition, call, state, _equation(definition, place % OF_ELEMENTS), rule)
        else:
            _write_length(definition, call, state, tensor[TENSOR_NAME], place, rule)
    return INVALID


@compiled
def _write_missing(node: Words, call: Words, name: int, place: int, rule: int) -> None:
    """Write that an input is missing and why it is needed."""
    definition = int64_pointer(node[DEFINITION])
    write_text(call, name)
    write_text(call, text(" is missing: "))
    if rule == REQUIRED:
        write_text(call, definition[NAME])
        write_text(call, text(" requires it"))
        return
    write_text(call, text("must be given for "))
    if rule == NEEDED_BY_OUTPUT:
        write_text(call, _tensor(definition, place)[TENSOR_NAME])
        return
    choices = definition[definition[ATTRIBUTES_AT] + ATTRIBUTE_ITEM_WORDS * place + CHOICES_AT]
    write_text(call, _attribute_name(definition, place))
    write_text(call, text(" = '"))
    write_text(call, definition[choices + node[ATTRIBUTES + ATTRIBUTE_WORDS * place + 1]])
    write_text(call, text("'"))


@compiled
def _write_given(call: Words, name: int, given: Words, of_elements: bool) -> None:
    """Write an input's shape or its elements."""
    write_text(call, name)
    if of_elements:
        write_text(call, text(" is "))
        write_list(call, offset(call, LENGTHS), minimum(given[DIMS], MAX_DIMS), False)
    else:
        write_text(call, text(" has shape "))
        write_shape(call, given)
    write_text(call, text(": "))


@compiled
def _write_length(definition: Words, call: Words, state: Words, name: int, place: int, rule: int) -> None:
    """Write which of an input's lengths is wrong, and the rule."""
    if place == OF_RANK:
        write_text(call, text("rank"))
    else:
        _write_item(call, name if place >= OF_ELEMENTS else text("shape"), place % OF_ELEMENTS)
    write_text(call, text(" must be "))
    if rule == NO_NEGATIVE:
        write_text(call, text(">= 0"))
    elif rule < 0:
        write_int(call, -1 - rule)
    else:
        _write_known(definition, call, state, rule)
        write_text(call, text(" ("))
        write_text(call, _axis_name(definition, rule))
        write_text(call, text(" of "))
        write_text(call, state[MAX_AXES + rule])
        write_text(call, text(")"))


@compiled
def _write_known(definition: Words, call: Words, state: Words, axis: int) -> None:
    """Write an axis's length."""
    if state[axis] != TOO_LONG:
        write_int(call, state[axis])
        return
    for number in range(definition[EQUATION_COUNT]):
        equation = _equation(definition, number)
        if equation[EQUATION_WHOLE] == axis:
            _write_product(call, state, equation, state[equation[EQUATION_PART]])


@compiled
def _write_equation(definition: Words, call: Words, state: Words, equation: Words, rule: int) -> None:
    """Write the length that an equation forbids, and the correct length."""
    whole, part = equation[EQUATION_WHOLE], equation[EQUATION_PART]
    write_text(call, _axis_name(definition, whole))
    write_text(call, text(" = "))
    write_int(call, state[whole])
    write_text(call, text(" must be a multiple of ") if rule == MULTIPLE else text(" must be "))
    _write_product(call, state, equation, 1 if rule == MULTIPLE else state[part])
    write_text(call, text(" ("))
    if rule == PRODUCT:
        write_text(call, _axis_name(definition, part))
        write_text(call, text(" * "))
    write_text(call, equation[DIVISOR])
    write_text(call, text(")"))


@compiled
def _write_product(call: Words, state: Words, equation: Words, factor: int) -> None:
    """Write the product of a length and an equation's divisors, even if it does not fit in 64 bits."""
    factors = local(0)
    factors[0] = factor
    for k in range(equation[DIVISOR_COUNT]):
        factors[1 + k] = state[equation[DIVISORS + k]]
    write_product(call, factors, 1 + equation[DIVISOR_COUNT])


@compiled
def _write_item(call: Words, name: int, index: int) -> None:
    write_text(call, name)
    write_text(call, text("["))
    write_int(call, index)
    write_text(call, text("]"))


@compiled
def _tensor(definition: Words, row: int) -> Words:
    return offset(definition, definition[TENSORS_AT] + TENSOR_ITEM_WORDS * row)


@compiled
def _attribute_name(definition: Words, row: int) -> int:
    return definition[definition[ATTRIBUTES_AT] + ATTRIBUTE_ITEM_WORDS * row + ATTRIBUTE_NAME]


@compiled
def _axis_name(definition: Words, axis: int) -> int:
    return definition[definition[AXES_AT] + AXIS_ITEM_WORDS * axis + AXIS_NAME]


@compiled
def _equation(definition: Words, number: int) -> Words:
    return offset(definition, definition[EQUATIONS_AT] + EQUATION_ITEM_WORDS * number)
