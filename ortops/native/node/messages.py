# SPDX-License-Identifier: MIT
"""Write an error's text into a call (`types.Call`): UTF-8 with a zero byte at the end, cut off if there is no more room.

Also compare strings.
"""

from __future__ import annotations

import sys

from ortops.compiler.compile import compiled, noinline
from ortops.compiler.scalar import address_of, byte_pointer, local, maximum, minimum, offset
from ortops.compiler.text import format_float, format_integer, parse_float, text
from ortops.native.elements import Words
from ortops.native.types import MAX_DIMS, TEXT_BYTES, Call, Tensor

_BUFFER_BYTES = 64
"""The size of `local` memory for int64s."""

_BASE, _LIMBS = 10**9, 8
"""Numbers beyond 64 bits are stored as _LIMBS digits in base _BASE."""

_PRECISION = int.from_bytes(b"%.00e\0\0\0", sys.byteorder)
"""The format for a float with 0 digits after the point."""

_MAX_PRECISION = 16
"""The number of digits after the first that distinguish every float64 from all others."""

_MINUS, _POINT, _ZERO, _NINE, _EXPONENT = b"-.09e"
_SPACE, _DELETE, _QUOTE, _BACKSLASH = b" \x7f'\\"


@noinline
def write_text(call: Call, string: int) -> None:
    """Append the UTF-8 C string at an address, cut off between two characters if there is no more room."""
    start, source = call.text_size, byte_pointer(string)
    target = offset(call.text, start)
    count, room = 0, TEXT_BYTES - 1 - start
    while count < room and source[count] != 0:
        target[count] = source[count]
        count += 1
    while count > 0 and source[count] & 0xC0 == 0x80:  # the next byte continues a character
        count -= 1
    target[count] = 0
    call.text_size = start + count


@noinline
def write_int(call: Call, value: int) -> None:
    """Append an integer in decimal."""
    buffer = local(0)
    format_integer(address_of(buffer), _BUFFER_BYTES, text("%lld"), value)
    write_text(call, address_of(buffer))


@noinline
def write_string(call: Call, address: int, size: int) -> None:
    """Append a string of `size` bytes between quotes, with other bytes than ASCII's printable ones in hexadecimal."""
    content, buffer = byte_pointer(address), local(0)
    write_text(call, text("'"))
    for i in range(minimum(size, TEXT_BYTES)):  # for more there is no room
        buffer[0] = content[i]
        if content[i] < _SPACE or content[i] >= _DELETE or content[i] == _QUOTE or content[i] == _BACKSLASH:
            format_integer(address_of(buffer), _BUFFER_BYTES, text("\\x%02llx"), content[i])
        write_text(call, address_of(buffer))
    write_text(call, text("'"))


@noinline
def write_float(call: Call, value: float) -> None:
    """Append a float as Python's `repr` does: with the fewest digits that identify this float64."""
    if value != value:
        write_text(call, text("nan"))
        return
    if value - value != 0:
        write_text(call, text("inf") if value > 0 else text("-inf"))
        return
    scientific, layout = local(0), local(0)
    _write_shortest(address_of(scientific), value)
    _lay_out(address_of(scientific), address_of(layout))
    write_text(call, address_of(layout))


@noinline
def _write_shortest(target: int, value: float) -> None:
    """Write a finite float as C's %e does, with the fewest digits."""
    form, number = local(0), byte_pointer(target)
    form[0] = _PRECISION
    precision = byte_pointer(address_of(form))
    for digits in range(_MAX_PRECISION + 1):
        precision[2], precision[3] = _ZERO + digits // 10, _ZERO + digits % 10
        format_float(target, _BUFFER_BYTES, address_of(form), value)
        if parse_float(target, 0) == value:
            return
        # Below a power of 2, floats lie closer together: the nearest decimal may belong to another float.
        last = 0
        while number[last + 1] != _EXPONENT:
            last += 1
        if number[last] != _NINE:
            number[last] += 1
            if parse_float(target, 0) == value:
                return


@noinline
def _lay_out(scientific: int, target: int) -> None:
    """Write a number given in C's %e format, in any locale, in Python's layout."""
    source, result, digits = byte_pointer(scientific), byte_pointer(target), byte_pointer(address_of(local(0)))
    at, end, count, exponent = 0, 0, 0, 0
    if source[0] == _MINUS:
        result[0], at, end = _MINUS, 1, 1
    while source[at] != _EXPONENT:
        if _ZERO <= source[at] <= _NINE:  # else it is the locale's point
            digits[count] = source[at]
            count += 1
        at += 1
    sign, at = source[at + 1], at + 2
    while source[at] != 0:
        exponent = 10 * exponent + source[at] - _ZERO
        at += 1
    power = -exponent if sign == _MINUS else exponent
    is_scientific = power < -4 or power >= 16
    before_point = 1 if is_scientific else power + 1
    last = count if is_scientific else maximum(count, before_point + 1)
    for k in range(minimum(before_point - 1, 0), last):
        if k == before_point:
            result[end] = _POINT
            end += 1
        result[end] = digits[k] if 0 <= k < count else _ZERO
        end += 1
    result[end] = 0
    if is_scientific:
        result[end], result[end + 1] = _EXPONENT, sign
        format_integer(target + end + 2, _BUFFER_BYTES - end - 2, text("%02lld"), exponent)


@compiled
def write_shape(call: Call, tensor: Tensor) -> None:
    """Append a tensor's dimensions as Python prints a list, with None for -1, an unknown dimension."""
    write_list(call, tensor.dims, minimum(tensor.rank, MAX_DIMS), True)


@noinline
def write_list(call: Call, values: Words, count: int, are_lengths: bool) -> None:
    """Append integers as Python prints a list; if they are lengths, with None for -1."""
    write_text(call, text("["))
    for i in range(count):
        if i > 0:
            write_text(call, text(", "))
        if are_lengths and values[i] == -1:
            write_text(call, text("None"))
        else:
            write_int(call, values[i])
    write_text(call, text("]"))


@noinline
def write_product(call: Call, factors: Words, count: int) -> None:
    """Append the product of up to three numbers >= 0 in decimal, even if it does not fit in 64 bits."""
    limbs, product = local(0), local(0)  # to the base 10**9, the lowest first
    for i in range(_LIMBS):
        limbs[i] = 1 if i == 0 else 0
    for k in range(count):
        factor = factors[k]
        for i in range(_LIMBS):
            product[i] = 0
        for shift in range(_LIMBS):
            carry, digit = 0, factor % _BASE
            factor //= _BASE
            for i in range(shift, _LIMBS):
                total = product[i] + limbs[i - shift] * digit + carry
                product[i], carry = total % _BASE, total // _BASE
        for i in range(_LIMBS):
            limbs[i] = product[i]
    last = _LIMBS - 1
    while last > 0 and limbs[last] == 0:
        last -= 1
    write_int(call, limbs[last])
    buffer = local(0)
    for i in range(last - 1, -1, -1):
        format_integer(address_of(buffer), _BUFFER_BYTES, text("%09lld"), limbs[i])
        write_text(call, address_of(buffer))


@noinline
def is_same(address: int, size: int, string: int) -> bool:
    """Whether `size` bytes, of which the last is 0, are a C string."""
    given, expected = byte_pointer(address), byte_pointer(string)
    for i in range(size - 1):
        if given[i] != expected[i] or expected[i] == 0:
            return False
    return bool(expected[size - 1] == 0)


@noinline
def length_of(string: int) -> int:
    """The number of bytes of a C string."""
    content, count = byte_pointer(string), 0
    while content[count] != 0:
        count += 1
    return count


@compiled
def is_same_text(string: int, other: int) -> bool:
    """Whether two C strings are the same."""
    return is_same(string, length_of(string) + 1, other)
