# SPDX-License-Identifier: MIT
"""An operator's callbacks (OrtCustomOp) that return a number, emitted without compiling a function for each."""

from __future__ import annotations

import ctypes
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ortops.compiler.compile import compiled
from ortops.compiler.parallel import pointer_to
from ortops.native.interface import Signature, TensorTypes
from ortops.native.ort.types import CustomOp, Table
from ortops.native.python_api import call_python

_INT64 = ir.IntType(64)


def _getter(builder: Any, parameters: int, result: Any) -> Any:
    """Emit the address of a C function of a table and a number, from a function that emits what it returns."""
    kind = ir.FunctionType(_INT64, [_INT64] * parameters)
    function = ir.Function(builder.module, kind, name=builder.module.get_unique_name("getter"))
    function.linkage = "internal"
    body = ir.IRBuilder(function.append_basic_block("entry"))
    body.ret(result(body, *function.args))
    return builder.ptrtoint(function, _INT64)


def _emit_load(body: Any, address: Any) -> Any:
    return body.load(body.inttoptr(address, _INT64.as_pointer()))


@intrinsic(prefer_literal=True)
def _constant(_typing: Any, value: Any) -> Any:
    """The address of a C function (table) that returns a constant; ONNX Runtime may pass a number, too."""
    result = _INT64(value.literal_value)
    return types.intp(value), lambda _context, builder, _signature, _args: _getter(builder, 1, lambda *_: result)


@intrinsic(prefer_literal=True)
def _of_signature(_typing: Any, field: Any) -> Any:
    """The address of a C function (table) that returns a field of the table's signature."""
    at = Table.fields["signature"].offset + Signature.fields[field.literal_value].offset

    def codegen(_context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        return _getter(builder, 1, lambda body, table: _emit_load(body, body.add(table, _INT64(at))))

    return types.intp(field), codegen


@intrinsic(prefer_literal=True)
def _of_tensor(_typing: Any, field: Any) -> Any:
    """The address of a C function (table, i) that returns a field of tensor i of the table's signature."""
    first = Table.fields["signature"].offset + Signature.fields["tensors"].offset
    at, size = first + TensorTypes.fields[field.literal_value].offset, ctypes.sizeof(TensorTypes)

    def codegen(_context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        def emit(body: Any, table: Any, i: Any) -> Any:
            return _emit_load(body, body.add(body.add(table, _INT64(at)), body.mul(i, _INT64(size))))

        return _getter(builder, 2, emit)

    return types.intp(field), codegen


@compiled
def _name(table: Table) -> int:
    """GetName: ONNX Runtime calls it only while it makes a session, on the thread that makes it."""
    if table.maker is not None:
        thread = table.maker[0]
        if thread != 0 and thread == call_python("PyThread_get_thread_ident", ()):
            return table.maker_name
    return table.signature.name


@compiled
def fill_getters(table: CustomOp, version: int) -> None:
    """Set the interface's version and these callbacks."""
    table.version = version
    table.get_name = pointer_to(_name)
    table.get_input_type_count = _of_signature("input_count")
    table.get_output_type_count = _of_signature("output_count")
    table.get_input_type = _of_tensor("input_type")
    table.get_output_type = _of_tensor("output_type")
    table.get_input_characteristic = _of_tensor("input_presence")
    table.get_output_characteristic = _of_tensor("output_presence")
    table.get_execution_provider_type = table.get_input_memory_type = _constant(0)  # the CPU, and the default
    # At least one tensor, all of one type.
    table.get_variadic_input_min_arity = table.get_variadic_input_homogeneity = _constant(1)
    table.get_variadic_output_min_arity = table.get_variadic_output_homogeneity = _constant(1)
    table.get_start_version = _constant(1)
    table.get_end_version = _constant(2**31 - 1)
