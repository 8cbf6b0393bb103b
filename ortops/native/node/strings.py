"""Compare strings of attributes, and write them as Python prints them."""

from __future__ import annotations

from typing import Any

from ortops.compiler.compile import compiled, noinline
from ortops.compiler.scalar import address_of, byte_pointer, local, minimum
from ortops.compiler.text import text
from ortops.native.node.messages import write_text
from ortops.native.types import TEXT_BYTES, Call

_QUOTE, _DOUBLE_QUOTE, _BACKSLASH, _SPACE, _DELETE = b"'\"\\ \x7f"
_TAB, _NEW_LINE, _RETURN, _ZERO, _A, _TEN = b"\t\n\r0a\x0a"
_NO_BREAK_SPACE, _SOFT_HYPHEN = 0xA0, 0xAD


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


@noinline
def write_repr(call: Call, address: int, size: int) -> None:
    """Append a string of `size` bytes as Python's `repr` does, except that characters from U+00AE on are not escaped.

    Bytes that are not UTF-8 are written as the surrogates that Python has for them.
    """
    source, quote, has_double = byte_pointer(address), _QUOTE, False
    for i in range(size):
        has_double = has_double or source[i] == _DOUBLE_QUOTE
    for i in range(size):
        if source[i] == _QUOTE and not has_double:
            quote = _DOUBLE_QUOTE
    _write_byte(call, quote)
    at, size = 0, minimum(size, TEXT_BYTES)  # for more there is no room
    while at < size:
        count = _length(source, at, size)
        if count == 1:
            _write_character(call, source[at], quote)
        elif count == 0:
            write_text(call, text("\\udc"))
            _write_digits(call, source[at])
        elif (
            count == 2 and source[at] == 0xC2 and (source[at + 1] <= _NO_BREAK_SPACE or source[at + 1] == _SOFT_HYPHEN)
        ):
            write_text(call, text("\\x"))
            _write_digits(call, source[at + 1])
        else:
            buffer = byte_pointer(address_of(local(0)))
            for k in range(count):
                buffer[k] = source[at + k]
            buffer[count] = 0
            write_text(call, address_of(buffer))
        at += 1 if count == 0 else count
    _write_byte(call, quote)


@noinline
def _length(source: Any, at: int, size: int) -> int:
    """The number of bytes of the character that begins there; 0 if none does."""
    first = source[at]
    if first < 0x80:
        return 1
    count = 2 if 0xC2 <= first <= 0xDF else 3 if 0xE0 <= first <= 0xEF else 4 if 0xF0 <= first <= 0xF4 else 0
    if at + count > size:
        return 0
    for k in range(1, count):
        if source[at + k] & 0xC0 != 0x80:
            return 0
    # Neither a longer form than needed, nor a surrogate, nor beyond the last character.
    is_early = (first == 0xE0 and source[at + 1] < 0xA0) or (first == 0xF0 and source[at + 1] < 0x90)
    is_late = (first == 0xED and source[at + 1] > 0x9F) or (first == 0xF4 and source[at + 1] > 0x8F)
    return 0 if is_early or is_late else count


@noinline
def _write_character(call: Call, character: int, quote: int) -> None:
    """Append a character of ASCII."""
    if character == _TAB:
        write_text(call, text("\\t"))
    elif character == _NEW_LINE:
        write_text(call, text("\\n"))
    elif character == _RETURN:
        write_text(call, text("\\r"))
    elif character < _SPACE or character == _DELETE:
        write_text(call, text("\\x"))
        _write_digits(call, character)
    else:
        if character in (quote, _BACKSLASH):
            _write_byte(call, _BACKSLASH)
        _write_byte(call, character)


@noinline
def _write_digits(call: Call, byte: int) -> None:
    """Append the two hexadecimal digits of a byte."""
    high, low = byte >> 4, byte & 15
    _write_byte(call, high + (_ZERO if high < _TEN else _A - _TEN))
    _write_byte(call, low + (_ZERO if low < _TEN else _A - _TEN))


@noinline
def _write_byte(call: Call, byte: int) -> None:
    word = local(0)
    word[0] = byte
    write_text(call, address_of(word))
