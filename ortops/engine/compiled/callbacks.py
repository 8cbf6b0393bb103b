"""The compiled callbacks of an operator in a session (OrtCustomOp).

ctypes would drop an exception that Python raises before the first line of a callback or after its last, and ONNX Runtime
would take the result for success or for an address. These callbacks succeed only if the Python function that they call
returns success. Otherwise ONNX Runtime gets a status, and the exception is saved for the thread.
"""

from __future__ import annotations

from typing import Any

from numba import types

from ortops.engine.compiled.layout import (
    ACTIVE,
    API,
    CREATE,
    ENDING,
    FAIL,
    INFER,
    INPUTS,
    NAME,
    OUTPUTS,
    PROCESS,
    TENSORS,
    TEXT,
)
from ortops.jit.compile import compiled
from ortops.jit.parallel import add_atomically, allocate, call_unchecked, pointer_to, release
from ortops.jit.python_api import (
    acquire_gil,
    call_python,
    decref,
    exception_name,
    is_callable,
    release_gil,
    save_exception,
    to_int64,
)
from ortops.jit.scalar import address_of, int64_pointer, offset

_thread = types.ExternalFunction("PyThread_get_thread_ident", types.intp())
_pause = types.ExternalFunction("pause", types.int32())
_append = types.ExternalFunction("strncat", types.intp(types.intp, types.intp, types.intp))

_TEXT_WORDS = 64


@compiled
def fill(table: Any, version: int) -> int:
    """Set an OrtCustomOp's API version and callbacks in a zeroed table; optional callbacks that are not used stay 0."""
    table[0] = version
    table[2] = pointer_to(_name)  # GetName
    table[3] = pointer_to(_nothing)  # GetExecutionProviderType: the CPU
    table[4] = pointer_to(_input_type)  # GetInputType
    table[5] = pointer_to(_input_count)  # GetInputTypeCount
    table[6] = pointer_to(_output_type)  # GetOutputType
    table[7] = pointer_to(_output_count)  # GetOutputTypeCount
    table[9] = pointer_to(_destroy)  # KernelDestroy
    table[10] = pointer_to(_input_presence)  # GetInputCharacteristic
    table[11] = pointer_to(_output_presence)  # GetOutputCharacteristic
    table[12] = pointer_to(_nothing_of)  # GetInputMemoryType: the default
    for i in range(13, 17):
        table[i] = pointer_to(_one)  # GetVariadic...: at least one tensor, all of one type
    table[17] = pointer_to(_create)  # CreateKernelV2
    table[18] = pointer_to(_compute)  # KernelComputeV2
    if table[INFER] != 0:
        table[19] = pointer_to(_infer)  # InferOutputShapeFn
    table[20] = pointer_to(_one)  # GetStartVersion
    table[21] = pointer_to(_last_version)  # GetEndVersion
    return 0


@compiled
def _name(table: int) -> int:
    return int64_pointer(table)[NAME]


@compiled
def _nothing(_table: int) -> int:
    return 0


@compiled
def _nothing_of(_table: int, _i: int) -> int:
    return 0


@compiled
def _input_type(table: int, i: int) -> int:
    return int64_pointer(table)[TENSORS + 2 * i]


@compiled
def _input_presence(table: int, i: int) -> int:
    return int64_pointer(table)[TENSORS + 2 * i + 1]


@compiled
def _input_count(table: int) -> int:
    return int64_pointer(table)[INPUTS]


@compiled
def _output_type(table: int, i: int) -> int:
    return _input_type(table, _input_count(table) + i)


@compiled
def _output_presence(table: int, i: int) -> int:
    return _input_presence(table, _input_count(table) + i)


@compiled
def _output_count(table: int) -> int:
    return int64_pointer(table)[OUTPUTS]


@compiled
def _one(_table: int) -> int:
    return 1


@compiled
def _last_version(_table: int) -> int:
    return 2**31 - 1


@compiled
def _create(table: int, api: int, info: int, kernel: int) -> int:
    """Call Python to create a node's kernel, a callable object, from its OrtKernelInfo."""
    words, result = int64_pointer(table), int64_pointer(kernel)
    words[API], result[0] = api, 0
    if words[CREATE] == 0:
        return 0
    cells = allocate(2)
    lock = _begin(words[PROCESS])
    made = call_python(words[CREATE], info) if address_of(cells) != 0 else 0
    if made != 0 and is_callable(made) != 0:
        cells[0], cells[1] = made, table
        status, result[0] = 0, address_of(cells)
    else:
        status = _status(table, made)
        release(cells)
    _end(words[PROCESS], lock)
    return status


@compiled
def _compute(kernel: int, context: int) -> int:
    cells = int64_pointer(kernel)
    table = cells[1]
    process = int64_pointer(table)[PROCESS]
    lock = _begin(process)
    status = _status(table, call_python(cells[0], context))
    _end(process, lock)
    return status


@compiled
def _infer(table: int, context: int) -> int:
    words = int64_pointer(table)
    lock = _begin(words[PROCESS])
    status = _status(table, call_python(words[INFER], context))
    _end(words[PROCESS], lock)
    return status


@compiled
def _destroy(kernel: int) -> int:
    if kernel != 0:
        cells = int64_pointer(kernel)
        process = int64_pointer(cells[1])[PROCESS]
        lock = _begin(process)
        decref(cells[0])  # the last kernel of a table frees the table, too
        _end(process, lock)
        release(cells)
    return 0


@compiled
def _status(table: int, result: int) -> int:
    """The OrtStatus that a Python function returned as an int, 0 for success; if it raised, a new OrtStatus."""
    if result != 0:
        status = to_int64(result)
        decref(result)
        return status
    memory = allocate(_TEXT_WORDS)
    text, max_length = address_of(memory), 4 * _TEXT_WORDS - 1
    words, name = int64_pointer(table), exception_name()
    create_status = int64_pointer(words[API])[0]
    if text == 0 or name == 0:
        status = call_unchecked(create_status, (FAIL, words[TEXT]))
    else:
        memory[0] = 0
        _append(text, words[TEXT], max_length)
        _append(text, name, max_length)
        status = call_unchecked(create_status, (FAIL, text))
    release(memory)
    save_exception()
    return status


@compiled
def _begin(state: int) -> int:
    """Acquire the GIL. While the interpreter finalizes, wait for the end of the process instead."""
    process = int64_pointer(state)
    add_atomically(offset(process, ACTIVE), 1)
    if _has_ended(process):
        add_atomically(offset(process, ACTIVE), -1)
        _wait()
    return acquire_gil()


@compiled
def _end(state: int, lock: int) -> None:
    """Release the GIL. While the interpreter finalizes, wait for the end of the process."""
    process = int64_pointer(state)
    release_gil(lock)
    add_atomically(offset(process, ACTIVE), -1)
    if _has_ended(process):
        _wait()


@compiled
def _has_ended(process: Any) -> bool:
    """Whether another thread finalizes the interpreter."""
    return process[ENDING] != 0 and process[ENDING] != _thread()


@compiled
def _wait() -> None:
    while True:
        _pause()
