# SPDX-License-Identifier: MIT
"""Intrinsics for text in compiled code: constants, and the C library's functions that print and read numbers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_BYTE, _INT, _INT64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


@intrinsic(prefer_literal=True)
def text(_typing: Any, literal: Any) -> Any:
    """The address of a string literal as a constant C string in UTF-8."""
    content = bytearray(literal.literal_value.encode() + b"\0")

    def codegen(_context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        constant = cgutils.make_bytearray(content)
        string = cgutils.global_constant(builder.module, "text", constant, linkage="private")
        string.unnamed_addr = True
        return builder.ptrtoint(string, _INT64)

    return types.intp(literal), codegen


def _print(value_type: Any) -> Any:
    """An intrinsic for C's `snprintf` with a single number as its variable argument."""

    @intrinsic
    def print_number(_typing: Any, target: Any, size: Any, form: Any, value: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            pointer = _BYTE.as_pointer()
            function_type = ir.FunctionType(_INT, [pointer, _INT64, pointer], var_arg=True)
            function = cgutils.get_or_insert_function(builder.module, function_type, "snprintf")
            addresses = [builder.inttoptr(args[0], pointer), args[1], builder.inttoptr(args[2], pointer)]
            return builder.sext(builder.call(function, [*addresses, args[3]]), _INT64)

        return types.intp(types.intp, types.intp, types.intp, value_type), codegen

    return print_number


format_integer, format_float = _print(types.int64), _print(types.float64)
"""C's `snprintf`: print an int64 (%lld) or a float64 into a buffer of a given address and size."""

parse_float = types.ExternalFunction("strtod", types.float64(types.intp, types.intp))
"""C's `strtod`: the nearest float64 to the number at an address; the second argument is 0."""
