"""Compile functions of users as entries of their operators: numba's whole nopython mode behind a C function.

Unlike kernels they count references and raise exceptions. numba keeps an exception as pickled Python objects. Here the text
of its message takes their place in the compiled code, so that nothing needs the interpreter.
"""

from __future__ import annotations

import functools
import pickle
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llvmlite import binding as llvm
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.errors import NumbaError
from numba.extending import intrinsic
from numba.np import arrayobj, numpy_support

from ortops.calls.layout import (
    ADDRESS,
    ATTRIBUTE_WORDS,
    ATTRIBUTES,
    CONTEXT,
    DIMS,
    INVALID,
    OK,
    OUT_OF_MEMORY,
    RUNNER,
    TENSOR_WORDS,
    TENSORS,
    TYPE,
)
from ortops.calls.messages import write_text
from ortops.calls.user_arguments import Argument, CompileError
from ortops.jit.compile import compiled, library_of
from ortops.jit.elements import Words
from ortops.jit.parallel import allocate, release, task_of
from ortops.jit.scalar import address_of, minimum
from ortops.jit.tasks import run_tasks

_INT64, _DOUBLE = ir.IntType(64), ir.DoubleType()


def _type(one: Argument) -> Any:
    """The numba type of a parameter."""
    if one.kind in ("input", "output"):
        return types.Array(numpy_support.from_dtype(one.dtype), one.rank, "C", readonly=one.kind == "input")
    return {
        "absent": types.none,
        "int": types.int64,
        "float": types.float64,
        "ints": types.Array(types.int64, 1, "C", readonly=True),
        "floats": types.Array(types.float64, 1, "C", readonly=True),
    }.get(one.kind) or types.Omitted(one.text)


_lock = threading.RLock()


def compile_function(
    function: Callable[..., Any], arguments: Sequence[Argument], options: Mapping[str, bool]
) -> tuple[bytes, list[str]]:
    """The object file of a function for the types of its arguments, as `user_cache.load`, and the functions that it calls.

    Raises:
        CompileError: numba cannot compile it, or its code calls the interpreter.
    """
    with _lock:
        dispatcher = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="python", **options)(
            function
        )
        try:
            dispatcher.compile(tuple(map(_type, arguments)))
        except NumbaError as error:
            raise CompileError(f"{function.__qualname__} cannot be compiled: {error}") from error
        (overload,) = dispatcher.overloads.values()
        library = library_of(function.__qualname__, _entry_of(overload, arguments), "")
        module = _without_python(str(library.module))
        symbols = _checked_symbols(function, module)
        return library.emit(llvm.parse_assembly(module)), symbols


def _entry_of(overload: Any, arguments: Sequence[Argument]) -> Any:
    """A compiled function ``entry(node, call)`` that calls the function."""
    tensors = [one for one in arguments if one.kind in ("input", "output", "absent")]

    @intrinsic  # type: ignore[untyped-decorator]
    def run(_typing: Any, node: Any, call: Any, first: Any, last: Any) -> Any:
        """Call the function for the rows from `first` to `last`: the address of the text of an error, 0 if there is none."""

        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            result = cgutils.alloca_once_value(builder, _text(builder, _OTHER_TENSORS))
            are_as_compiled = [
                builder.icmp_signed("==", _word(builder, args[1], _at(one) + TYPE), _INT64(one.number))
                for one in tensors
            ]
            with cgutils.if_likely(builder, functools.reduce(builder.and_, are_as_compiled)):
                values = [_value(context, builder, one, args) for one in arguments]
                context.add_linking_libs((overload.library,))
                callee = context.declare_function(builder.module, overload.fndesc)
                signature = overload.signature
                status, _ = context.call_conv.call_function(
                    builder, callee, signature.return_type, signature.args, values
                )
                builder.store(_INT64(0), result)
                with cgutils.if_unlikely(builder, status.is_error):
                    info = builder.load(status.excinfoptr)
                    builder.store(builder.ptrtoint(builder.extract_value(info, 0), _INT64), result)
                    with cgutils.if_unlikely(builder, cgutils.is_not_null(builder, builder.extract_value(info, 3))):
                        # The exception has values that are known at run time, in memory of its own.
                        for memory in (builder.extract_value(info, 2), status.excinfoptr):
                            _free(builder, memory)
            return builder.load(result)

        return types.intp(node, call, first, last), codegen

    cut = [one for one in arguments if one.is_cut]
    if not cut:

        @compiled
        def entry(node: Words, call: Words) -> int:
            return _status(call, run(node, call, 0, 0))

        return entry

    length_at = _at(cut[0]) + DIMS

    @compiled
    def part(node: Words, call: Words, tasks: int, messages: Words, _first: int, _last: int, task: int) -> None:
        size, rest = call[length_at] // tasks, call[length_at] % tasks
        first = size * task + minimum(task, rest)
        messages[task] = run(node, call, first, first + size + (1 if task < rest else 0))

    elements_at = [(_at(one) + DIMS, one.rank) for one in cut]

    @intrinsic  # type: ignore[untyped-decorator]
    def _elements(_typing: Any, call: Any) -> Any:
        """The number of elements of the arrays that are cut."""

        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            counts = [
                functools.reduce(builder.mul, [_word(builder, args[0], at + i) for i in range(rank)], _INT64(1))
                for at, rank in elements_at
            ]
            return functools.reduce(builder.add, counts)

        return types.intp(call), codegen

    @compiled
    def entry_of_tasks(node: Words, call: Words) -> int:
        rows = call[length_at]
        tasks = minimum(minimum(rows, MAX_TASKS), _elements(call) // MIN_ELEMENTS)
        if tasks < 2:
            return _status(call, run(node, call, 0, rows))
        messages = allocate(tasks)
        if address_of(messages) == 0:
            return OUT_OF_MEMORY
        task, data = task_of(part, (node, call, tasks, messages))
        found, is_run = 0, run_tasks(call[RUNNER], call[CONTEXT], tasks, task, data)
        for k in range(tasks - 1 if is_run else -1, -1, -1):
            if messages[k] != 0:
                found = messages[k]  # of the first task that failed
        release(messages)
        return _status(call, found) if is_run else OUT_OF_MEMORY

    return entry_of_tasks


@compiled
def _status(call: Words, message: int) -> int:
    """The result of a call with the text of an error, which is at an address, or with none."""
    if message == 0:
        return OK
    write_text(call, message)
    return INVALID


MAX_TASKS, MIN_ELEMENTS = 64, 2048
"""The most parts of a call, and the least elements of one. Without the number of threads, results do not depend on it."""

_OTHER_TENSORS = "an input or an output has another element type than when the session was made, or is left out"


def _text(builder: Any, content: str) -> Any:
    constant = cgutils.make_bytearray(bytearray(content.encode() + b"\0"))
    return builder.ptrtoint(cgutils.global_constant(builder.module, "text", constant, linkage="private"), _INT64)


def _free(builder: Any, memory: Any) -> None:
    pointer = ir.IntType(8).as_pointer()
    free = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), [pointer]), "free")
    builder.call(free, [builder.bitcast(memory, pointer)])  # as numba's allocator does


def _word(builder: Any, words: Any, at: int) -> Any:
    return builder.load(builder.gep(words, [_INT64(at)]))


def _at(one: Argument) -> int:
    """The index of the first word of a tensor in a call."""
    return TENSORS + TENSOR_WORDS * one.row


def _value(context: Any, builder: Any, one: Argument, words: Sequence[Any]) -> Any:
    """Emit the value of an argument, from a node, a call, and the first and the last row."""
    node, call, first, last = words
    attribute = ATTRIBUTES + ATTRIBUTE_WORDS * one.row
    if one.kind in ("input", "output"):
        at = _at(one)
        lengths = [_word(builder, call, at + DIMS + i) for i in range(one.rank)]
        address = _word(builder, call, at + ADDRESS)
        if one.is_cut:
            lengths[0] = builder.sub(last, first)
            row = functools.reduce(builder.mul, lengths[1:], _INT64(one.dtype.itemsize))
            address = builder.add(address, builder.mul(first, row))
        return _array(context, builder, _type(one), address, lengths)
    if one.kind in ("ints", "floats"):
        return _array(
            context,
            builder,
            _type(one),
            _word(builder, node, attribute + 1),
            [_word(builder, node, attribute)],
        )
    if one.kind in ("int", "float"):
        word = _word(builder, node, attribute + 1)
        return word if one.kind == "int" else builder.bitcast(word, _DOUBLE)
    return context.get_dummy_value()  # constants are part of the type


def _array(context: Any, builder: Any, array_type: Any, address: Any, lengths: Sequence[Any]) -> Any:
    """Emit a C-contiguous array over memory that it does not own."""
    array = context.make_array(array_type)(context, builder)
    itemsize = _INT64(context.get_abi_sizeof(context.get_data_type(array_type.dtype)))
    strides: list[Any] = []
    stride = itemsize
    for length in reversed(lengths):
        strides.insert(0, stride)
        stride = builder.mul(stride, length)
    arrayobj.populate_array(
        array,
        data=builder.inttoptr(address, array.data.type),
        shape=list(lengths),
        strides=strides,
        itemsize=itemsize,
        meminfo=None,
    )
    return array._getvalue()  # noqa: SLF001 - as numba's own `carray`


_PICKLED = re.compile(r'(?m)^(@"?\.const\.pickledata\.\w+(?:\.\d+)*"? = [^\n]*?\[(\d+) x i8\] c")([^"\n]*)(")')
"""numba's constant with a pickled exception, in the text of an LLVM module."""

_ANY_PICKLED = re.compile(r"(?m)^@[^ ]*pickledata(?![^ ]*sha1)[^ ]* =")

_UNWRAP = re.compile(r"(?ms)^define (\S+ )?(i8\*|ptr) (@_*excinfo_unwrap_args\w+\([^\n]*\{)\n.*?^\}$")
"""numba's functions that make Python objects of the values in an exception's message."""


def _without_python(module: str) -> str:
    """The text of an LLVM module, with the messages of exceptions as C strings in place of the pickled exceptions."""
    module = _UNWRAP.sub(
        lambda found: f"define {found[1] or ''}{found[2]} {found[3]}\n  ret {found[2]} null\n}}", module
    )
    changed, count = _PICKLED.subn(lambda found: f"{found[1]}{_message_of(found[3], int(found[2]))}{found[4]}", module)
    if count != len(_ANY_PICKLED.findall(module)):  # the message would be read from something else
        raise CompileError("this release of numba stores exceptions in a way that is not known here")
    return changed


def _message_of(escaped: str, size: int) -> str:
    """The message of a pickled exception as an LLVM string of a number of bytes; "..." is what the call decides of it."""
    data = re.sub(rb"\\(\\|[0-9A-Fa-f]{2})", _unescaped, escaped.encode())
    pickled = pickle.loads(data)  # noqa: S301 - what numba has just pickled
    said = b""
    if isinstance(pickled, tuple) and isinstance(pickled[0], type) and issubclass(pickled[0], BaseException):
        arguments = ["..." if isinstance(one, ir.Value) else str(one) for one in pickled[1] or ()]
        said = f"{pickled[0].__name__}: {', '.join(arguments)}".removesuffix(": ").encode()
    if len(said) >= size:  # never seen: the pickled exception has the message and more
        said = said.decode()[: (size - 1) // 4].encode()
    return "".join(f"\\{byte:02X}" for byte in said.ljust(size, b"\0"))


def _unescaped(found: re.Match[bytes]) -> bytes:
    return b"\\" if found[1] == b"\\" else bytes([int(found[1], 16)])


def _checked_symbols(function: Callable[..., Any], module: str) -> list[str]:
    """The functions that code calls, after a check: LLVM ends a process that lacks one.

    Raises:
        CompileError: it needs the interpreter, or functions that this process lacks.
    """
    declared = [one for one in _DECLARED.findall(module) if not one.startswith("llvm.")]
    names = [one for one in declared if len(re.findall(rf"@{re.escape(one)}\b", module)) > 1]
    if any(re.match("_?Py[A-Z_]", name) for name in names):
        raise CompileError(f"{function.__qualname__} cannot be compiled: it needs the interpreter, as print does")
    missing = [name for name in names if llvm.address_of_symbol(name) is None]
    if missing:
        raise CompileError(f"{function.__qualname__} cannot be compiled: this process has no {', '.join(missing)}")
    return names


_DECLARED = re.compile(r'(?m)^declare [^@\n]*@"?([\w.$]+)"?\(')
