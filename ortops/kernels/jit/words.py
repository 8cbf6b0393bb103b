"""Values of compiled code as the 64-bit words in which C functions take them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba import types

_INT64 = ir.IntType(64)


def from_words(context: Any, builder: Any, words: Iterator[Any], value_type: Any) -> Any:
    """Emit a value from the next words, one for each number or pointer of a tuple."""
    if isinstance(value_type, types.BaseTuple):
        parts = [from_words(context, builder, words, part) for part in value_type.types]
        return context.make_tuple(builder, value_type, parts)
    word = next(words)
    if isinstance(value_type, types.CPointer):
        return builder.inttoptr(word, context.get_value_type(value_type))
    if value_type == types.boolean:
        return builder.icmp_unsigned("!=", word, _INT64(0))
    return builder.bitcast(word, ir.DoubleType()) if value_type == types.float64 else word


def to_words(builder: Any, value: Any, value_type: Any) -> Iterator[Any]:
    """Emit the words of a value."""
    if isinstance(value_type, types.BaseTuple):
        for i, part in enumerate(value_type.types):
            yield from to_words(builder, builder.extract_value(value, i), part)
    elif isinstance(value_type, types.CPointer):
        yield builder.ptrtoint(value, _INT64)
    elif value_type == types.boolean:
        yield builder.zext(value, _INT64)
    else:
        yield builder.bitcast(value, _INT64) if value_type == types.float64 else value
