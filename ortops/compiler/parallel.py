# SPDX-License-Identifier: MIT
"""Intrinsics for compiled code: make tasks for a runner (`compute.runner_on`), call C functions, allocate memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, get_type_hints

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ortops.compiler.scalar import is_elements
from ortops.compiler.struct_types import is_pointer, parameter_type

_BYTE, _INT64 = ir.IntType(8), ir.IntType(64)


def from_words(context: Any, builder: Any, words: Iterator[Any], value_type: Any) -> Any:
    """Emit a value from the next words; a tuple takes a word for each number or pointer."""
    if isinstance(value_type, types.BaseTuple):
        parts = [from_words(context, builder, words, part) for part in value_type.types]
        return context.make_tuple(builder, value_type, parts)
    word = next(words)
    if is_pointer(value_type):
        return builder.inttoptr(word, context.get_value_type(value_type))
    if value_type == types.boolean:
        return builder.icmp_unsigned("!=", word, _INT64(0))
    return builder.bitcast(word, ir.DoubleType()) if value_type == types.float64 else word


def to_words(builder: Any, value: Any, value_type: Any) -> Iterator[Any]:
    """Emit a value's words."""
    if isinstance(value_type, types.BaseTuple):
        for i, part in enumerate(value_type.types):
            yield from to_words(builder, builder.extract_value(value, i), part)
    elif is_pointer(value_type):
        yield builder.ptrtoint(value, _INT64)
    elif value_type == types.boolean:
        yield builder.zext(value, _INT64)
    else:
        yield builder.bitcast(value, _INT64) if value_type == types.float64 else value


def emit_c_function(context: Any, module: Any, name: str, overload: Any, parameters: Sequence[Any]) -> Any:
    """Emit a C function that calls a compiled function: of words, for the word of its result, or 0.

    Args:
        context: numba's target context.
        module: the LLVM module.
        name: the name of the C function.
        overload: the compiled function.
        parameters: the types of its parameters.
    """
    function = ir.Function(module, ir.FunctionType(_INT64, [_INT64] * sum(map(_word_count, parameters))), name)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    words = iter(function.args)
    values = [from_words(context, builder, words, parameter) for parameter in parameters]
    callee, returned = context.declare_function(module, overload.fndesc), overload.signature.return_type
    _, result = context.call_conv.call_function(builder, callee, returned, parameters, values)
    word_type = types.unliteral(returned)
    builder.ret(_INT64(0) if word_type == types.none else next(to_words(builder, result, word_type)))
    return function


def _word_count(value_type: Any) -> int:
    return sum(map(_word_count, value_type.types)) if isinstance(value_type, types.BaseTuple) else 1


@intrinsic
def task_of(typing: Any, kernel: Any, args: Any) -> Any:
    """The address of a C function task(data, worker) that calls kernel(*args, first, last, worker), and its data.

    The data lie on the caller's stack: first and last, which the caller or `tasks.run_in_chunks` sets, then args.
    """
    signature = kernel.get_call_type(typing, (*args.types, types.intp, types.intp, types.intp), {})
    result = types.Tuple((types.intp, types.CPointer(types.int64)))

    def codegen(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        overload = kernel.dispatcher.get_compile_result(signature)
        context.add_linking_libs((overload.library,))
        data_type = ir.LiteralStructType([_INT64, _INT64, values[1].type])
        data = cgutils.alloca_once(builder, data_type)
        builder.store(values[1], cgutils.gep_inbounds(builder, data, 0, 2))

        name = builder.module.get_unique_name(f"task.{overload.fndesc.mangled_name}")
        task_type = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _INT64])
        task = ir.Function(builder.module, task_type, name=name)
        task.linkage = "internal"
        body = ir.IRBuilder(task.append_basic_block("entry"))
        first, last, given = cgutils.unpack_tuple(body, body.load(body.bitcast(task.args[0], data.type)), 3)
        callee = context.declare_function(builder.module, overload.fndesc)
        parts = [*cgutils.unpack_tuple(body, given, len(args.types)), first, last, task.args[1]]
        context.call_conv.call_function(body, callee, signature.return_type, signature.args, parts)
        body.ret_void()
        pair = [builder.ptrtoint(task, _INT64), builder.bitcast(data, _INT64.as_pointer())]
        return context.make_tuple(builder, result, pair)

    return result(kernel, args), codegen


@intrinsic(prefer_literal=True)
def for_count(typing: Any, function: Any, count: Any, most: Any, args: Any) -> Any:
    """Call function(count, *args), specialised for each count from 1 to `most`, so that an `inline` function's loops unroll.

    `most` is a constant, at most MAX_UNROLLED.
    """
    cases = most.literal_value
    given = types.BaseTuple.from_types(tuple(map(types.unliteral, args.types)))
    signature = function.get_call_type(typing, (types.intp, *given.types), {})

    def codegen(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        overload = function.dispatcher.get_compile_result(signature)
        context.add_linking_libs((overload.library,))
        callee = context.declare_function(builder.module, overload.fndesc)
        parts = cgutils.unpack_tuple(builder, values[3], len(given.types))
        blocks = [builder.append_basic_block() for _ in range(cases + 1)]
        switch = builder.switch(values[1], blocks[-2])
        for number, block in enumerate(blocks[:-1], 1):
            switch.add_case(_INT64(number), block)
            builder.position_at_end(block)
            arguments = [_INT64(number), *parts]
            context.call_conv.call_function(builder, callee, signature.return_type, signature.args, arguments)
            builder.branch(blocks[-1])
        builder.position_at_end(blocks[-1])
        return context.get_dummy_value()

    return types.void(function, types.intp, types.intp, given), codegen


@intrinsic
def call_unchecked(_typing: Any, function: Any, args: Any) -> Any:
    """`call` for a function of unknown type."""

    def codegen(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        words = []
        for i, argument in enumerate(args.types):
            value = builder.extract_value(values[1], i)
            words += list(to_words(builder, value, argument))[: 1 if is_elements(argument) else None]
        function_type = ir.FunctionType(_INT64, [_INT64] * len(words))
        return builder.call(builder.inttoptr(values[0], function_type.as_pointer()), words)

    return types.intp(types.intp, args), codegen


if TYPE_CHECKING:
    from typing import TypeVarTuple

    from ortops.native.elements import Address

    Parameters = TypeVarTuple("Parameters")

    def call(function: Address[Callable[[*Parameters], object]], args: tuple[*Parameters]) -> int:
        """Call the C function at an address with each argument's words, and return its 64-bit result.

        `Elements` are passed as their address, since the function knows their type.
        """
else:
    call = call_unchecked


@intrinsic
def pointer_to(typing: Any, function: Any) -> Any:
    """The address of a C function that wraps a compiled function.

    Its parameters and its result are numbers, structs or pointers, which are passed as 64-bit words. Annotations give the
    parameters' types.
    """
    python = function.dispatcher.py_func
    hints = get_type_hints(python, include_extras=True)
    parameters = [parameter_type(hints[name]) for name in python.__code__.co_varnames[: python.__code__.co_argcount]]
    signature = function.get_call_type(typing, tuple(parameters), {})

    def codegen(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        overload = function.dispatcher.get_compile_result(signature)
        context.add_linking_libs((overload.library,))
        name = builder.module.get_unique_name(f"c.{overload.fndesc.mangled_name}")
        wrapper = emit_c_function(context, builder.module, name, overload, parameters)
        wrapper.linkage = "internal"
        return builder.ptrtoint(wrapper, _INT64)

    return types.intp(function), codegen


@intrinsic
def add_atomically(_typing: Any, pointer: Any, value: Any) -> Any:
    """Add to an int64 in memory atomically, and return what it was before."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", *args, "seq_cst")

    return types.int64(types.CPointer(types.int64), types.int64), codegen


@intrinsic
def static_word(_typing: Any) -> Any:
    """A pointer to a static int64, initially 0; each call in the source code has its own."""

    def codegen(_context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        word = cgutils.add_global_variable(builder.module, _INT64, builder.module.get_unique_name("static_word"))
        word.initializer, word.linkage = _INT64(0), "internal"
        return word

    return types.CPointer(types.int64)(), codegen


@intrinsic(prefer_literal=True)
def shared_word(_typing: Any, name: Any) -> Any:
    """A pointer to the int64 of a name that all functions of a library share, initially 0 (`library.exports` has it)."""
    symbol = f"ortops.{name.literal_value}"

    def codegen(_context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        known = builder.module.globals.get(symbol)
        return known or ir.GlobalVariable(builder.module, _INT64, symbol)

    return types.CPointer(types.int64)(name), codegen


@intrinsic
def exchange_if(_typing: Any, pointer: Any, old: Any, new: Any) -> Any:
    """Atomically replace an int64 in memory by `new` if it equals `old`, and return whether it did."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        result = builder.cmpxchg(args[0], args[1], args[2], "seq_cst")
        return builder.extract_value(result, 1)

    return types.boolean(types.CPointer(types.int64), types.int64, types.int64), codegen


@intrinsic
def allocate(_typing: Any, words: Any) -> Any:
    """Allocate uninitialised memory for `words` int64s; a null pointer if memory has run out."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        function_type = ir.FunctionType(_BYTE.as_pointer(), [_INT64])
        malloc = cgutils.get_or_insert_function(builder.module, function_type, "malloc")
        # Never ask for 0 bytes: malloc may return null.
        memory = builder.call(malloc, [builder.add(builder.mul(args[0], _INT64(8)), _INT64(8))])
        return builder.bitcast(memory, _INT64.as_pointer())

    return types.CPointer(types.int64)(types.intp), codegen


@intrinsic
def release(_typing: Any, memory: Any) -> Any:
    """Free memory that `allocate` or `struct_types` returned; ignore a null pointer."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        function_type = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer()])
        free = cgutils.get_or_insert_function(builder.module, function_type, "free")
        builder.call(free, [builder.bitcast(args[0], _BYTE.as_pointer())])
        return context.get_dummy_value()

    return types.void(memory), codegen
