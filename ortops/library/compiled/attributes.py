"""Read the attributes of a node into its words and check them, by the table of the operator's definition.

Errors have the sentences of `engine.direct.read_attribute`, `spec.Attribute.check` and `spec.Operator.check_attributes`.
"""

from __future__ import annotations

from typing import Any

from ortops.calls.definition_words import (
    ASCENDING,
    ATTRIBUTE_COUNT,
    ATTRIBUTE_ITEM_WORDS,
    ATTRIBUTE_NAME,
    ATTRIBUTE_TYPE,
    ATTRIBUTES_AT,
    AXIS_NAME_COUNT,
    AXIS_NAMES,
    CHOICE_COUNT,
    CHOICES_AT,
    CONSTANT_COUNT,
    CONSTANTS_AT,
    DEFAULT,
    FLOAT,
    FLOATS,
    HAS_DEFAULT,
    INT,
    INTS,
    IS_ANY_LENGTH,
    IS_FINITE,
    IS_PER_AXIS,
    IS_POSITIVE,
    MAXIMUM,
    MINIMUM,
    RULE,
    RULE_COUNT,
    RULE_ITEM_WORDS,
    RULE_KIND,
    RULE_ROW_COUNT,
    RULE_ROWS,
    RULES_AT,
    STRING,
    TYPE_NAME,
)
from ortops.calls.layout import ATTRIBUTE_WORDS, ATTRIBUTES, DEFINITION, INVALID, LABEL, OK, OUT_OF_MEMORY, TEXT_BYTES
from ortops.calls.messages import write_float, write_int, write_text
from ortops.engine.compiled.ort_api import call_api
from ortops.jit.compile import compiled, noinline
from ortops.jit.elements import Words
from ortops.jit.parallel import allocate, release
from ortops.jit.scalar import (
    address_of,
    byte_pointer,
    float32_pointer,
    float64_pointer,
    int64_pointer,
    local,
    minimum,
    offset,
)
from ortops.jit.text import text
from ortops.library.compiled.layout import GIVEN_COUNT, GIVEN_NAME, GIVEN_TYPE, GIVEN_VALUES, GIVEN_WORDS
from ortops.library.compiled.strings import is_same, is_same_text, length_of, write_repr

MAX_VALUES = ATTRIBUTE_WORDS - 1
"""The most values of a list."""

_MISSING = -1
"""The number of values of an attribute that a node must have and does not have."""

_READ_AT_ONCE = 256
"""The bytes of an attribute that shape inference reads at once; a longer one is read again."""


OF_KERNEL, OF_INFERENCE, OF_CALLER = range(3)
"""Where attributes come from: an OrtKernelInfo; an OrtShapeInferContext, in which an attribute of a wrong type counts as
absent, since the kernel reports it; or a caller outside a session, who gives rows of GIVEN_WORDS (`layout`)."""


@compiled
def read_attributes(node: Words, call: Words, api: int, source: int, origin: int) -> int:
    """Fill the attributes and constants of a node, which `release_lists` ends.

    Args:
        node: the node, of which the words before its attributes are set.
        call: gets the text of an error.
        api: the address of OrtApi; for OF_CALLER, the number of rows.
        source: the address of the OrtKernelInfo, of the OrtShapeInferContext or of the rows.
        origin: which of them.

    Returns:
        OK, INVALID or OUT_OF_MEMORY.
    """
    definition = int64_pointer(node[DEFINITION])
    rows, items = offset(node, ATTRIBUTES), offset(definition, definition[ATTRIBUTES_AT])
    count = definition[ATTRIBUTE_COUNT]
    for i in range(count):
        rows[i * ATTRIBUTE_WORDS] = 0
    if origin == OF_KERNEL and _has_constants(definition, node[LABEL], call, api, source):
        return INVALID
    if origin == OF_CALLER and _has_unknown(definition, node[LABEL], call, api, source):
        return INVALID
    for i in range(count):
        item, row = offset(items, i * ATTRIBUTE_ITEM_WORDS), offset(rows, i * ATTRIBUTE_WORDS)
        status = _read_attribute(row, item, offset(definition, item[CHOICES_AT]), call, api, source, origin)
        if status != OK:
            return status
    for i in range(count):
        if rows[i * ATTRIBUTE_WORDS] == _MISSING:
            write_text(call, items[i * ATTRIBUTE_ITEM_WORDS + ATTRIBUTE_NAME])
            write_text(call, text(" is missing: "))
            write_text(call, node[LABEL])
            write_text(call, text(" requires it"))
            return INVALID
    if not _rules_hold(definition, rows, items, call) or not _lists_agree(definition, rows, items, call):
        return INVALID
    return OK


@noinline
def _has_constants(definition: Words, label: int, call: Words, api: int, info: int) -> bool:
    """Whether a node has attributes where its operator has constants; then write the error."""
    names, is_any = offset(definition, definition[CONSTANTS_AT]), False
    for i in range(definition[CONSTANT_COUNT]):
        if _has_attribute(names[i], api, info):
            if not is_any:
                write_text(call, label)
            write_text(call, text(", ") if is_any else text(" has no attribute "))
            write_text(call, names[i])
            is_any = True
    return is_any


@noinline
def _has_unknown(definition: Words, label: int, call: Words, count: int, rows: int) -> bool:
    """Whether a caller gives attributes that the operator does not have; then write the error."""
    is_any = False
    for i in range(count):
        name, is_known = offset(int64_pointer(rows), i * GIVEN_WORDS)[GIVEN_NAME], False
        for k in range(definition[ATTRIBUTE_COUNT]):
            item = offset(definition, definition[ATTRIBUTES_AT] + k * ATTRIBUTE_ITEM_WORDS)
            is_known = is_known or is_same_text(name, item[ATTRIBUTE_NAME])
        if not is_known:
            if not is_any:
                write_text(call, label)
            write_text(call, text(", ") if is_any else text(" has no attribute "))
            write_text(call, name)
            is_any = True
    return is_any


@compiled
def release_lists(node: Words) -> None:
    """Release the values of a node's lists of any length, which are not in the node."""
    definition = int64_pointer(node[DEFINITION])
    for i in range(definition[ATTRIBUTE_COUNT]):
        item = offset(definition, definition[ATTRIBUTES_AT] + i * ATTRIBUTE_ITEM_WORDS)
        row = offset(node, ATTRIBUTES + i * ATTRIBUTE_WORDS)
        if item[IS_ANY_LENGTH] and row[0] > 0 and not (item[HAS_DEFAULT] and row[1] == item[DEFAULT + 1]):
            release(int64_pointer(row[1]))


@noinline
def _read_attribute(row: Words, item: Words, choices: Words, call: Words, api: int, source: int, origin: int) -> int:
    """Fill the row of an attribute."""
    found, kind = local(0), item[ATTRIBUTE_TYPE]
    if origin == OF_CALLER:
        return _read_given(row, item, choices, call, api, source)
    if origin == OF_INFERENCE:
        read = _read_in_inference(found, api, source, item[ATTRIBUTE_NAME], kind)
    else:
        read = _read(found, api, source, item[ATTRIBUTE_NAME], kind)
    if read != OK:
        return read
    if found[0] > 0:
        status = _store(row, item, choices, call, found, False)
        release(int64_pointer(found[1]))
        return status
    release(int64_pointer(found[1]))
    if origin == OF_KERNEL:
        status = _check_absent(item, call, api, source)
        if status != OK or (item[IS_ANY_LENGTH] and _has_attribute(item[ATTRIBUTE_NAME], api, source)):
            return status  # of an empty list the row has no values
    _take_default(row, item)
    return OK


@compiled
def _take_default(row: Words, item: Words) -> None:
    """Fill the row of an attribute that is absent."""
    row[0] = _MISSING
    if item[HAS_DEFAULT]:
        for k in range(ATTRIBUTE_WORDS):
            row[k] = item[DEFAULT + k]


@noinline
def _read_given(row: Words, item: Words, choices: Words, call: Words, count: int, rows: int) -> int:
    """Fill the row of an attribute from the rows of a caller."""
    for i in range(count):
        given = offset(int64_pointer(rows), i * GIVEN_WORDS)
        if is_same_text(given[GIVEN_NAME], item[ATTRIBUTE_NAME]):
            kind = given[GIVEN_TYPE]
            if kind != item[ATTRIBUTE_TYPE]:
                write_text(call, item[ATTRIBUTE_NAME])
                write_text(call, text(" has type "))
                write_text(call, _type_name(kind))
                write_text(call, text(": must be "))
                write_text(call, item[TYPE_NAME])
                return INVALID
            found = local(0)
            found[0], found[1] = given[GIVEN_COUNT], given[GIVEN_VALUES]
            if kind == STRING:
                found[0] = length_of(found[1]) + 1
            elif kind in (INT, FLOAT):
                found[0] = 1
            elif found[0] <= 0:
                row[0] = 0
                return OK
            return _store(row, item, choices, call, found, True)
    _take_default(row, item)
    return OK


@noinline
def _read(found: Words, api: int, info: int, name: int, kind: int) -> int:
    """Read an attribute of a type from an OrtKernelInfo.

    Args:
        found: the result: the number of values, of a string that of its bytes with the zero byte behind it; 0 if the node
            has no such attribute, or an empty list. Then the memory with the values, for the caller to release.
        api: the address of OrtApi.
        info: the OrtKernelInfo.
        name: the name, a C string.
        kind: the type.

    Returns:
        OK or OUT_OF_MEMORY.
    """
    size = address_of(offset(found, 2))
    found[0], found[1], found[2] = 0, 0, 1
    if kind != INT and kind != FLOAT and (not _succeeds(api, _call(api, info, name, kind, 0, size)) or found[2] == 0):
        return OK
    memory = allocate(found[2] // 8 + 1 if kind == STRING else found[2])
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    if _succeeds(api, _call(api, info, name, kind, address_of(memory), size)):
        found[0], found[1] = found[2], address_of(memory)
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
def _read_in_inference(found: Words, api: int, context: int, name: int, kind: int) -> int:
    """As `_read`, from an OrtShapeInferContext."""
    handle, size = address_of(offset(found, 2)), address_of(offset(found, 3))
    found[0], found[1], found[2], found[3] = 0, 0, 0, _READ_AT_ONCE
    if not _succeeds(api, call_api(api, "ShapeInferContext_GetAttribute", (context, name, handle))):
        return OK
    room = 0
    while room < found[3]:
        room = found[3]
        memory = allocate(room // 8 + 1)
        if address_of(memory) == 0:
            return OUT_OF_MEMORY
        found[3] = 0
        if _succeeds(api, call_api(api, "ReadOpAttr", (found[2], kind, address_of(memory), room, size))):
            found[0], found[1] = _count(memory, kind, found[3]), address_of(memory)
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
def _check_absent(item: Words, call: Words, api: int, info: int) -> int:
    """Refuse an attribute that is there, but of another type or an empty list."""
    found, status = local(0), OK
    for i in range(5):
        kind = FLOAT if i == 0 else INT if i == 1 else STRING if i == 2 else FLOATS if i == 3 else INTS
        if status == OK and kind != item[ATTRIBUTE_TYPE]:
            status = _read(found, api, info, item[ATTRIBUTE_NAME], kind)
            if status == OK and found[0] > 0:
                _write_all(item, call, kind, found, False)
                write_text(call, text(" has type "))
                write_text(call, _type_name(kind))
                write_text(call, text(": must be "))
                write_text(call, item[TYPE_NAME])
                release(int64_pointer(found[1]))
                status = INVALID
    name = item[ATTRIBUTE_NAME]
    may_be_empty = (item[IS_PER_AXIS] or item[IS_ANY_LENGTH]) and not _is_tensor(name, api, info)
    if status == OK and not may_be_empty and _has_attribute(name, api, info):
        write_text(call, item[ATTRIBUTE_NAME])
        write_text(call, text(" has a type that cannot be read, or is an empty list: must be "))
        write_text(call, item[TYPE_NAME])
        return INVALID
    return status


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
def _store(row: Words, item: Words, choices: Words, call: Words, found: Words, is_wide: bool) -> int:
    """Check what has been read and store it in a row: OK, INVALID or OUT_OF_MEMORY.

    Floats are float64 if they are wide, else float32.
    """
    kind, is_list = item[ATTRIBUTE_TYPE], item[ATTRIBUTE_TYPE] == INTS or item[ATTRIBUTE_TYPE] == FLOATS
    count = found[0] if is_list else 1
    if item[AXIS_NAME_COUNT] and count != item[AXIS_NAME_COUNT]:
        _write_all(item, call, kind, found, is_wide)
        write_text(call, text(": must have "))
        write_int(call, item[AXIS_NAME_COUNT])
        write_text(call, text(" values, "))
        write_text(call, item[AXIS_NAMES])
        return INVALID
    if count > MAX_VALUES and not item[IS_ANY_LENGTH]:
        write_text(call, item[ATTRIBUTE_NAME])
        write_text(call, text(" has "))
        write_int(call, count)
        write_text(call, text(" values: must have at most "))
        write_int(call, MAX_VALUES)
        write_text(call, text(", one for each axis"))
        return INVALID
    values = offset(row, 1)
    if item[IS_ANY_LENGTH]:
        values = allocate(count)
        if address_of(values) == 0:
            return OUT_OF_MEMORY
        row[1] = address_of(values)
    row[0] = count
    for k in range(count):
        broken = _store_one(offset(values, k), item, choices, found, k, is_wide)
        if broken != 0:
            write_text(call, item[ATTRIBUTE_NAME])
            if is_list:
                write_text(call, text("["))
                write_int(call, k)
                write_text(call, text("]"))
            write_text(call, text(" = "))
            _write_one(call, kind, found, k, is_wide)
            write_text(call, text(": "))
            write_text(call, broken)
            return INVALID
    return OK


@compiled
def _store_one(word: Words, item: Words, choices: Words, found: Words, k: int, is_wide: bool) -> int:
    """Store a value; the text of the rule that it breaks, or 0."""
    kind = item[ATTRIBUTE_TYPE]
    if kind in (INT, INTS):
        number = int64_pointer(found[1])[k]
        word[0] = number
        return 0 if item[MINIMUM] <= number <= item[MAXIMUM] else item[RULE]
    if kind == STRING:
        for i in range(item[CHOICE_COUNT]):
            if is_same(found[1], found[0], choices[i]):
                word[0] = i
                return 0
        return item[RULE]
    value = _float_of(found, k, is_wide)
    float64_pointer(word)[0] = value
    is_broken = (item[IS_FINITE] or item[IS_POSITIVE]) and value - value != 0
    return item[RULE] if is_broken or (item[IS_POSITIVE] and not value > 0) else 0


@noinline
def _write_all(item: Words, call: Words, kind: int, found: Words, is_wide: bool) -> None:
    """Write an attribute as "name = value"."""
    write_text(call, item[ATTRIBUTE_NAME])
    write_text(call, text(" = "))
    if kind != INTS and kind != FLOATS:
        _write_one(call, kind, found, 0, is_wide)
        return
    write_text(call, text("["))
    for k in range(minimum(found[0], TEXT_BYTES)):  # for more there is no room
        if k > 0:
            write_text(call, text(", "))
        _write_one(call, kind, found, k, is_wide)
    write_text(call, text("]"))


@noinline
def _write_one(call: Words, kind: int, found: Words, k: int, is_wide: bool) -> None:
    if kind in (INT, INTS):
        write_int(call, int64_pointer(found[1])[k])
    elif kind == STRING:
        write_repr(call, found[1], found[0] - 1)
    else:
        write_float(call, _float_of(found, k, is_wide))


@compiled
def _float_of(found: Words, k: int, is_wide: bool) -> float:
    return float64_pointer(found[1])[k] if is_wide else float(float32_pointer(found[1])[k])


@compiled
def _rules_hold(definition: Words, rows: Words, items: Words, call: Words) -> bool:
    """Check the rules of attributes that depend on each other."""
    for i in range(definition[RULE_COUNT]):
        rule = offset(definition, definition[RULES_AT] + i * RULE_ITEM_WORDS)
        count, low = rule[RULE_ROW_COUNT], rule[RULE_ROWS]
        if rule[RULE_KIND] == ASCENDING:
            high = rule[RULE_ROWS + 1]
            if rows[low * ATTRIBUTE_WORDS + 1] > rows[high * ATTRIBUTE_WORDS + 1]:
                _write_number(rows, items, call, low)
                write_text(call, text(": must be <= "))
                _write_number(rows, items, call, high)
                return False
            continue
        has_values = False
        for k in range(count):
            has_values = has_values or rows[rule[RULE_ROWS + k] * ATTRIBUTE_WORDS] > 0
        if not has_values:
            for k in range(count):
                if k > 0:
                    write_text(call, text(" and "))
                write_text(call, items[rule[RULE_ROWS + k] * ATTRIBUTE_ITEM_WORDS + ATTRIBUTE_NAME])
            write_text(call, text(" are empty: at least one must have values"))
            return False
    return True


@compiled
def _write_number(rows: Words, items: Words, call: Words, i: int) -> None:
    write_text(call, items[i * ATTRIBUTE_ITEM_WORDS + ATTRIBUTE_NAME])
    write_text(call, text(" = "))
    write_int(call, rows[i * ATTRIBUTE_WORDS + 1])


@compiled
def _lists_agree(definition: Words, rows: Words, items: Words, call: Words) -> bool:
    """Check that all lists with a value for each axis have as many, except empty ones."""
    first, agree = 0, True
    for i in range(definition[ATTRIBUTE_COUNT]):
        count = rows[i * ATTRIBUTE_WORDS] if items[i * ATTRIBUTE_ITEM_WORDS + IS_PER_AXIS] else 0
        agree = agree and (first == 0 or count == 0 or count == first)
        first = first or count
    if agree:
        return True
    separator = text("")
    for i in range(definition[ATTRIBUTE_COUNT]):
        count = rows[i * ATTRIBUTE_WORDS]
        if items[i * ATTRIBUTE_ITEM_WORDS + IS_PER_AXIS] and count > 0:
            write_text(call, separator)
            write_text(call, items[i * ATTRIBUTE_ITEM_WORDS + ATTRIBUTE_NAME])
            write_text(call, text(" has "))
            write_int(call, count)
            separator = text(", ")
    write_text(call, text(" values: must have the same number, one for each axis"))
    return False
