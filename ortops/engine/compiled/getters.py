"""An operator's callbacks (OrtCustomOp) that return a word of its table, emitted without compiling a function for each."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ortops.engine.compiled.layout import (
    INPUT_PRESENCE,
    INPUT_TYPE,
    INPUTS,
    LAST_VERSION,
    MAKER,
    MAKER_NAME,
    NAME,
    ONE,
    OUTPUT_PRESENCE,
    OUTPUT_TYPE,
    OUTPUTS,
    TENSOR_WORDS,
    VERSION,
    ZERO,
)
from ortops.jit.compile import compiled
from ortops.jit.parallel import pointer_to
from ortops.jit.python_api import call_python
from ortops.jit.scalar import int64_pointer

_INT64 = ir.IntType(64)


@intrinsic(prefer_literal=True)
def _getter(_typing: Any, word: Any, step: Any) -> Any:
    """The address of a C function (table, i) that returns word `word + step * i` of the table; both are constants.

    If the step is 0, ONNX Runtime may pass only the table.
    """
    at, by = word.literal_value, step.literal_value

    def codegen(_context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        parameters = [_INT64.as_pointer(), _INT64] if by else [_INT64.as_pointer()]
        name = builder.module.get_unique_name(f"getter.{at}")
        function = ir.Function(builder.module, ir.FunctionType(_INT64, parameters), name=name)
        function.linkage = "internal"
        body = ir.IRBuilder(function.append_basic_block("entry"))
        place = body.add(body.mul(function.args[1], _INT64(by)), _INT64(at)) if by else _INT64(at)
        body.ret(body.load(body.gep(function.args[0], [place])))
        return builder.ptrtoint(function, _INT64)

    return types.intp(word, step), codegen


@compiled
def _name(table: int) -> int:
    """GetName: ONNX Runtime calls it only while it makes a session, on the thread that makes it."""
    words = int64_pointer(table)
    if words[MAKER] != 0:
        thread = int64_pointer(words[MAKER])[0]
        if thread != 0 and thread == call_python("PyThread_get_thread_ident", ()):
            return words[MAKER_NAME]
    return words[NAME]


@compiled
def fill_getters(table: Any, version: int) -> None:
    """Set the interface's version and these callbacks in an operator's table."""
    table[VERSION] = version
    table[ONE], table[LAST_VERSION] = 1, 2**31 - 1
    table[2] = pointer_to(_name)  # GetName
    table[3] = _getter(ZERO, 0)  # GetExecutionProviderType: the CPU
    table[4] = _getter(INPUT_TYPE, TENSOR_WORDS)  # GetInputType
    table[5] = _getter(INPUTS, 0)  # GetInputTypeCount
    table[6] = _getter(OUTPUT_TYPE, TENSOR_WORDS)  # GetOutputType
    table[7] = _getter(OUTPUTS, 0)  # GetOutputTypeCount
    table[10] = _getter(INPUT_PRESENCE, TENSOR_WORDS)  # GetInputCharacteristic
    table[11] = _getter(OUTPUT_PRESENCE, TENSOR_WORDS)  # GetOutputCharacteristic
    table[12] = _getter(ZERO, 0)  # GetInputMemoryType: the default
    one = _getter(ONE, 0)
    for i in range(13, 17):
        table[i] = one  # GetVariadic...: at least one tensor, all of one type
    table[20] = one  # GetStartVersion
    table[21] = _getter(LAST_VERSION, 0)  # GetEndVersion
