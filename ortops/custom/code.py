# SPDX-License-Identifier: MIT
"""Compile functions of users as entries of their operators: numba's whole nopython mode behind a C function.

Unlike kernels they count references and raise exceptions. numba keeps an exception as pickled Python objects. Here the text
of its message takes their place in the compiled code. What counts references is in `counted_memory`. So nothing needs the
interpreter.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from llvmlite import binding as llvm
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.caching import Cache
from numba.core.callconv import CPUCallConv
from numba.core.codegen import JitEngine
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError, UnsupportedBytecodeError
from numba.core.funcdesc import FunctionDescriptor
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from numba.np import arrayobj, numpy_support

from ortops.compiler import machine_code
from ortops.compiler.compile import compiled, library_of
from ortops.compiler.parallel import allocate, release, task_of
from ortops.compiler.scalar import address_of, local_words, minimum
from ortops.custom.arguments import Argument, CompileError, Returned, UserCode
from ortops.custom.counted_memory import C_FUNCTIONS, linked
from ortops.custom.lengths import check_returned, set_lengths, shapes_entry, store_lengths
from ortops.native.elements import Words
from ortops.native.node.messages import write_text
from ortops.native.structs import Struct, offset_of
from ortops.native.tasks import run_tasks
from ortops.native.types import INVALID, OK, OUT_OF_MEMORY, Call, Node

_INT64, _DOUBLE = ir.IntType(64), ir.DoubleType()


def _type(argument: Argument) -> Any:
    """The numba type of a parameter."""
    if argument.kind == "shape":
        return types.UniTuple(types.int64, argument.rank)
    if argument.kind in ("input", "output"):
        return types.Array(
            numpy_support.from_dtype(argument.dtype), argument.rank, "C", readonly=argument.kind == "input"
        )
    return {
        "absent": types.none,
        "int": types.int64,
        "float": types.float64,
        "ints": types.Array(types.int64, 1, "C", readonly=True),
        "floats": types.Array(types.float64, 1, "C", readonly=True),
    }.get(argument.kind) or types.Omitted(argument.text)


def object_code(source: UserCode) -> tuple[bytes, list[str]]:
    """The object file of a function for this processor, as `stored_code.load`, and the names of the functions that it calls.

    Raises:
        CompileError: numba cannot compile it, or its code calls the interpreter, or functions that this process lacks.
    """
    function = source.function
    with _compiler(None, checks=source.options["boundscheck"]):
        library = _library(source)
        module = linked(_without_python(str(library.module)))
        names = _called(function, str(module))
        variables = [match[1] for match in _OF_THIS_PROCESS.findall(str(module)) if match[1]]
        missing = [name for name in (*names, *variables) if llvm.address_of_symbol(name) is None]
        if any(name.startswith(".numba.unresolved") for name in missing):
            raise CompileError(
                f"{function.__qualname__} cannot be compiled: a function that calls itself, maybe by others, must get "
                "arguments of the same types in each call; constants such as 5 have types of their own, unlike variables"
            )
        if missing:  # LLVM would end the process
            raise CompileError(f"{function.__qualname__} cannot be compiled: this process has no {', '.join(missing)}")
        return library.emit(module), names


def bitcode(source: UserCode) -> bytes:
    """The bitcode of a function for any processor, which calls `counted_memory.C_FUNCTIONS` alone; see `object_code`.

    Raises:
        CompileError: numba cannot compile it, or its code needs something of this process.
    """
    function = source.function
    with _compiler(machine_code.portable_machine(), checks=source.options["boundscheck"]):
        library = _library(source)
        module = linked(_without_python(str(library.module)))
        text, known = str(module), {name for names in C_FUNCTIONS.values() for name in names}
        for name in _called(function, text):
            if name not in known:
                raise CompileError(f"{function.__qualname__} cannot be put into a library: it needs numba's {name}")
        symbols = {"".join(names) for names in _OF_THIS_PROCESS.findall(text)}
        if used := sorted(name for name in symbols if _is_used(name, text)):
            raise CompileError(
                f"{function.__qualname__} cannot be put into a library: it needs {used[0]} of this process; if one of its "
                "functions has run here before, build the library in a process of its own"
            )
        return bytes(module.as_bitcode())


_OF_THIS_PROCESS = re.compile(
    r'(?m)^declare [^@\n]*@(llvm\.(?:x86|aarch64)\.[\w.]+)|^@"?([^"\s]+)"? = external|^@"?(numba\.dynamic\.globals[\w.]+)'
)
"""In the text of a module: LLVM's functions for one kind of processor, variables that the module does not define, and those
that numba makes for addresses, such as those of functions of ctypes."""


@contextlib.contextmanager
def _compiler(machine: Any | None, *, checks: bool) -> Iterator[None]:
    """Have numba compile for a target machine, if one is given, while no other thread compiles.

    When LLVM emits a module into this process, it changes the module for this processor. So it gets copies of all modules.
    numba imports a function's module for its globals. If another thread imports the module and waits for the compiler, numba
    would wait forever. So it gets the module as it is. Its own cache is off: it misses changes in other files, and takes no
    copies of modules. Since Python 3.12 numba ends a `try` block also on paths around it. The depth of blocks, which is
    unsigned, would then get below 0, and exceptions behind the block would be lost. Indices in functions that the code calls
    are checked if `checks` is set, as those of the code itself; numba alone would not.
    """
    with global_compiler_lock:
        codegen = cpu_target.target_context.codegen()
        engine, numba_machine = codegen._engine, codegen._tm  # noqa: SLF001 - the target of numba's own code
        engine.add_module = lambda module: JitEngine.add_module(engine, module.clone())
        codegen._tm = machine or numba_machine  # noqa: SLF001
        importing = FunctionDescriptor.lookup_module
        FunctionDescriptor.lookup_module = lambda self: sys.modules.get(self.modname) or importing(self)
        reading, writing = Cache.load_overload, Cache.save_overload
        Cache.load_overload = Cache.save_overload = lambda *_: None
        ending = CPUCallConv.unset_try_status

        def end_try_block(convention: Any, builder: Any) -> None:
            ending(convention, builder)
            depth_at = convention._get_try_state(builder)  # noqa: SLF001
            depth = builder.load(depth_at)
            is_negative = builder.icmp_signed("<", depth, _INT64(0))
            builder.store(builder.select(is_negative, _INT64(0), depth), depth_at)

        def call_template(dispatcher: Any, *arguments: Any) -> Any:
            _check_indices(dispatcher)
            return calling(dispatcher, *arguments)

        CPUCallConv.unset_try_status = end_try_block
        functions: Any = Dispatcher
        calling = functions.get_call_template
        if checks:
            functions.get_call_template = call_template
        try:
            yield
        finally:
            functions.get_call_template = calling
            CPUCallConv.unset_try_status = ending
            Cache.load_overload, Cache.save_overload = reading, writing
            FunctionDescriptor.lookup_module = importing
            codegen._tm = numba_machine  # noqa: SLF001
            del engine.add_module


def _check_indices(dispatcher: Any) -> None:
    """Have numba check the indices in a function of a user, from now on, unless its options say whether it does."""
    options, module = dispatcher.targetoptions, str(dispatcher.py_func.__module__).split(".")[0]
    if options.get("boundscheck") is None and module not in ("numba", "ortops"):
        options["boundscheck"] = True
        if dispatcher.overloads:
            dispatcher.recompile()


def _library(source: UserCode) -> Any:
    """The compiled code of a function's variants."""
    function, variants, options, returned, _ = source
    dispatcher = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="python", **options)(
        function
    )
    overloads = []
    try:
        for arguments in variants:
            types_of_all = tuple(map(_type, arguments))
            dispatcher.compile(types_of_all)
            overloads.append(dispatcher.overloads[types_of_all])
    except Exception as error:  # numba fails in many ways
        kind = "" if isinstance(error, NumbaError | UnsupportedBytecodeError) else f"{type(error).__name__}: "
        raise CompileError(f"{function.__qualname__} cannot be compiled: {kind}{error}") from error
    for overload in overloads:
        check_returned(function, overload.signature.return_type, returned)
    return library_of(function.__qualname__, _entry_of(list(zip(overloads, variants, strict=True)), returned), "")


def _entry_of(variants: Sequence[tuple[Any, Sequence[Argument]]], returned: Returned) -> Any:
    """A compiled function ``entry(node, call)`` that calls a compiled function for the arguments of a call."""

    @intrinsic  # type: ignore[untyped-decorator]
    def run(_typing: Any, node: Any, call: Any, first: Any, last: Any, lengths: Any) -> Any:
        """Call the function for the rows from `first` to `last`: the address of the text of an error, 0 if there is none.

        The lengths that it returns are stored at `lengths`.
        """

        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            # A function that LLVM does not inline has the memory of one call alone.
            function_type = ir.FunctionType(_INT64, [value.type for value in args])
            function = ir.Function(builder.module, function_type, builder.module.get_unique_name("ortops.call"))
            function.attributes.add("noinline")
            message = builder.call(function, args)
            builder, args = ir.IRBuilder(function.append_basic_block()), function.args
            live = cgutils.alloca_once(builder, ir.ArrayType(_INT64, 4))
            _call_runtime(builder, "nrt.begin", live)
            result = cgutils.alloca_once_value(builder, _text(builder, _OTHER_TENSORS))
            end = builder.append_basic_block("end")
            for overload, arguments in variants:
                are_matching = [
                    _matches_variant(builder, argument, *args[:2]) for argument in arguments if argument.is_checked
                ]
                with cgutils.if_likely(builder, functools.reduce(builder.and_, are_matching, cgutils.true_bit)):
                    values = [_value(context, builder, argument, args[:4]) for argument in arguments]
                    context.add_linking_libs((overload.library,))
                    callee = context.declare_function(builder.module, overload.fndesc)
                    signature = overload.signature
                    status, value = context.call_conv.call_function(
                        builder, callee, signature.return_type, signature.args, values
                    )
                    builder.store(_INT64(0), result)
                    if returned.length_count:
                        store_lengths(context, builder, value, signature.return_type, args[4], 0)
                    with cgutils.if_unlikely(builder, status.is_error):
                        text = builder.extract_value(builder.load(status.excinfoptr), 0)
                        builder.store(builder.ptrtoint(text, _INT64), result)
                    builder.branch(end)
            builder.branch(end)
            builder.position_at_end(end)
            _call_runtime(builder, "nrt.end", live)
            builder.ret(builder.load(result))
            return message

        return types.intp(node, call, first, last, lengths), codegen

    if returned.ranks is not None:
        return shapes_entry(run, [argument for _, arguments in variants for argument in arguments], returned)
    if returned.length_count:
        finish, room = set_lengths(returned), returned.length_count

        @compiled
        def entry_of_lengths(node: Node, call: Call) -> int:
            lengths = local_words(room)
            message = run(node, call, 0, 0, lengths)
            return _status(call, message) if message != 0 else finish(node, call, lengths)

        return entry_of_lengths

    # An absent input has no elements, so that all variants cut a call into the same parts.
    cut = list(
        {argument.row: argument for _, arguments in variants for argument in arguments if argument.is_cut}.values()
    )
    if not cut:

        @compiled
        def entry(node: Node, call: Call) -> int:
            return _status(call, run(node, call, 0, 0, call))

        return entry

    output = next(argument.row for argument in cut if argument.kind == "output")
    rows, ranks = tuple(argument.row for argument in cut), tuple(argument.rank for argument in cut)
    count = len(rows)

    @compiled
    def part(node: Node, call: Call, tasks: int, messages: Words, _first: int, _last: int, task: int) -> None:
        length = call.tensors[output].dims[0]
        size, rest = length // tasks, length % tasks
        first = size * task + minimum(task, rest)
        messages[task] = run(node, call, first, first + size + (1 if task < rest else 0), call)

    @compiled
    def elements(call: Call) -> int:
        """The number of elements of the arrays that are cut."""
        total = 0
        for k in range(count):
            size = 1
            for i in range(ranks[k]):
                size *= call.tensors[rows[k]].dims[i]
            total += size
        return total

    @compiled
    def entry_of_tasks(node: Node, call: Call) -> int:
        length = call.tensors[output].dims[0]
        tasks = minimum(minimum(length, MAX_TASKS), elements(call) // MIN_ELEMENTS)
        if tasks < 2:
            return _status(call, run(node, call, 0, length, call))
        messages = allocate(tasks)
        if address_of(messages) == 0:
            return OUT_OF_MEMORY
        task, data = task_of(part, (node, call, tasks, messages))
        first_message, is_run = 0, run_tasks(call.runner, call.context, tasks, task, data)
        for k in range(tasks - 1 if is_run else -1, -1, -1):
            if messages[k] != 0:
                first_message = messages[k]  # of the first task that failed
        release(messages)
        return _status(call, first_message) if is_run else OUT_OF_MEMORY

    return entry_of_tasks


@compiled
def _status(call: Call, message: int) -> int:
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


def _call_runtime(builder: Any, name: str, live: Any) -> None:
    """Emit a call of a function of `counted_memory` with the lists of the memory that a call holds."""
    pointer = ir.IntType(8).as_pointer()
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), [pointer]), name)
    builder.call(function, [builder.bitcast(live, pointer)])


def _matches_variant(builder: Any, argument: Argument, node: Any, call: Any) -> Any:
    """Whether a call has the element type, or lacks the input, or a node has the text, for which code is compiled."""
    if argument.kind == "text":
        number = _word(builder, node, Node, "attributes", argument.row, "values", "ints", 0)
        return builder.icmp_signed("==", number, _INT64(argument.number))
    relation = "!=" if argument.kind == "shape" else "=="
    element_type = _word(builder, call, Call, "tensors", argument.row, "type")
    return builder.icmp_signed(relation, element_type, _INT64(argument.number))


def _word(builder: Any, pointer: Any, struct: type[Struct], *path: str | int) -> Any:
    """Emit the load of an int64 in a struct."""
    place = builder.gep(pointer, [_INT64(offset_of(struct, *path))])
    return builder.load(builder.bitcast(place, _INT64.as_pointer()))


def _lengths(builder: Any, call: Any, argument: Argument) -> list[Any]:
    """Emit the lengths of a tensor."""
    return [_word(builder, call, Call, "tensors", argument.row, "dims", i) for i in range(argument.rank)]


def _value(context: Any, builder: Any, argument: Argument, given: Sequence[Any]) -> Any:
    """Emit the value of an argument, from a node, a call, and the first and the last row."""
    node, call, first, last = given
    if argument.kind in ("input", "output"):
        lengths = _lengths(builder, call, argument)
        address = _word(builder, call, Call, "tensors", argument.row, "address")
        if argument.is_cut:
            lengths[0] = builder.sub(last, first)
            row = functools.reduce(builder.mul, lengths[1:], _INT64(argument.dtype.itemsize))
            address = builder.add(address, builder.mul(first, row))
        if argument.starts_as_zeros:
            size = functools.reduce(builder.mul, lengths, _INT64(argument.dtype.itemsize))
            cgutils.memset(builder, builder.inttoptr(address, ir.IntType(8).as_pointer()), size, 0)
        return _array(context, builder, _type(argument), address, lengths)
    if argument.kind == "shape":
        return context.make_tuple(builder, _type(argument), _lengths(builder, call, argument))
    if argument.kind in ("ints", "floats"):
        count = _word(builder, node, Node, "attributes", argument.row, "count")
        address = _word(builder, node, Node, "attributes", argument.row, "values", "elsewhere")
        return _array(context, builder, _type(argument), address, [count])
    if argument.kind in ("int", "float"):
        word = _word(builder, node, Node, "attributes", argument.row, "values", "ints", 0)
        return word if argument.kind == "int" else builder.bitcast(word, _DOUBLE)
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
        lambda match: f"define {match[1] or ''}{match[2]} {match[3]}\n  ret {match[2]} null\n}}", module
    )
    changed, count = _PICKLED.subn(lambda match: f"{match[1]}{_message_of(match[3], int(match[2]))}{match[4]}", module)
    if count != len(_ANY_PICKLED.findall(module)):  # the message would be read from something else
        raise CompileError("this release of numba stores exceptions in a way that is not known here")
    return changed


def _message_of(escaped: str, size: int) -> str:
    """The message of a pickled exception as an LLVM string of a number of bytes; "..." is what the call decides of it."""
    data = re.sub(rb"\\(\\|[0-9A-Fa-f]{2})", _unescaped, escaped.encode())
    pickled = pickle.loads(data)  # noqa: S301 - what numba has just pickled
    said = b""
    if isinstance(pickled, tuple) and isinstance(pickled[0], type) and issubclass(pickled[0], BaseException):
        arguments = ["..." if isinstance(value, ir.Value) else str(value) for value in pickled[1] or ()]
        said = f"{pickled[0].__name__}: {', '.join(arguments)}".removesuffix(": ").encode()
    if len(said) >= size:  # never seen: the pickled exception has the message and more
        said = said.decode()[: (size - 1) // 4].encode()
    return "".join(f"\\{byte:02X}" for byte in said.ljust(size, b"\0"))


def _unescaped(match: re.Match[bytes]) -> bytes:
    return b"\\" if match[1] == b"\\" else bytes([int(match[1], 16)])


def _called(function: Callable[..., Any], module: str) -> list[str]:
    """The names of the functions that a module calls and does not have.

    Raises:
        CompileError: it needs the interpreter.
    """
    names = [name for name in _DECLARED.findall(module) if not name.startswith("llvm.") and _is_used(name, module)]
    if any(re.match("_?Py[A-Z_]", name) for name in names):
        raise CompileError(f"{function.__qualname__} cannot be compiled: it needs the interpreter, as print does")
    return names


def _is_used(name: str, module: str) -> bool:
    return len(re.findall(rf"@{re.escape(name)}\b", module)) > 1


_DECLARED = re.compile(r'(?m)^declare [^@\n]*@"?([\w.$]+)"?\(')
