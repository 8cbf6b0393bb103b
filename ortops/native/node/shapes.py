# SPDX-License-Identifier: MIT
"""Infers shapes and checks a call's tensors, compiled once for all operators, since an operator's definition is a table.

`ortops.shapes` does the same for models, whose lengths may have names.
"""

from __future__ import annotations

from ortops.compiler.compile import compiled, optimize_for_size
from ortops.compiler.scalar import int64_pointer, maximum, minimum
from ortops.compiler.struct_types import local_struct
from ortops.native.node import error_texts as errors
from ortops.native.node.error_texts import TOO_LONG, UNKNOWN, write_error
from ortops.native.types import (
    MAX_DIMS,
    MAX_RANK,
    NONE,
    OK,
    Call,
    Definition,
    Equation,
    Lengths,
    Node,
    TensorDefinition,
)

_MAX_LENGTH, _TOO_LONG = 2**63 - 1, 2.0**63


@optimize_for_size
def infer_shapes(node: Node, call: Call) -> int:
    """Check the shapes of a call's inputs, and set the rank and the dimensions of all outputs. A C function.

    If an input's elements are lengths, they are copied to `call.lengths` once, since another thread may write to the input.
    When a model's shapes are inferred, an input's unknown dimension or rank is -1, and the address of unknown elements is 0.
    If an output's dimension or rank does not follow from these, it is -1.

    Args:
        call: the call, in which an input of type 0 is absent. The function clears its text.

    Returns:
        OK; INVALID with a text in the call if an input is missing, a rank is wrong, two inputs disagree on an axis, or a
        length is negative or does not fit in 64 bits.
    """
    definition, lengths = node.definition, local_struct(Lengths)
    call.text_size = 0
    _take_attributes(definition, node, lengths)
    inputs, status = definition.input_count, OK
    for row in range(inputs):
        if call.tensors[row].type != 0:
            status = _bind(node, call, lengths, row)
        elif definition.tensors[row].is_optional == 0:
            status = write_error(node, call, lengths, row, 0, errors.REQUIRED)
        if status != OK:
            return status
    for row in range(inputs, inputs + definition.output_count):
        status = _set_shape(node, call, lengths, row)
        if status != OK:
            return status
    return OK


@compiled
def given_type(definition: Definition, call: Call, variable: int, inputs: int) -> int:
    """The element type that a call's first `inputs` inputs give a type variable; 0 if none of them does."""
    for i in range(inputs):
        if call.tensors[i].type != 0 and definition.tensors[i].type_variable == variable:
            return call.tensors[i].type
    return 0


@compiled
def check_wanted(node: Node, call: Call) -> int:
    """Check that a gradient has a wanted output, and every input that the wanted outputs need. A C function.

    Args:
        call: the call after `infer_shapes`, in which an input or an output of type 0 is absent.

    Returns:
        OK, also for an operator that is not a gradient; INVALID with a text in the call.
    """
    definition = node.definition
    if definition.is_gradient == 0:
        return OK
    inputs, wanted = definition.input_count, 0
    for row in range(inputs, inputs + definition.output_count):
        wanted += call.tensors[row].type  # types are above 0
    if wanted == 0:
        return write_error(node, call, local_struct(Lengths), 0, 0, errors.LEFT_OUT)
    for row in range(inputs):
        if call.tensors[row].type == 0:
            status = _check_absent(node, call, row)
            if status != OK:
                return status
    return OK


@compiled
def _check_absent(node: Node, call: Call, row: int) -> int:
    """Check that an absent input of a gradient is not needed."""
    tensor, unknown = node.definition.tensors[row], local_struct(Lengths)
    attribute = tensor.required_unless
    if attribute != NONE and node.attributes[attribute].values.ints[0] != tensor.exempt_value:
        return write_error(node, call, unknown, row, attribute, errors.NEEDED_BY_ATTRIBUTE)
    for k in range(tensor.output_count):
        output = tensor.outputs[k]
        if call.tensors[output].type != 0:
            return write_error(node, call, unknown, row, output, errors.NEEDED_BY_OUTPUT)
    return OK


@compiled
def _take_attributes(definition: Definition, node: Node, lengths: Lengths) -> None:
    """Store the lengths that attributes give."""
    for number in range(definition.axis_count):
        axis = definition.axes[number]
        row, lengths.known[number], lengths.sources[number] = axis.attribute, UNKNOWN, axis.source
        if row != NONE and node.attributes[row].count > 0:
            lengths.known[number] = node.attributes[row].values.ints[axis.value]
    rank = definition.rank_axis
    for row in range(definition.attribute_count if rank != NONE else 0):
        attribute = definition.attributes[row]
        if attribute.is_per_axis != 0 and node.attributes[row].count > 0:
            lengths.known[rank], lengths.sources[rank] = node.attributes[row].count, attribute.name


@compiled
def _bind(node: Node, call: Call, lengths: Lengths, row: int) -> int:
    """Store the lengths in an input's shape or elements, and check that they agree with known lengths."""
    definition, given = node.definition, call.tensors[row]
    tensor = definition.tensors[row]
    rank, is_variable, name = given.rank, tensor.is_variable_rank != 0, tensor.name
    if rank < 0:
        return OK
    if rank < tensor.least_rank or rank > tensor.largest_rank:
        return write_error(node, call, lengths, row, 0, errors.ANY_RANK)
    if is_variable and not _agree(lengths, definition.rank_axis, rank, name):
        return write_error(node, call, lengths, row, errors.OF_RANK, definition.rank_axis)
    leading = 0 if is_variable else rank - tensor.least_rank
    for i in range(rank):
        axis = tensor.axes[i - leading] if i >= leading else -2
        if not _agree(lengths, axis, given.dims[i], name):
            return write_error(node, call, lengths, row, i, axis)
    status = _solve(node, call, lengths, row, 0)
    if status != OK or tensor.element_count == 0 or given.address == 0:
        return status
    count, elements = minimum(given.dims[0], MAX_DIMS), int64_pointer(given.address)
    for i in range(count):
        call.lengths[i] = elements[i]
    for i in range(minimum(count, tensor.element_count)):
        length, axis = call.lengths[i], tensor.element_axes[i]
        if length < 0:
            return write_error(node, call, lengths, row, errors.OF_ELEMENTS + i, errors.NO_NEGATIVE)
        if not _agree(lengths, axis, length, name):
            return write_error(node, call, lengths, row, errors.OF_ELEMENTS + i, axis)
    return _solve(node, call, lengths, row, errors.OF_ELEMENTS)


@compiled
def _agree(lengths: Lengths, axis: int, length: int, source: int) -> bool:
    """Store an axis's length and the text `source` that names its origin; return whether it agrees with a known length."""
    if axis >= 0 and lengths.known[axis] == UNKNOWN:
        lengths.known[axis], lengths.sources[axis] = length, source
        return True
    return length == UNKNOWN or length == (lengths.known[axis] if axis >= 0 else -1 - axis)


@compiled
def _solve(node: Node, call: Call, lengths: Lengths, row: int, place: int) -> int:
    """Add the lengths that follow from equations, and check known lengths.

    Input `row` gave lengths: by its shape if `place` is 0, by its elements if it is OF_ELEMENTS.
    """
    definition, known = node.definition, lengths.known
    for number in range(definition.equation_count):
        equation = definition.equations[number]
        divisor = _product(equation, lengths, 1)
        part, whole = known[equation.part], known[equation.whole]
        if divisor == UNKNOWN:
            continue
        if part != UNKNOWN:
            expected = _product(equation, lengths, part)
            if whole != UNKNOWN and whole != expected:
                return write_error(node, call, lengths, row, place + number, errors.PRODUCT)
            if whole == UNKNOWN:
                known[equation.whole] = expected
                lengths.sources[equation.whole] = equation.source
        elif whole != UNKNOWN:
            if whole % divisor != 0 if divisor != TOO_LONG else whole != 0:
                return write_error(node, call, lengths, row, place + number, errors.MULTIPLE)
            known[equation.part] = whole // divisor if divisor != TOO_LONG else 0
            lengths.sources[equation.part] = equation.source
    return OK


@compiled
def _product(equation: Equation, lengths: Lengths, factor: int) -> int:
    """The product of a length and an equation's divisors; UNKNOWN if one of them is unknown or 0; or TOO_LONG."""
    result = factor
    for k in range(equation.divisor_count):
        divisor = lengths.known[equation.divisors[k]]
        if divisor <= 0:
            return UNKNOWN
        result = TOO_LONG if result == TOO_LONG or result > _MAX_LENGTH // divisor else result * divisor
    return result


@compiled
def _set_shape(node: Node, call: Call, lengths: Lengths, row: int) -> int:
    """Set an output's rank and dimensions, and check that its lengths fit in 64 bits."""
    definition, target = node.definition, call.tensors[row]
    tensor = definition.tensors[row]
    is_variable, leading, source = tensor.is_variable_rank != 0, 0, tensor.leading_from
    if source != NONE and call.tensors[source].type != 0:
        leading = maximum(call.tensors[source].rank - definition.tensors[source].least_rank, 0)
    rank = lengths.known[definition.rank_axis] if is_variable else tensor.least_rank + leading
    if is_variable and rank > MAX_RANK:
        rank = UNKNOWN  # a shape may be this long, but no tensor has this rank
    if source != NONE and call.tensors[source].type != 0 and call.tensors[source].rank < 0:
        rank = UNKNOWN  # in a model
    target.rank = rank
    for i in range(rank):
        if tensor.derived_from != NONE:
            length = _scaled(node, tensor, lengths.known[tensor.derived_from + i], i)
            if length == TOO_LONG:
                return write_error(node, call, lengths, row, i, errors.SCALED)
        else:
            axis = tensor.axes[i - leading] if i >= leading else -2
            length = _known_length(definition, lengths, axis) if axis >= 0 else -1 - axis
        target.dims[i] = length
    return OK


@compiled
def _known_length(definition: Definition, lengths: Lengths, axis: int) -> int:
    """The length of an output's axis; UNKNOWN if it does not follow from the inputs."""
    for number in range(definition.equation_count if lengths.known[axis] == UNKNOWN else 0):
        equation = definition.equations[number]
        for k in range(equation.divisor_count if equation.whole == axis else 0):
            if lengths.known[equation.divisors[k]] == 0:  # `_solve` divides by no 0
                return 0
    return maximum(lengths.known[axis], UNKNOWN)


@compiled
def _scaled(node: Node, tensor: TensorDefinition, length: int, i: int) -> int:
    """The length of an output's axis i by `spec.Scaled`; TOO_LONG if it does not fit in 64 bits."""
    sizes, scales = node.attributes[tensor.sizes], node.attributes[tensor.scales]
    if sizes.count > 0:
        return sizes.values.ints[i]
    if scales.count == 0 or length == UNKNOWN:
        return UNKNOWN
    scaled = length * scales.values.floats[i]
    return TOO_LONG if scaled >= _TOO_LONG else int(scaled)
