# SPDX-License-Identifier: MIT
"""Register the operators of a library with session options, and make and compute their nodes.

A registration is made once for each ONNX Runtime in a process and stays in memory, since sessions may outlive their options.
"""

from __future__ import annotations

from typing import Annotated

from ortops.compiler.compile import compiled
from ortops.compiler.parallel import (
    add_atomically,
    allocate,
    call_unchecked,
    exchange_if,
    pointer_to,
    release,
    static_word,
)
from ortops.compiler.scalar import address_of, byte_pointer, int64_pointer, local, offset
from ortops.compiler.struct_types import allocate_struct, field_pointer, items_at, size_of, struct_at
from ortops.compiler.text import text
from ortops.native.elements import Words
from ortops.native.interface import Domains, TypedOperator
from ortops.native.node.attributes import OF_INFERENCE, OF_KERNEL, read_attributes, release_lists
from ortops.native.ort.compute import compute_node, make_status
from ortops.native.ort.getters import fill_getters
from ortops.native.ort.inference import Scratch, infer_outputs
from ortops.native.ort.ort_api import call_api, out_of_memory
from ortops.native.ort.types import API_VERSION, FAIL, INVALID_ARGUMENT, Kernel, Table
from ortops.native.python_api import call_python, python_process
from ortops.native.structs import POINTER, Struct
from ortops.native.types import FAILED, INVALID, NONE, OK, Attribute, Call, Node

_POINT, _ZERO, _NINE = b".09"


class Registration(Struct):
    """What has been registered with an ONNX Runtime."""

    next: Annotated[Registration | None, POINTER]  # what was registered before
    api: int  # the address of OrtApi
    domains: Annotated[Domains, POINTER]
    handles: Words  # the OrtCustomOpDomain of each domain
    tables: Annotated[list[Table], POINTER]  # of all operators


@compiled
def register(options: int, api_base: Words, domains: Domains) -> int:
    """Add domains to session options; the OrtStatus, 0 for success. A C function."""
    if _is_captured(options, api_base):
        return 0
    result, first = local(0), static_word()
    api: int = call_unchecked(api_base[0], (API_VERSION,))
    if api == 0:
        oldest: int = call_unchecked(api_base[0], (1,))
        return call_api(oldest, "CreateStatus", (FAIL, text("ortops: ONNX Runtime must be 1.20 or later")))
    registration = _find(first, api, domains)
    if registration is None:
        status = _make(result, api, release_number(call_unchecked(api_base[1], ())), domains)
        if status != 0:
            return status
        registration = struct_at(Registration, result[0])
        _publish(first, registration)
    for i in range(domains.count):
        status = call_api(api, "AddCustomOpDomain", (options, registration.handles[i]))
        if status != 0:
            return status
    return 0


@compiled
def _is_captured(options: int, api_base: Words) -> bool:
    """Whether Python has asked, on this thread, for the arguments alone; then store them."""
    process = python_process()
    if process is None:
        return False
    if process.capturing == 0 or process.capturing != call_python("PyThread_get_thread_ident", ()):
        return False
    process.options, process.api_base = options, address_of(api_base)
    return True


@compiled
def _find(first: Words, api: int, domains: Domains) -> Registration | None:
    """What has been registered of domains with an ONNX Runtime."""
    registration: Registration | None = struct_at(Registration, first[0])
    while registration is not None and not (registration.api == api and registration.domains is domains):
        registration = registration.next
    return registration


@compiled
def _publish(first: Words, registration: Registration) -> None:
    """Let `_find` find a registration. Another thread may have made the same one: both work."""
    registration.next = struct_at(Registration, first[0])
    while not exchange_if(first, address_of(registration.next), address_of(registration)):
        registration.next = struct_at(Registration, first[0])


@compiled
def release_number(version: int) -> int:
    """The number of a release as `TypedOperator.infers_from` has it: 1024 for 1.24.3; 0 for a string of another form."""
    string, at, major, minor = byte_pointer(version), 0, 0, 0
    while _ZERO <= string[at] <= _NINE:
        major, at = 10 * major + string[at] - _ZERO, at + 1
    if string[at] != _POINT:
        return 0
    while _ZERO <= string[at + 1] <= _NINE:
        minor, at = 10 * minor + string[at + 1] - _ZERO, at + 1
    return 1000 * major + minor


@compiled
def _make(result: Words, api: int, release_number: int, domains: Domains) -> int:
    """Make a registration, whose address becomes the result; an OrtStatus."""
    handles = size_of(Registration)
    tables = handles + 8 * domains.count
    size = (tables + size_of(Table) * domains.operator_count) // 8
    memory = allocate(size)
    if address_of(memory) == 0:
        return out_of_memory(api)
    for i in range(size):
        memory[i] = 0
    registration = struct_at(Registration, address_of(memory))
    registration.api, registration.domains, result[0] = api, domains, address_of(registration)
    registration.handles, registration.tables = int64_pointer(result[0] + handles), items_at(Table, result[0] + tables)
    status, count = 0, 0
    for i in range(domains.count):
        domain = domains.domains[i]
        if status == 0:
            handle = address_of(offset(registration.handles, i))
            status = call_api(api, "CreateCustomOpDomain", (domain.name, handle))
        for k in range(domain.count):
            table = registration.tables[count]
            fill_table(table, domain.operators[k], api, release_number)
            if status == 0:
                status = call_api(api, "CustomOpDomain_Add", (registration.handles[i], address_of(table)))
            count += 1
    if status != 0:
        for i in range(domains.count):
            if registration.handles[i] != 0:
                call_api(api, "ReleaseCustomOpDomain", (registration.handles[i],))
        release(registration)
    return status


@compiled
def fill_table(table: Table, operator: TypedOperator, api: int, release_number: int) -> None:
    """Fill the table of an operator, which has zeros; the release number is as `TypedOperator.infers_from` has it."""
    fill_getters(table.custom_op, API_VERSION)
    table.api, table.operator, table.references, table.signature = api, operator, 1, operator.signature
    table.custom_op.kernel_destroy = pointer_to(_destroy)
    table.custom_op.create_kernel = pointer_to(_create)
    table.custom_op.kernel_compute = pointer_to(_compute)
    if release_number >= operator.infers_from:
        table.custom_op.infer_output_shape = pointer_to(_infer)


@compiled
def node_words(operator: TypedOperator) -> int:
    """The size of an operator's node in words."""
    return (size_of(Node) + size_of(Attribute) * operator.node.definition.attribute_count) // 8


@compiled
def _create(table: Table, api: int, info: int, result: Words) -> int:
    """CreateKernelV2."""
    kernel = struct_at(Kernel, address_of(allocate(1 + node_words(table.operator))))
    call, status = allocate_struct(Call), 0
    if address_of(kernel) == 0 or call is None:
        status = out_of_memory(api)
    else:
        kernel.table = table
        code = fill_node(kernel.node, call, table.operator, api, info, OF_KERNEL)
        status = _status(kernel.node, api, call, code)
        if status != 0:
            release_lists(kernel.node)
    result[0] = address_of(kernel) if status == 0 else 0
    if status != 0:
        release(kernel)
    else:
        add_atomically(field_pointer(table, "references"), 1)
    release(call)
    return status


@compiled
def fill_node(node: Node, call: Call, operator: TypedOperator, api: int, source: int, origin: int) -> int:
    """Fill a node of `node_words`; the result and the other arguments are as in `read_attributes`."""
    shared = operator.node
    node.definition, node.shapes, node.entry, node.label = shared.definition, shared.shapes, shared.entry, shared.label
    node.first_type = shared.first_type
    call.text_size, call.text[0] = 0, 0
    code = read_attributes(node, call, api, source, origin)
    is_chosen = code == OK and operator.deciding != NONE
    drivers = operator.drivers[node.attributes[operator.deciding].values.ints[0] if is_chosen else 0]
    node.driver, node.driver_of_rois = drivers.driver, drivers.driver_of_rois
    return code


@compiled
def _status(node: Node, api: int, call: Call, code: int) -> int:
    if code == OK:
        return 0
    return (
        call.status if code == FAILED else make_status(node, api, call, INVALID_ARGUMENT if code == INVALID else FAIL)
    )


@compiled
def _compute(kernel: Kernel, context: int) -> int:
    return compute_node(kernel.node, kernel.table.api, context)


@compiled
def _destroy(kernel: Kernel) -> int:
    release_lists(kernel.node)
    release_table(kernel.table)
    release(kernel)
    return 0


@compiled
def release_table(table: Table) -> int:
    """End a use of a table, and free the table after its last one. A C function.

    The tables of `register` are parts of larger memory, and never end: nobody ends their first use.
    """
    if add_atomically(field_pointer(table, "references"), -1) == 1:
        release(table)
    return 0


@compiled
def _infer(table: Table, context: int) -> int:
    operator, api, scratch = table.operator, table.api, allocate_struct(Scratch)
    node = struct_at(Node, address_of(allocate(node_words(operator))))
    if scratch is None or address_of(node) == 0:
        release(scratch)
        release(node)
        return out_of_memory(api)
    code = fill_node(node, scratch.call, operator, api, context, OF_INFERENCE)
    if code == OK:
        code = infer_outputs(node, scratch, api, context)
    status = _status(node, api, scratch.call, code)
    release_lists(node)
    release(node)
    release(scratch)
    return status
