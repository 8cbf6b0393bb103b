# SPDX-License-Identifier: MIT
"""Read the attributes of a node and check them, by the operator's definition.

Errors have the sentences of `custom.kernel.read_attribute`, `spec.Attribute.check` and `spec.Operator.check_attributes`.
"""

from __future__ import annotations

from typing import Any

from ortops.compiler.compile import compiled, noinline
from ortops.compiler.parallel import allocate, release
from ortops.compiler.scalar import (
    address_of,
    byte_pointer,
    float32_pointer,
    float64_pointer,
    int64_pointer,
    local,
    minimum,
    offset,
)
from ortops.compiler.struct_types import field_address, items_at, local_struct
from ortops.compiler.text import text
from ortops.native.elements import Words
from ortops.native.interface import Given
from ortops.native.node.messages import (
    is_same,
    is_same_text,
    length_of,
    write_float,
    write_int,
    write_string,
    write_text,
)
from ortops.native.ort.ort_api import call_api
from ortops.native.structs import Struct
from ortops.native.types import (
    ASCENDING,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    INVALID,
    MAX_RANK,
    OK,
    OUT_OF_MEMORY,
    STRING,
    TEXT_BYTES,
    Attribute,
    AttributeDefinition,
    Call,
    Definition,
    Node,
)

_MISSING = -1
"""The number of values of an attribute that a node must have and does not have."""

_READ_AT_ONCE = 256
"""The bytes of an attribute that shape inference reads at once; a longer one is read again."""


OF_KERNEL, OF_INFERENCE, OF_CALLER = range(3)
"""Where attributes come from: an OrtKernelInfo; an OrtShapeInferContext, in which an attribute of a wrong type counts as
absent, since the kernel reports it; or a caller outside a session, who gives `interface.Given`."""


class Content(Struct):
    """The values that a node or a caller gives an attribute."""

    count: int  # of a string its bytes with the zero byte behind it; 0 if there is no such attribute, or an empty list
    values: int  # the address of their memory
    is_wide: int  # whether floats are float64, else float32
    size: int  # what functions of OrtApi return
    handle: int


@compiled
def read_attributes(node: Node, call: Call, api: int, source: int, origin: int) -> int:
    """Fill the attributes and constants of a node, which `release_lists` ends: OK, INVALID or OUT_OF_MEMORY.

    `source` is the address of what `origin` names; for OF_CALLER, `api` is the number of attributes that are given. The
    fields of the node before its attributes are set, and the call gets the text of an error.
    """
    definition = node.definition
    for i in range(definition.attribute_count):
        node.attributes[i].count = 0
    if origin == OF_KERNEL and _has_constants(definition, node.label, call, api, source):
        return INVALID
    if origin == OF_CALLER and _has_unknown(definition, node.label, call, api, items_at(Given, source)):
        return INVALID
    for i in range(definition.attribute_count):
        status = _read_attribute(node.attributes[i], definition.attributes[i], call, api, source, origin)
        if status != OK:
            return status
    for i in range(definition.attribute_count):
        if node.attributes[i].count == _MISSING:
            write_text(call, definition.attributes[i].name)
            write_text(call, text(" is missing: "))
            write_text(call, node.label)
            write_text(call, text(" requires it"))
            return INVALID
    if not _rules_hold(node, call) or not _lists_agree(node, call):
        return INVALID
    return OK


@noinline
def _has_constants(definition: Definition, label: int, call: Call, api: int, info: int) -> bool:
    """Whether a node has attributes where its operator has constants; then write the error."""
    is_any = False
    for i in range(definition.constant_count):
        name = definition.constants[i]
        if _has_attribute(name, api, info):
            _write_unknown(call, label, name, is_any)
            is_any = True
    return is_any


@noinline
def _has_unknown(definition: Definition, label: int, call: Call, count: int, given: list[Given]) -> bool:
    """Whether a caller gives attributes that the operator does not have; then write the error."""
    is_any = False
    for i in range(count):
        is_known = False
        for k in range(definition.attribute_count):
            is_known = is_known or is_same_text(given[i].name, definition.attributes[k].name)
        if not is_known:
            _write_unknown(call, label, given[i].name, is_any)
            is_any = True
    return is_any


@noinline
def _write_unknown(call: Call, label: int, name: int, is_further: bool) -> None:
    """Write that an operator does not have an attribute, or append the name of a further one."""
    if not is_further:
        write_text(call, label)
    write_text(call, text(", ") if is_further else text(" has no attribute "))
    write_text(call, name)


@compiled
def release_lists(node: Node) -> None:
    """Release the values of a node's lists of any length, which are not in the node."""
    for i in range(node.definition.attribute_count):
        defined, attribute = node.definition.attributes[i], node.attributes[i]
        elsewhere, default = attribute.values.elsewhere, defined.default.values.elsewhere
        if defined.is_any_length and attribute.count > 0 and not (defined.has_default and elsewhere == default):
            release(int64_pointer(elsewhere))


@noinline
def _read_attribute(
    attribute: Attribute, defined: AttributeDefinition, call: Call, api: int, source: int, origin: int
) -> int:
    content = local_struct(Content)
    if origin == OF_CALLER:
        return _read_given(attribute, defined, call, api, items_at(Given, source))
    if origin == OF_INFERENCE:
        read = _read_in_inference(content, api, source, defined.name, defined.type)
    else:
        read = _read(content, api, source, defined.name, defined.type)
    if read != OK:
        return read
    if content.count > 0:
        status = _store(attribute, defined, call, content)
        release(int64_pointer(content.values))
        return status
    release(int64_pointer(content.values))
    if origin == OF_KERNEL:
        status = _check_absent(defined, call, api, source)
        if status != OK or (defined.is_any_length and _has_attribute(defined.name, api, source)):
            return status  # an empty list has no values
    _take_default(attribute, defined)
    return OK


@compiled
def _take_default(attribute: Attribute, defined: AttributeDefinition) -> None:
    attribute.count = _MISSING
    if defined.has_default:
        attribute.count, attribute.values = defined.default.count, defined.default.values


@noinline
def _read_given(attribute: Attribute, defined: AttributeDefinition, call: Call, count: int, given: list[Given]) -> int:
    for i in range(count):
        if is_same_text(given[i].name, defined.name):
            kind = given[i].type
            if kind != defined.type:
                write_text(call, defined.name)
                _write_type(defined, call, kind)
                return INVALID
            content = local_struct(Content)
            content.count, content.values, content.is_wide = given[i].count, given[i].values, 1
            if kind == STRING:
                content.count = length_of(content.values) + 1
            elif kind in (INT, FLOAT):
                content.count = 1
            elif content.count <= 0:
                attribute.count = 0
                return OK
            return _store(attribute, defined, call, content)
    _take_default(attribute, defined)
    return OK


@noinline
def _read(content: Content, api: int, info: int, name: int, kind: int) -> int:
    """Read an attribute from an OrtKernelInfo: OK or OUT_OF_MEMORY. The caller must release the content's memory."""
    size = field_address(content, "size")
    content.count, content.values, content.is_wide, content.size = 0, 0, 0, 1
    if (
        kind != INT
        and kind != FLOAT
        and (not _succeeds(api, _call(api, info, name, kind, 0, size)) or content.size == 0)
    ):
        return OK
    memory = allocate(content.size // 8 + 1 if kind == STRING else content.size)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    if _succeeds(api, _call(api, info, name, kind, address_of(memory), size)):
        content.count, content.values = content.size, address_of(memory)
    else:
        release(memory)
    return OK


@compiled
def _call(api: int, info: int, name: int, kind: int, memory: int, size: int) -> int:
    if kind == INT:
        return call_api(api, "KernelInfoGetAttribute_int64", (info, name, memory))
    if kind == FLOAT:
        return call_api(api, "KernelInfoGetAttribute_float", (info, name, memory))
    if kind == INTS:
        return call_api(api, "KernelInfoGetAttributeArray_int64", (info, name, memory, size))
    if kind == FLOATS:
        return call_api(api, "KernelInfoGetAttributeArray_float", (info, name, memory, size))
    return call_api(api, "KernelInfoGetAttribute_string", (info, name, memory, size))


@compiled
def _succeeds(api: int, status: int) -> bool:
    """Release an OrtStatus; whether it means success."""
    if status != 0:
        call_api(api, "ReleaseStatus", (status,))
    return status == 0


@noinline
def _read_in_inference(content: Content, api: int, context: int, name: int, kind: int) -> int:
    """As `_read`, from an OrtShapeInferContext."""
    handle, size = field_address(content, "handle"), field_address(content, "size")
    content.count, content.values, content.is_wide, content.handle, content.size = 0, 0, 0, 0, _READ_AT_ONCE
    if not _succeeds(api, call_api(api, "ShapeInferContext_GetAttribute", (context, name, handle))):
        return OK
    room = 0
    while room < content.size:
        room = content.size
        memory = allocate(room // 8 + 1)
        if address_of(memory) == 0:
            return OUT_OF_MEMORY
        content.size = 0
        if _succeeds(api, call_api(api, "ReadOpAttr", (content.handle, kind, address_of(memory), room, size))):
            content.count, content.values = _count(memory, kind, content.size), address_of(memory)
            return OK
        release(memory)
    return OK


@compiled
def _count(memory: Words, kind: int, size: int) -> int:
    """The number of values, as `_read` tells it, of an attribute that has so many bytes."""
    if kind != STRING:
        return size // (8 if kind in (INT, INTS) else 4)
    content = byte_pointer(memory)
    while size > 0 and content[size - 1] == 0:  # before 1.23, ONNX Runtime counts the zero byte at the end
        size -= 1
    content[size] = 0
    return size + 1


@noinline
def _check_absent(defined: AttributeDefinition, call: Call, api: int, info: int) -> int:
    """Refuse an attribute that is there, but of another type or an empty list."""
    content, status, name = local_struct(Content), OK, defined.name
    for i in range(5):
        kind = FLOAT if i == 0 else INT if i == 1 else STRING if i == 2 else FLOATS if i == 3 else INTS
        if status == OK and kind != defined.type:
            status = _read(content, api, info, name, kind)
            if status == OK and content.count > 0:
                _write_all(name, call, kind, content)
                _write_type(defined, call, kind)
                release(int64_pointer(content.values))
                status = INVALID
    may_be_empty = (defined.is_per_axis or defined.is_any_length) and not _is_tensor(name, api, info)
    if status == OK and not may_be_empty and _has_attribute(name, api, info):
        write_text(call, name)
        write_text(call, text(" has a type that cannot be read, or is an empty list: must be "))
        write_text(call, defined.type_name)
        return INVALID
    return status


@noinline
def _write_type(defined: AttributeDefinition, call: Call, kind: int) -> None:
    """Append that an attribute has another type than its own."""
    write_text(call, text(" has type "))
    write_text(call, _type_name(kind))
    write_text(call, text(": must be "))
    write_text(call, defined.type_name)


@compiled
def _type_name(kind: int) -> int:
    name: int = text("FLOAT")
    if kind == INT:
        name = text("INT")
    elif kind == STRING:
        name = text("STRING")
    elif kind == FLOATS:
        name = text("FLOATS")
    elif kind == INTS:
        name = text("INTS")
    return name


@compiled
def _is_tensor(name: int, api: int, info: int) -> bool:
    allocator, value = local(0), local(0)
    if not _succeeds(api, call_api(api, "GetAllocatorWithDefaultOptions", (address_of(allocator),))):
        return False
    arguments = (info, name, allocator[0], address_of(value))
    is_tensor = _succeeds(api, call_api(api, "KernelInfoGetAttribute_tensor", arguments))
    if is_tensor:
        call_api(api, "ReleaseValue", (value[0],))
    return is_tensor


@compiled
def _has_attribute(name: int, api: int, info: int) -> bool:
    """Whether a node has an attribute of a name, of any type.

    OrtApi has no function for this. But if the attribute is there and is no FLOAT, the error is not the one for an attribute
    that no node has.
    """
    cell = address_of(local(0))
    given = call_api(api, "KernelInfoGetAttribute_float", (info, name, cell))
    other = call_api(api, "KernelInfoGetAttribute_float", (info, text("\1"), cell))
    is_there = given == 0 or (other != 0 and not _is_same_error(api, given, other, byte_pointer(name)))
    _succeeds(api, given)
    _succeeds(api, other)
    return is_there


@compiled
def _is_same_error(api: int, given: int, other: int, name: Any) -> bool:
    """Whether two statuses have the same text, if the byte 1 in the other one stands for the name."""
    first = byte_pointer(call_api(api, "GetErrorMessage", (given,)))
    second = byte_pointer(call_api(api, "GetErrorMessage", (other,)))
    at, to = 0, 0
    while second[at] != 0:
        size = 0
        while second[at] == 1 and name[size] != 0:
            if first[to + size] != name[size]:
                return False
            size += 1
        if second[at] != 1 and first[to] != second[at]:
            return False
        to += size if second[at] == 1 else 1
        at += 1
    return bool(first[to] == 0)


@noinline
def _store(attribute: Attribute, defined: AttributeDefinition, call: Call, content: Content) -> int:
    """Check values and store them in an attribute: OK, INVALID or OUT_OF_MEMORY."""
    kind, is_list = defined.type, defined.type == INTS or defined.type == FLOATS
    count = content.count if is_list else 1
    if defined.axis_count and count != defined.axis_count:
        _write_all(defined.name, call, kind, content)
        write_text(call, text(": must have "))
        write_int(call, defined.axis_count)
        write_text(call, text(" values, "))
        write_text(call, defined.axes)
        return INVALID
    if count > MAX_RANK and not defined.is_any_length:
        write_text(call, defined.name)
        write_text(call, text(" has "))
        write_int(call, count)
        write_text(call, text(" values: must have at most "))
        write_int(call, MAX_RANK)
        write_text(call, text(", one for each axis"))
        return INVALID
    values: Words = attribute.values.ints
    if defined.is_any_length:
        values = allocate(count)
        if address_of(values) == 0:
            return OUT_OF_MEMORY
        attribute.values.elsewhere = address_of(values)
    attribute.count = count
    for k in range(count):
        broken = _store_one(offset(values, k), defined, content, k)
        if broken != 0:
            write_text(call, defined.name)
            if is_list:
                write_text(call, text("["))
                write_int(call, k)
                write_text(call, text("]"))
            write_text(call, text(" = "))
            _write_one(call, kind, content, k)
            write_text(call, text(": "))
            write_text(call, broken)
            return INVALID
    return OK


@compiled
def _store_one(word: Words, defined: AttributeDefinition, content: Content, k: int) -> int:
    """Store a value; the text of the rule that it breaks, or 0."""
    if defined.type in (INT, INTS):
        number = int64_pointer(content.values)[k]
        word[0] = number
        return 0 if defined.minimum <= number <= defined.maximum else defined.rule
    if defined.type == STRING:
        for i in range(defined.choice_count):
            if is_same(content.values, content.count, defined.choices[i]):
                word[0] = i
                return 0
        return defined.rule
    value = _float_of(content, k)
    float64_pointer(word)[0] = value
    is_broken = (defined.is_finite or defined.is_positive) and value - value != 0
    return defined.rule if is_broken or (defined.is_positive and not value > 0) else 0


@noinline
def _write_all(name: int, call: Call, kind: int, content: Content) -> None:
    """Write an attribute as "name = value"."""
    write_text(call, name)
    write_text(call, text(" = "))
    if kind != INTS and kind != FLOATS:
        _write_one(call, kind, content, 0)
        return
    write_text(call, text("["))
    for k in range(minimum(content.count, TEXT_BYTES)):  # for more there is no room
        if k > 0:
            write_text(call, text(", "))
        _write_one(call, kind, content, k)
    write_text(call, text("]"))


@noinline
def _write_one(call: Call, kind: int, content: Content, k: int) -> None:
    if kind in (INT, INTS):
        write_int(call, int64_pointer(content.values)[k])
    elif kind == STRING:
        write_string(call, content.values, content.count - 1)
    else:
        write_float(call, _float_of(content, k))


@compiled
def _float_of(content: Content, k: int) -> float:
    return float64_pointer(content.values)[k] if content.is_wide else float(float32_pointer(content.values)[k])


@compiled
def _rules_hold(node: Node, call: Call) -> bool:
    """Check the rules of attributes that depend on each other."""
    definition = node.definition
    for i in range(definition.rule_count):
        rule = definition.rules[i]
        if rule.kind == ASCENDING:
            low, high = rule.attributes[0], rule.attributes[1]
            if node.attributes[low].values.ints[0] > node.attributes[high].values.ints[0]:
                _write_number(node, call, low)
                write_text(call, text(": must be <= "))
                _write_number(node, call, high)
                return False
            continue
        has_values = False
        for k in range(rule.count):
            has_values = has_values or node.attributes[rule.attributes[k]].count > 0
        if not has_values:
            for k in range(rule.count):
                if k > 0:
                    write_text(call, text(" and "))
                write_text(call, definition.attributes[rule.attributes[k]].name)
            write_text(call, text(" are empty: at least one must have values"))
            return False
    return True


@compiled
def _write_number(node: Node, call: Call, i: int) -> None:
    write_text(call, node.definition.attributes[i].name)
    write_text(call, text(" = "))
    write_int(call, node.attributes[i].values.ints[0])


@compiled
def _lists_agree(node: Node, call: Call) -> bool:
    """Check that all lists with a value for each axis have as many, except empty ones."""
    definition, first, agree = node.definition, 0, True
    for i in range(definition.attribute_count):
        count = node.attributes[i].count if definition.attributes[i].is_per_axis else 0
        agree = agree and (first == 0 or count == 0 or count == first)
        first = first or count
    if agree:
        return True
    separator = text("")
    for i in range(definition.attribute_count):
        count = node.attributes[i].count
        if definition.attributes[i].is_per_axis and count > 0:
            write_text(call, separator)
            write_text(call, definition.attributes[i].name)
            write_text(call, text(" has "))
            write_int(call, count)
            separator = text(", ")
    write_text(call, text(" values: must have the same number, one for each axis"))
    return False
