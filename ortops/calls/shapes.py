"""Infers shapes and checks a call's tensors, compiled once for all operators, since an operator's definition is a table.

`ortops.shapes` does the same for models, whose lengths may have names.
"""

from __future__ import annotations

from ortops.calls.definition_words import (
    ATTRIBUTE_COUNT,
    ATTRIBUTE_ITEM_WORDS,
    ATTRIBUTE_NAME,
    ATTRIBUTES_AT,
    AXES,
    AXES_AT,
    AXIS_COUNT,
    AXIS_ITEM_WORDS,
    AXIS_ROW,
    AXIS_SOURCE,
    AXIS_VALUE,
    DERIVED_FROM,
    DIVISOR_COUNT,
    DIVISORS,
    ELEMENT_AXES,
    ELEMENT_COUNT,
    EQUATION_COUNT,
    EQUATION_ITEM_WORDS,
    EQUATION_PART,
    EQUATION_SOURCE,
    EQUATION_WHOLE,
    EQUATIONS_AT,
    EXEMPT_VALUE,
    INPUT_COUNT,
    IS_GRADIENT,
    IS_OPTIONAL,
    IS_PER_AXIS,
    IS_VARIABLE_RANK,
    LARGEST_RANK,
    LEADING_FROM,
    LEAST_RANK,
    MAX_AXES,
    MAX_RANK,
    NONE,
    OUTPUT_COUNT,
    RANK_AXIS,
    REQUIRED_FOR,
    REQUIRED_FOR_COUNT,
    REQUIRED_UNLESS,
    SCALES_ROW,
    SIZES_ROW,
    TENSOR_ITEM_WORDS,
    TENSOR_NAME,
    TENSORS_AT,
)
from ortops.calls.layout import (
    ADDRESS,
    ATTRIBUTE_WORDS,
    ATTRIBUTES,
    DEFINITION,
    DIMS,
    DIMS_COUNT,
    LENGTHS,
    MAX_DIMS,
    OK,
    TENSOR_WORDS,
    TENSORS,
    TEXT,
    TYPE,
)
from ortops.calls.refusals import (
    ANY_RANK,
    LEFT_OUT,
    MULTIPLE,
    NEEDED_BY_ATTRIBUTE,
    NEEDED_BY_OUTPUT,
    NO_NEGATIVE,
    OF_ELEMENTS,
    OF_RANK,
    PRODUCT,
    REQUIRED,
    SCALED,
    STATE_WORDS,
    TOO_LONG,
    UNKNOWN,
    refuse,
)
from ortops.jit.compile import compiled, small
from ortops.jit.elements import Words
from ortops.jit.scalar import address_of, float64_pointer, int64_pointer, local_words, maximum, minimum, offset

_MAX_LENGTH, _TOO_LONG = 2**63 - 1, 2.0**63


@small
def infer_shapes(node: Words, call: Words) -> int:
    """Check the shapes of a call's inputs, and set the rank and the dimensions of all outputs. A C function.

    If an input's elements are lengths, they are copied to LENGTHS once, since another thread may write to the input. When a
    model's shapes are inferred, an input's unknown dimension or rank is -1, and the address of unknown elements is 0. If an
    output's dimension or rank does not follow from these, it is -1.

    Args:
        node: the node (`layout.DEFINITION`).
        call: the call (`layout.TENSORS`), in which an input with TYPE 0 is absent. The function clears its text.

    Returns:
        OK; INVALID with a text in the call if an input is missing, a rank is wrong, two inputs disagree on an axis, or a
        length is negative or does not fit in 64 bits.
    """
    definition, state = int64_pointer(node[DEFINITION]), local_words(STATE_WORDS)
    call[TEXT] = 0
    _take_attributes(definition, node, state)
    inputs, status = definition[INPUT_COUNT], OK
    for row in range(inputs):
        if _given(call, row)[TYPE] != 0:
            status = _bind(node, call, state, row)
        elif _tensor(definition, row)[IS_OPTIONAL] == 0:
            status = refuse(node, call, state, row, 0, REQUIRED)
        if status != OK:
            return status
    for row in range(inputs, inputs + definition[OUTPUT_COUNT]):
        status = _set_shape(node, call, state, row)
        if status != OK:
            return status
    return OK


@compiled
def check_wanted(node: Words, call: Words) -> int:
    """Check that a gradient has a wanted output, and every input that the wanted outputs need. A C function.

    Args:
        node: the node.
        call: the call after `infer_shapes`, in which an input or an output with TYPE 0 is absent.

    Returns:
        OK, also for an operator that is not a gradient; INVALID with a text in the call.
    """
    definition = int64_pointer(node[DEFINITION])
    if definition[IS_GRADIENT] == 0:
        return OK
    inputs, wanted = definition[INPUT_COUNT], 0
    for row in range(inputs, inputs + definition[OUTPUT_COUNT]):
        wanted += _given(call, row)[TYPE]  # types are above 0
    if wanted == 0:
        return refuse(node, call, call, 0, 0, LEFT_OUT)
    for row in range(inputs):
        if _given(call, row)[TYPE] == 0:
            status = _check_absent(node, call, row)
            if status != OK:
                return status
    return OK


@compiled
def _check_absent(node: Words, call: Words, row: int) -> int:
    """Check that an absent input of a gradient is not needed."""
    tensor = _tensor(int64_pointer(node[DEFINITION]), row)
    attribute = tensor[REQUIRED_UNLESS]
    if attribute != NONE and _attribute(node, attribute)[1] != tensor[EXEMPT_VALUE]:
        return refuse(node, call, call, row, attribute, NEEDED_BY_ATTRIBUTE)
    for k in range(tensor[REQUIRED_FOR_COUNT]):
        output = tensor[REQUIRED_FOR + k]
        if _given(call, output)[TYPE] != 0:
            return refuse(node, call, call, row, output, NEEDED_BY_OUTPUT)
    return OK


@compiled
def _tensor(definition: Words, row: int) -> Words:
    """The definition of an input or an output."""
    return offset(definition, definition[TENSORS_AT] + TENSOR_ITEM_WORDS * row)


@compiled
def _given(call: Words, row: int) -> Words:
    """The words of an input or an output in the call."""
    return offset(call, TENSORS + TENSOR_WORDS * row)


@compiled
def _attribute(node: Words, row: int) -> Words:
    """An attribute's value."""
    return offset(node, ATTRIBUTES + ATTRIBUTE_WORDS * row)


@compiled
def _axis(definition: Words, axis: int) -> Words:
    """An axis's definition."""
    return offset(definition, definition[AXES_AT] + AXIS_ITEM_WORDS * axis)


@compiled
def _take_attributes(definition: Words, node: Words, state: Words) -> None:
    """Store the lengths that attributes give."""
    for number in range(definition[AXIS_COUNT]):
        axis = _axis(definition, number)
        row, state[number], state[MAX_AXES + number] = axis[AXIS_ROW], UNKNOWN, axis[AXIS_SOURCE]
        if row != NONE and _attribute(node, row)[0] > 0:
            state[number] = _attribute(node, row)[1 + axis[AXIS_VALUE]]
    rank = definition[RANK_AXIS]
    for row in range(definition[ATTRIBUTE_COUNT] if rank != NONE else 0):
        attribute = offset(definition, definition[ATTRIBUTES_AT] + ATTRIBUTE_ITEM_WORDS * row)
        if attribute[IS_PER_AXIS] != 0 and _attribute(node, row)[0] > 0:
            state[rank], state[MAX_AXES + rank] = _attribute(node, row)[0], attribute[ATTRIBUTE_NAME]


@compiled
def _bind(node: Words, call: Words, state: Words, row: int) -> int:
    """Store the lengths in an input's shape or elements, and check that they agree with known lengths."""
    definition = int64_pointer(node[DEFINITION])
    tensor, given = _tensor(definition, row), _given(call, row)
    rank, is_variable, name = given[DIMS_COUNT], tensor[IS_VARIABLE_RANK] != 0, tensor[TENSOR_NAME]
    if rank < 0:
        return OK
    if rank < tensor[LEAST_RANK] or rank > tensor[LARGEST_RANK]:
        return refuse(node, call, state, row, 0, ANY_RANK)
    if is_variable and not _agree(state, definition[RANK_AXIS], rank, name):
        return refuse(node, call, state, row, OF_RANK, definition[RANK_AXIS])
    leading = 0 if is_variable else rank - tensor[LEAST_RANK]
    for i in range(rank):
        axis = tensor[AXES + i - leading] if i >= leading else -2
        if not _agree(state, axis, given[DIMS + i], name):
            return refuse(node, call, state, row, i, axis)
    status = _solve(node, call, state, row, 0)
    if status != OK or tensor[ELEMENT_COUNT] == 0 or given[ADDRESS] == 0:
        return status
    count, elements = minimum(given[DIMS], MAX_DIMS), int64_pointer(given[ADDRESS])
    for i in range(count):
        call[LENGTHS + i] = elements[i]
    for i in range(minimum(count, tensor[ELEMENT_COUNT])):
        length, axis = call[LENGTHS + i], tensor[ELEMENT_AXES + i]
        if length < 0:
            return refuse(node, call, state, row, OF_ELEMENTS + i, NO_NEGATIVE)
        if not _agree(state, axis, length, name):
            return refuse(node, call, state, row, OF_ELEMENTS + i, axis)
    return _solve(node, call, state, row, OF_ELEMENTS)


@compiled
def _agree(state: Words, axis: int, length: int, source: int) -> bool:
    """Store an axis's length and the text `source` that names its origin; return whether it agrees with a known length."""
    if axis >= 0 and state[axis] == UNKNOWN:
        state[axis], state[MAX_AXES + axis] = length, source
        return True
    return length == UNKNOWN or length == (state[axis] if axis >= 0 else -1 - axis)


@compiled
def _solve(node: Words, call: Words, state: Words, row: int, place: int) -> int:
    """Add the lengths that follow from equations, and check known lengths.

    Args:
        node: the node.
        call: the call.
        state: the known lengths of axes.
        row: the row of the input that gave lengths.
        place: 0 if its shape gave them, OF_ELEMENTS if its elements did.
    """
    definition = int64_pointer(node[DEFINITION])
    for number in range(definition[EQUATION_COUNT]):
        equation = offset(definition, definition[EQUATIONS_AT] + EQUATION_ITEM_WORDS * number)
        divisor = _product(equation, state, 1)
        part, whole = state[equation[EQUATION_PART]], state[equation[EQUATION_WHOLE]]
        if divisor == UNKNOWN:
            continue
        if part != UNKNOWN:
            expected = _product(equation, state, part)
            if whole != UNKNOWN and whole != expected:
                return refuse(node, call, state, row, place + number, PRODUCT)
            if whole == UNKNOWN:
                state[equation[EQUATION_WHOLE]] = expected
                state[MAX_AXES + equation[EQUATION_WHOLE]] = equation[EQUATION_SOURCE]
        elif whole != UNKNOWN:
            if whole % divisor != 0 if divisor != TOO_LONG else whole != 0:
                return refuse(node, call, state, row, place + number, MULTIPLE)
            state[equation[EQUATION_PART]] = whole // divisor if divisor != TOO_LONG else 0
            state[MAX_AXES + equation[EQUATION_PART]] = equation[EQUATION_SOURCE]
    return OK


@compiled
def _product(equation: Words, state: Words, factor: int) -> int:
    """The product of a length and an equation's divisors; UNKNOWN if one of them is unknown or 0; or TOO_LONG."""
    result = factor
    for k in range(equation[DIVISOR_COUNT]):
        divisor = state[equation[DIVISORS + k]]
        if divisor <= 0:
            return UNKNOWN
        result = TOO_LONG if result == TOO_LONG or result > _MAX_LENGTH // divisor else result * divisor
    return result


@compiled
def _set_shape(node: Words, call: Words, state: Words, row: int) -> int:
    """Set an output's rank and dimensions, and check that its lengths fit in 64 bits."""
    definition = int64_pointer(node[DEFINITION])
    tensor, target = _tensor(definition, row), _given(call, row)
    is_variable, leading, source = tensor[IS_VARIABLE_RANK] != 0, 0, tensor[LEADING_FROM]
    if source != NONE and _given(call, source)[TYPE] != 0:
        leading = maximum(_given(call, source)[DIMS_COUNT] - _tensor(definition, source)[LEAST_RANK], 0)
    rank = state[definition[RANK_AXIS]] if is_variable else tensor[LEAST_RANK] + leading
    if is_variable and rank > MAX_RANK:
        rank = UNKNOWN  # a shape may be this long, but no tensor has this rank
    if source != NONE and _given(call, source)[TYPE] != 0 and _given(call, source)[DIMS_COUNT] < 0:
        rank = UNKNOWN  # in a model
    target[DIMS_COUNT] = rank
    for i in range(rank):
        if tensor[DERIVED_FROM] != NONE:
            length = _scaled(node, tensor, state[tensor[DERIVED_FROM] + i], i)
            if length == TOO_LONG:
                return refuse(node, call, state, row, i, SCALED)
        else:
            axis = tensor[AXES + i - leading] if i >= leading else -2
            length = maximum(state[axis], UNKNOWN) if axis >= 0 else -1 - axis
        target[DIMS + i] = length
    return OK


@compiled
def _scaled(node: Words, tensor: Words, length: int, i: int) -> int:
    """The length of an output's axis i by `spec.Scaled`; TOO_LONG if it does not fit in 64 bits."""
    sizes, scales = _attribute(node, tensor[SIZES_ROW]), _attribute(node, tensor[SCALES_ROW])
    if sizes[0] > 0:
        return sizes[1 + i]
    if scales[0] == 0 or length == UNKNOWN:
        return UNKNOWN
    scaled = length * float64_pointer(address_of(scales))[1 + i]
    return TOO_LONG if scaled >= _TOO_LONG else int(scaled)
