"""The C functions of the interface, by which Python and other hosts call operators without ONNX Runtime (ortops.h).

They read what a caller gives as `calls.layout` and `library.compiled.layout` describe it.
"""

from __future__ import annotations

from ortops.calls.definition_words import (
    ELEMENT_TYPE_COUNT,
    ELEMENT_TYPES,
    INPUT_COUNT,
    OUTPUT_COUNT,
    TENSOR_ITEM_WORDS,
    TENSOR_NAME,
    TENSORS_AT,
    TYPE_ITEM_WORDS,
    TYPE_VARIABLE,
    TYPES_AT,
)
from ortops.calls.layout import (
    ADDRESS,
    DEFINITION,
    DIMS,
    DIMS_COUNT,
    ENTER,
    ENTRY,
    INVALID,
    MAX_DIMS,
    OK,
    OUT_OF_MEMORY,
    SHAPES,
    SHORT_OF_MEMORY,
    TENSOR_WORDS,
    TENSORS,
    TEXT,
    TYPE,
)
from ortops.calls.messages import write_int, write_text
from ortops.engine.compiled.layout import INPUT_TYPE, NAME
from ortops.jit.compile import compiled, noinline, small
from ortops.jit.elements import Words
from ortops.jit.parallel import allocate, call_unchecked, release
from ortops.jit.scalar import address_of, int64_pointer, minimum, offset
from ortops.jit.text import text
from ortops.library.compiled.attributes import OF_CALLER, release_lists
from ortops.library.compiled.layout import (
    FIRST_OPERATOR,
    NODE_WORDS,
    OPERATOR_COUNT,
    OPERATOR_NAME,
    OPERATOR_RECORD,
    OPERATOR_VERSION,
    OPERATOR_WORDS,
    TABLE,
    TABLE_WORDS,
)
from ortops.library.compiled.registration import fill_node, fill_table
from ortops.library.compiled.strings import is_same_text

_FIRST_TYPE = TABLE + INPUT_TYPE - NAME
"""The index of the first input's element type in the record of an operator."""


@small
def make_node(operators: Words, name: int, element_type: int, count: int, rows: int, call: Words) -> int:
    """Make a node, which `release_node` ends. Any number of threads may compute it at once.

    Args:
        operators: the record of operators (`layout`).
        name: the operator's name, a C string; not of one of ONNX's own operators.
        element_type: the element type of its first input, as ONNX's TensorProto.DataType.
        count: the number of attributes.
        rows: the address of their rows.
        call: gets the text of an error.

    Returns:
        The address of the node; 0 with a text in the call.
    """
    call[TEXT], is_known = 0, False
    for i in range(operators[OPERATOR_COUNT]):
        row = offset(operators, FIRST_OPERATOR + i * OPERATOR_WORDS)
        if row[OPERATOR_VERSION] == 0 and is_same_text(name, row[OPERATOR_NAME]):
            operator, is_known = int64_pointer(row[OPERATOR_RECORD]), True
            if operator[_FIRST_TYPE] == element_type:
                return _make(operator, count, rows, call)
    write_text(call, name)
    if is_known:
        write_text(call, text(" does not take element type "))
        write_int(call, element_type)
    else:
        write_text(call, text(" is no operator of this library"))
    return 0


@compiled
def _make(operator: Words, count: int, rows: int, call: Words) -> int:
    memory = allocate(1 + operator[NODE_WORDS])
    if address_of(memory) == 0:
        write_text(call, text("out of memory"))
        return 0
    memory[0] = operator[_FIRST_TYPE]
    node = offset(memory, 1)
    if fill_node(node, call, operator, count, rows, OF_CALLER) == OK:
        address: int = address_of(node)
        return address
    release_node(node)
    return 0


@compiled
def release_node(node: Words) -> int:
    """End a node, which nobody computes any more."""
    release_lists(node)
    release(offset(node, -1))
    return 0


@small
def infer_shapes_of_arrays(node: Words, call: Words) -> int:
    """As `infer_shapes`, of a call whose inputs are NumPy arrays.

    Args:
        node: the node.
        call: the call. An input's ADDRESS is that of the fields of its array object, and its dimensions are not set.
    """
    for i in range(int64_pointer(node[DEFINITION])[INPUT_COUNT]):
        tensor = offset(call, TENSORS + i * TENSOR_WORDS)
        if tensor[TYPE] != 0:
            array = int64_pointer(tensor[ADDRESS])  # NumPy's binary interface: elements, rank, dimensions
            tensor[ADDRESS], tensor[DIMS_COUNT] = array[0], minimum(array[1] & 0xFFFFFFFF, MAX_DIMS)
            for k in range(tensor[DIMS_COUNT]):
                tensor[DIMS + k] = int64_pointer(array[2])[k]
    return infer_shapes(node, call)


@small
def infer_shapes(node: Words, call: Words) -> int:
    """Check the types and the shapes of a call's inputs, and set the types and the shapes of its outputs.

    Args:
        node: the node.
        call: the call with its inputs. An input that is left out has TYPE 0, and so have outputs before the call.

    Returns:
        OK; INVALID with a text in the call.
    """
    status = _check_types(node, call)
    if status == OK:
        status = call_unchecked(int64_pointer(node[SHAPES])[0], (node, call))
    return status


@compiled
def _check_types(node: Words, call: Words) -> int:
    """Check the element types of the inputs, and set those of the outputs."""
    definition = int64_pointer(node[DEFINITION])
    items, inputs = offset(definition, definition[TENSORS_AT]), definition[INPUT_COUNT]
    for i in range(inputs + definition[OUTPUT_COUNT]):
        variable, tensor = items[i * TENSOR_ITEM_WORDS + TYPE_VARIABLE], offset(call, TENSORS + i * TENSOR_WORDS)
        allowed = offset(definition, definition[TYPES_AT] + variable * TYPE_ITEM_WORDS)
        expected = node[-1] if variable == items[TYPE_VARIABLE] else 0
        for k in range(minimum(i, inputs)):
            if expected == 0 and items[k * TENSOR_ITEM_WORDS + TYPE_VARIABLE] == variable:
                expected = call[TENSORS + k * TENSOR_WORDS + TYPE]
        if i >= inputs:
            tensor[TYPE] = expected or allowed[ELEMENT_TYPES]
        elif tensor[TYPE] != 0 and not _is_allowed(allowed, expected, tensor[TYPE]):
            return _refuse_type(items[i * TENSOR_ITEM_WORDS + TENSOR_NAME], call, allowed, expected, tensor[TYPE])
    return OK


@compiled
def _is_allowed(allowed: Words, expected: int, element_type: int) -> bool:
    if expected != 0:
        return element_type == expected
    is_allowed = False
    for k in range(allowed[ELEMENT_TYPE_COUNT]):
        is_allowed = is_allowed or allowed[ELEMENT_TYPES + k] == element_type
    return is_allowed


@noinline
def _refuse_type(name: int, call: Words, allowed: Words, expected: int, element_type: int) -> int:
    """Write the error of an element type."""
    call[TEXT] = 0
    write_text(call, name)
    write_text(call, text(" has element type "))
    write_int(call, element_type)
    write_text(call, text(": must be "))
    if expected != 0:
        write_int(call, expected)
        return INVALID
    for k in range(allowed[ELEMENT_TYPE_COUNT]):
        if k > 0:
            write_text(call, text(" or "))
        write_int(call, allowed[ELEMENT_TYPES + k])
    return INVALID


@small
def compute(node: Words, call: Words) -> int:
    """Compute the outputs of a call for which `infer_shapes` has succeeded.

    Args:
        node: the node.
        call: the call, whose outputs have memory for their shapes, and TYPE 0 if they are not wanted.

    Returns:
        OK; INVALID or OUT_OF_MEMORY with a text in the call; INTERRUPTED if a signal handler of Python raised.
    """
    status: int = call_unchecked(int64_pointer(node[SHAPES])[1], (node, call))
    if status != OK:
        return status
    entry = int64_pointer(node[ENTRY])
    status = call_unchecked(entry[ENTER], (node, call))
    if status == OUT_OF_MEMORY:
        write_text(call, entry[SHORT_OF_MEMORY])
    return status


@small
def make_table(operator: Words, api: int, version: int) -> int:
    """Make the OrtCustomOp of an operator, which `release_table` ends.

    Args:
        operator: the operator's record (`layout`).
        api: the address of OrtApi.
        version: the release of ONNX Runtime, as `registration.release_number` has it.

    Returns:
        Its address, 0 if memory has run out.
    """
    table = allocate(operator[TABLE_WORDS])
    if address_of(table) == 0:
        return 0
    for i in range(operator[TABLE_WORDS]):
        table[i] = 0
    fill_table(table, operator, api, version)
    address: int = address_of(table)
    return address
