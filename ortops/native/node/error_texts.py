# SPDX-License-Identifier: MIT
"""Write the text of an error that `shapes` finds."""

from __future__ import annotations

from ortops.compiler.compile import compiled, noinline
from ortops.compiler.scalar import local, minimum
from ortops.compiler.text import text
from ortops.native.node.messages import write_float, write_int, write_list, write_product, write_shape, write_text
from ortops.native.types import INVALID, MAX_AXES, MAX_DIMS, Call, Definition, Equation, Lengths, Node, Tensor

UNKNOWN, TOO_LONG = -1, -2
"""Values for a length that is unknown, and for a length that does not fit in 64 bits."""

(REQUIRED, ANY_RANK, NO_NEGATIVE, PRODUCT, MULTIPLE, SCALED, LEFT_OUT, NEEDED_BY_ATTRIBUTE, NEEDED_BY_OUTPUT) = range(
    MAX_AXES, MAX_AXES + 9
)
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
def write_error(node: Node, call: Call, lengths: Lengths, row: int, place: int, rule: int) -> int:
    """Write an error's text into a call, and return INVALID.

    `row` is that of the input that breaks the rule; for SCALED, of the output. `place` is the part that is wrong, as the
    rule describes; for a rule about lengths, an index, or see OF_ELEMENTS.
    """
    definition = node.definition
    tensor = definition.tensors[row]
    if rule == LEFT_OUT:
        write_text(call, definition.output_names)
        write_text(call, text(" are left out: at least one output is required"))
    elif rule == SCALED:
        _write_item(call, definition.attributes[tensor.scales].name, place)
        write_text(call, text(" = "))
        write_float(call, node.attributes[tensor.scales].values.floats[place])
        write_text(call, text(": must not make an axis longer than 2**63 - 1"))
    elif rule in (REQUIRED, NEEDED_BY_ATTRIBUTE, NEEDED_BY_OUTPUT):
        _write_missing(node, call, tensor.name, place, rule)
    else:
        _write_given(call, tensor.name, call.tensors[row], OF_ELEMENTS <= place < OF_RANK)
        if rule == ANY_RANK:
            write_text(call, tensor.rank_rule)
        elif rule in (PRODUCT, MULTIPLE):
            _write_equation(definition, call, lengths, definition.equations[place % OF_ELEMENTS], rule)
        else:
            _write_length(definition, call, lengths, tensor.name, place, rule)
    return INVALID


@compiled
def _write_missing(node: Node, call: Call, name: int, place: int, rule: int) -> None:
    """Write that an input is missing and why it is needed."""
    definition = node.definition
    write_text(call, name)
    write_text(call, text(" is missing: "))
    if rule == REQUIRED:
        write_text(call, definition.name)
        write_text(call, text(" requires it"))
        return
    write_text(call, text("must be given for "))
    if rule == NEEDED_BY_OUTPUT:
        write_text(call, definition.tensors[place].name)
        return
    attribute = definition.attributes[place]
    write_text(call, attribute.name)
    write_text(call, text(" = '"))
    write_text(call, attribute.choices[node.attributes[place].values.ints[0]])
    write_text(call, text("'"))


@compiled
def _write_given(call: Call, name: int, given: Tensor, of_elements: bool) -> None:
    write_text(call, name)
    if of_elements:
        write_text(call, text(" is "))
        write_list(call, call.lengths, minimum(given.dims[0], MAX_DIMS), False)
    else:
        write_text(call, text(" has shape "))
        write_shape(call, given)
    write_text(call, text(": "))


@compiled
def _write_length(definition: Definition, call: Call, lengths: Lengths, name: int, place: int, rule: int) -> None:
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
        _write_known(definition, call, lengths, rule)
        write_text(call, text(" ("))
        write_text(call, definition.axes[rule].name)
        write_text(call, text(" of "))
        write_text(call, lengths.sources[rule])
        write_text(call, text(")"))


@compiled
def _write_known(definition: Definition, call: Call, lengths: Lengths, axis: int) -> None:
    if lengths.known[axis] != TOO_LONG:
        write_int(call, lengths.known[axis])
        return
    for number in range(definition.equation_count):
        equation = definition.equations[number]
        if equation.whole == axis:
            _write_product(call, lengths, equation, lengths.known[equation.part])


@compiled
def _write_equation(definition: Definition, call: Call, lengths: Lengths, equation: Equation, rule: int) -> None:
    """Write the length that an equation forbids, and the correct length."""
    whole, part = equation.whole, equation.part
    write_text(call, definition.axes[whole].name)
    write_text(call, text(" = "))
    write_int(call, lengths.known[whole])
    write_text(call, text(" must be a multiple of ") if rule == MULTIPLE else text(" must be "))
    _write_product(call, lengths, equation, 1 if rule == MULTIPLE else lengths.known[part])
    write_text(call, text(" ("))
    if rule == PRODUCT:
        write_text(call, definition.axes[part].name)
        write_text(call, text(" * "))
    write_text(call, equation.product)
    write_text(call, text(")"))


@compiled
def _write_product(call: Call, lengths: Lengths, equation: Equation, factor: int) -> None:
    """Write the product of a length and an equation's divisors, even if it does not fit in 64 bits."""
    factors = local(0)
    factors[0] = factor
    for k in range(equation.divisor_count):
        factors[1 + k] = lengths.known[equation.divisors[k]]
    write_product(call, factors, 1 + equation.divisor_count)


@compiled
def _write_item(call: Call, name: int, index: int) -> None:
    write_text(call, name)
    write_text(call, text("["))
    write_int(call, index)
    write_text(call, text("]"))
