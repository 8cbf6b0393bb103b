# SPDX-License-Identifier: MIT
"""The C functions of the interface, by which Python and other hosts call operators without ONNX Runtime (ortops.h)."""

from __future__ import annotations

from ortops.compiler.compile import compiled, noinline, optimize_for_size
from ortops.compiler.parallel import allocate, release
from ortops.compiler.parallel import call as invoke
from ortops.compiler.scalar import address_of, minimum
from ortops.compiler.struct_types import allocate_struct, clear_struct, struct_at
from ortops.compiler.text import text
from ortops.native.elements import Words
from ortops.native.interface import OperatorList, TypedOperator
from ortops.native.node.attributes import OF_CALLER, release_lists
from ortops.native.node.messages import is_same_text, write_int, write_text
from ortops.native.node.shapes import given_type
from ortops.native.ort.registration import fill_node, fill_table, node_words
from ortops.native.ort.types import Table
from ortops.native.structs import Struct
from ortops.native.types import INVALID, MAX_DIMS, OK, OUT_OF_MEMORY, Call, Node, TypeVariable


@optimize_for_size
def make_node(operators: OperatorList, name: int, element_type: int, count: int, given: int, call: Call) -> int:
    """Make a node, which `release_node` ends. Any number of threads may compute it at once.

    Args:
        name: the operator's name, a C string; not of one of ONNX's own operators.
        element_type: the element type of its first input, as ONNX's TensorProto.DataType.
        count: the number of attributes that are given.
        given: the address of these (`native.interface.Given`).
        call: gets the text of an error.

    Returns:
        The address of the node; 0 with a text in the call.
    """
    call.text_size, is_known = 0, False
    for i in range(operators.count):
        listed = operators.operators[i]
        if listed.version == 0 and is_same_text(name, listed.name):
            is_known = True
            if listed.operator.node.first_type == element_type:
                return _make(listed.operator, count, given, call)
    write_text(call, name)
    if is_known:
        write_text(call, text(" does not take element type "))
        write_int(call, element_type)
    else:
        write_text(call, text(" is no operator of this library"))
    return 0


@compiled
def _make(operator: TypedOperator, count: int, given: int, call: Call) -> int:
    node = struct_at(Node, address_of(allocate(node_words(operator))))
    address: int = address_of(node)
    if address == 0:
        write_text(call, text("out of memory"))
    elif fill_node(node, call, operator, count, given, OF_CALLER) != OK:
        release_node(node)
        return 0
    return address


@compiled
def release_node(node: Node) -> int:
    """End a node, which nobody computes any more."""
    release_lists(node)
    release(node)
    return 0


class Array(Struct):
    """The first fields of a NumPy array, from NumPy's binary interface; the rank is an int32."""

    elements: int
    rank: int
    dims: Words


@optimize_for_size
def infer_shapes_of_arrays(node: Node, call: Call) -> int:
    """As `infer_shapes`, of NumPy arrays: an input's address is that of an `Array`, and its dimensions are not set."""
    for i in range(node.definition.input_count):
        tensor = call.tensors[i]
        if tensor.type != 0:
            array = struct_at(Array, tensor.address)
            tensor.address, tensor.rank = array.elements, minimum(array.rank & 0xFFFFFFFF, MAX_DIMS)
            for k in range(tensor.rank):
                tensor.dims[k] = array.dims[k]
    return infer_shapes(node, call)


@optimize_for_size
def infer_shapes(node: Node, call: Call) -> int:
    """Check the types and the shapes of a call's inputs, and set the types and the shapes of its outputs.

    Args:
        call: the call with its inputs. An input that is left out has type 0, and so have outputs before the call.

    Returns:
        OK; INVALID with a text in the call.
    """
    status = _check_types(node, call)
    return invoke(node.shapes.infer, (node, call)) if status == OK else status


@compiled
def _check_types(node: Node, call: Call) -> int:
    """Check the element types of the inputs, and set those of the outputs."""
    definition = node.definition
    tensors, inputs = definition.tensors, definition.input_count
    for i in range(inputs + definition.output_count):
        variable, tensor = tensors[i].type_variable, call.tensors[i]
        allowed = definition.types[variable]
        expected = node.first_type if variable == tensors[0].type_variable else 0
        expected = expected or given_type(definition, call, variable, minimum(i, inputs))
        if i >= inputs:
            tensor.type = expected or allowed.types[0]
        elif tensor.type != 0 and not _is_allowed(allowed, expected, tensor.type):
            return _write_type_error(tensors[i].name, call, allowed, expected, tensor.type)
    return OK


@compiled
def _is_allowed(allowed: TypeVariable, expected: int, element_type: int) -> bool:
    if expected != 0:
        return element_type == expected
    is_allowed = False
    for k in range(allowed.count):
        is_allowed = is_allowed or allowed.types[k] == element_type
    return is_allowed


@noinline
def _write_type_error(name: int, call: Call, allowed: TypeVariable, expected: int, element_type: int) -> int:
    call.text_size = 0
    write_text(call, name)
    write_text(call, text(" has element type "))
    write_int(call, element_type)
    write_text(call, text(": must be "))
    if expected != 0:
        write_int(call, expected)
        return INVALID
    for k in range(allowed.count):
        if k > 0:
            write_text(call, text(" or "))
        write_int(call, allowed.types[k])
    return INVALID


@optimize_for_size
def compute(node: Node, call: Call) -> int:
    """Compute the outputs of a call for which `infer_shapes` has succeeded.

    Args:
        call: the call, whose outputs have memory for their shapes, and type 0 if they are not wanted.

    Returns:
        OK; INVALID or OUT_OF_MEMORY with a text in the call; INTERRUPTED if a signal handler of Python raised.
    """
    status = invoke(node.shapes.check, (node, call))
    if status != OK:
        return status
    status = invoke(node.entry.enter, (node, call))
    if status == OUT_OF_MEMORY:
        write_text(call, node.entry.short_of_memory)
    return status


@optimize_for_size
def make_table(operator: TypedOperator, api: int, version: int) -> int:
    """Make the OrtCustomOp of an operator, which `release_table` ends; its address, 0 if memory has run out.

    The version is the release of ONNX Runtime, as `registration.release_number` has it.
    """
    table = allocate_struct(Table)
    if table is None:
        return 0
    clear_struct(table)
    fill_table(table, operator, api, version)
    address: int = address_of(table)
    return address
