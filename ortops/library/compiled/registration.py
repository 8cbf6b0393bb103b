"""Register the operators of a library with session options, and make and compute their nodes.

A registration is made once for each ONNX Runtime in a process and stays in memory, since sessions may outlive their options.
"""

from __future__ import annotations

from ortops.calls.layout import (
    ATTRIBUTE_WORDS,
    ATTRIBUTES,
    DRIVER,
    FAILED,
    INVALID,
    OK,
    STATUS,
    TEXT,
)
from ortops.engine.compiled.compute import compute_node, make_status
from ortops.engine.compiled.getters import fill_getters
from ortops.engine.compiled.layout import (
    API,
    CREATE_KERNEL,
    FAIL,
    INFER_SHAPES,
    INVALID_ARGUMENT,
    NAME,
    OPERATOR,
    REFERENCES,
)
from ortops.engine.compiled.ort_api import call_api
from ortops.jit.compile import compiled
from ortops.jit.elements import Words
from ortops.jit.parallel import (
    add_atomically,
    allocate,
    call_unchecked,
    exchange_if,
    pointer_to,
    release,
    shared_word,
    static_word,
)
from ortops.jit.process import API_BASE, CAPTURING, OPTIONS
from ortops.jit.python_api import call_python, has_python
from ortops.jit.scalar import address_of, byte_pointer, int64_pointer, local, offset
from ortops.jit.text import text
from ortops.library.compiled.attributes import OF_INFERENCE, OF_KERNEL, read_attributes, release_lists
from ortops.library.compiled.inference import SCRATCH_WORDS, infer_outputs
from ortops.library.compiled.layout import (
    DECIDING_ROW,
    DOMAIN_WORDS,
    DOMAINS,
    DRIVER_WORDS,
    DRIVERS,
    FIRST_DOMAIN,
    INFERS_FROM,
    NODE,
    NODE_WORDS,
    TABLE,
    TABLE_WORDS,
    TABLES_WORDS,
)

_VERSION = 20
"""The version of OrtApi and of OrtCustomOp, which ONNX Runtime has from 1.20 on."""

_POINT, _ZERO, _NINE = b".09"

_NEXT, _OF_API, _OF_RECORD, _HANDLES = range(4)
"""Indices of a registration's words: the address of the one before, OrtApi's, the record's; then for each domain its
OrtCustomOpDomain. The tables of the operators follow."""


@compiled
def register(options: int, api_base: int, record: Words) -> int:
    """Add the domains of a record (`layout`) to session options. A C function.

    Args:
        options: the OrtSessionOptions.
        api_base: the address of OrtApiBase.
        record: the domains and their operators.

    Returns:
        An OrtStatus, 0 for success.
    """
    if _is_captured(options, api_base):
        return 0
    base, result, first = int64_pointer(api_base), local(0), static_word()
    api: int = call_unchecked(base[0], (_VERSION,))
    if api == 0:
        oldest: int = call_unchecked(base[0], (1,))
        return call_api(oldest, "CreateStatus", (FAIL, text("ortops: ONNX Runtime must be 1.20 or later")))
    made = _find(first, api, record)
    if address_of(made) == 0:
        status = _make(result, api, release_number(call_unchecked(base[1], ())), record)
        if status != 0:
            return status
        made = int64_pointer(result[0])
        _publish(first, made)
    for i in range(record[DOMAINS]):
        status = call_api(api, "AddCustomOpDomain", (options, made[_HANDLES + i]))
        if status != 0:
            return status
    return 0


@compiled
def _is_captured(options: int, api_base: int) -> bool:
    """Whether Python has asked, on this thread, for the arguments alone; then store them."""
    if not has_python():
        return False
    process = int64_pointer(shared_word("python")[0])
    if process[CAPTURING] == 0 or process[CAPTURING] != call_python("PyThread_get_thread_ident", ()):
        return False
    process[OPTIONS], process[API_BASE] = options, api_base
    return True


@compiled
def _find(first: Words, api: int, record: Words) -> Words:
    """The registration of a record with an ONNX Runtime, or a null pointer."""
    one: Words = int64_pointer(first[0])
    while address_of(one) != 0 and (one[_OF_API] != api or one[_OF_RECORD] != address_of(record)):
        one = int64_pointer(one[_NEXT])
    return one


@compiled
def _publish(first: Words, made: Words) -> None:
    """Let `_find` find a registration. Another thread may have made the same one: both work."""
    made[_NEXT] = first[0]
    while not exchange_if(first, made[_NEXT], address_of(made)):
        made[_NEXT] = first[0]


@compiled
def release_number(version: int) -> int:
    """The number of a release as `INFERS_FROM` has it: 1024 for the C string 1.24.3; 0 if the string is of another form."""
    string, at, major, minor = byte_pointer(version), 0, 0, 0
    while _ZERO <= string[at] <= _NINE:
        major, at = 10 * major + string[at] - _ZERO, at + 1
    if string[at] != _POINT:
        return 0
    while _ZERO <= string[at + 1] <= _NINE:
        minor, at = 10 * minor + string[at + 1] - _ZERO, at + 1
    return 1000 * major + minor


@compiled
def _make(result: Words, api: int, release_number: int, record: Words) -> int:
    """Make a registration, whose address becomes the result; an OrtStatus."""
    count = record[DOMAINS]
    made = allocate(_HANDLES + count + record[TABLES_WORDS])
    if address_of(made) == 0:
        return call_api(api, "CreateStatus", (FAIL, text("ortops: out of memory")))
    for i in range(_HANDLES + count + record[TABLES_WORDS]):
        made[i] = 0
    made[_OF_API], made[_OF_RECORD], result[0] = api, address_of(record), address_of(made)
    table, status = offset(made, _HANDLES + count), 0
    for i in range(count):
        domain = offset(record, FIRST_DOMAIN + i * DOMAIN_WORDS)
        operators = int64_pointer(domain[1])
        if status == 0:
            status = call_api(api, "CreateCustomOpDomain", (domain[0], address_of(offset(made, _HANDLES + i))))
        for k in range(operators[0]):
            operator = int64_pointer(operators[1 + k])
            fill_table(table, operator, api, release_number)
            if status == 0:
                status = call_api(api, "CustomOpDomain_Add", (made[_HANDLES + i], address_of(table)))
            table = offset(table, operator[TABLE_WORDS])
    if status != 0:
        for i in range(count):
            if made[_HANDLES + i] != 0:
                call_api(api, "ReleaseCustomOpDomain", (made[_HANDLES + i],))
        release(made)
    return status


@compiled
def fill_table(table: Words, operator: Words, api: int, release_number: int) -> None:
    """Fill the table of an operator.

    Args:
        table: zeros, as many as the operator's TABLE_WORDS.
        operator: the operator's record (`layout`).
        api: the address of OrtApi.
        release_number: the release of ONNX Runtime, as `INFERS_FROM` has it.
    """
    for i in range(NAME, operator[TABLE_WORDS]):
        table[i] = operator[TABLE + i - NAME]
    fill_getters(table, _VERSION)
    table[API], table[OPERATOR], table[REFERENCES] = api, address_of(operator), 1
    table[9] = pointer_to(_destroy)  # KernelDestroy
    table[CREATE_KERNEL] = pointer_to(_create)
    table[18] = pointer_to(_compute)  # KernelComputeV2
    if release_number >= operator[INFERS_FROM]:
        table[INFER_SHAPES] = pointer_to(_infer)


@compiled
def _create(table: int, api: int, info: int, kernel: int) -> int:
    """CreateKernelV2: a kernel is the address of its table, and behind it the node."""
    operator, result = int64_pointer(int64_pointer(table)[OPERATOR]), int64_pointer(kernel)
    made, call = allocate(1 + operator[NODE_WORDS]), allocate(SCRATCH_WORDS)
    status = call_api(api, "CreateStatus", (FAIL, text("ortops: out of memory"))) if not _both(made, call) else 0
    if status == 0:
        made[0] = table
        node = offset(made, 1)
        code = fill_node(node, call, operator, api, info, OF_KERNEL)
        status = _status(node, api, call, code)
        if status != 0:
            release_lists(node)
    result[0] = address_of(made) if status == 0 else 0
    if status != 0:
        release(made)
    else:
        add_atomically(offset(int64_pointer(table), REFERENCES), 1)
    release(call)
    return status


@compiled
def _both(one: Words, other: Words) -> bool:
    return bool(address_of(one) != 0 and address_of(other) != 0)


@compiled
def fill_node(node: Words, call: Words, operator: Words, api: int, source: int, origin: int) -> int:
    """Fill the operator's node with NODE_WORDS; the result and the other arguments are as in `read_attributes`."""
    for i in range(ATTRIBUTES):
        node[i] = operator[NODE + i]
    call[TEXT], call[TEXT + 1] = 0, 0
    code = read_attributes(node, call, api, source, origin)
    if code == OK and origin != OF_INFERENCE:
        row = operator[DECIDING_ROW]
        choice = node[ATTRIBUTES + row * ATTRIBUTE_WORDS + 1] if row >= 0 else 0
        for k in range(DRIVER_WORDS):
            node[DRIVER + k] = int64_pointer(operator[DRIVERS])[choice * DRIVER_WORDS + k]
    return code


@compiled
def _status(node: Words, api: int, call: Words, code: int) -> int:
    """The OrtStatus of a result."""
    if code == OK:
        return 0
    return (
        call[STATUS] if code == FAILED else make_status(node, api, call, INVALID_ARGUMENT if code == INVALID else FAIL)
    )


@compiled
def _compute(kernel: int, context: int) -> int:
    words = int64_pointer(kernel)
    return compute_node(offset(words, 1), int64_pointer(words[0])[API], context)


@compiled
def _destroy(kernel: int) -> int:
    words = int64_pointer(kernel)
    release_lists(offset(words, 1))
    release_table(words[0])
    release(words)
    return 0


@compiled
def release_table(table: int) -> int:
    """End a use of a table, and free the table after its last one. A C function.

    The tables of `register` are parts of larger memory, and never end: nobody ends their first use.
    """
    words = int64_pointer(table)
    if add_atomically(offset(words, REFERENCES), -1) == 1:
        release(words)
    return 0


@compiled
def _infer(table: int, context: int) -> int:
    words = int64_pointer(table)
    operator, api = int64_pointer(words[OPERATOR]), words[API]
    call = allocate(SCRATCH_WORDS + operator[NODE_WORDS])
    if address_of(call) == 0:
        return call_api(api, "CreateStatus", (FAIL, text("ortops: out of memory")))
    node = offset(call, SCRATCH_WORDS)
    code = fill_node(node, call, operator, api, context, OF_INFERENCE)
    if code == OK:
        code = infer_outputs(node, call, api, context)
    status = _status(node, api, call, code)
    release_lists(node)
    release(call)
    return status
