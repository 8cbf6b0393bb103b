"""Round sums of float64 once to the element type of an output."""

from __future__ import annotations

from ortops.jit.compile import compiled
from ortops.jit.elements import FLOAT16, Doubles, Stored
from ortops.jit.scalar import int64_pointer, kind_of, offset, store


@compiled
def round_sums(sums: Doubles, rows: int, columns: int, terms: int, next_row: int, next_term: int, y: Stored) -> None:
    """Add terms in order, and fill y [rows, columns] with the totals; a C function for each element type.

    Args:
        sums: the terms, in which the totals are computed.
        rows: the number of rows of y.
        columns: the number of its columns.
        terms: the number of terms of an element.
        next_row: the distance from the first term of an element to that of the element below.
        next_term: the distance from term to term.
        y: the result.
    """
    for r in range(rows):
        for k in range(columns):
            at = offset(sums, r * next_row + k)
            total = at[0] if terms > 0 else 0.0
            for i in range(1, terms):
                total += at[i * next_term]
            # Not bfloat16, to which ml_dtypes rounds through float32, too.
            odd = kind_of(y) == FLOAT16 and terms > 0
            store(y, r * columns + k, _rounded_to_odd(total, at) if odd else total)


_LEAST_EXPONENT, _INFINITE = 1023 - 126, 1023 + 128
"""The exponents, as float64s store them, of the least normal float32 and of the least number beyond float32's range."""

_LOST = 29
"""The bits that a float32 has fewer."""


@compiled
def _rounded_to_odd(value: float, cell: Doubles) -> float:
    """A number with as many bits as a float32: rounded on to float16, it has been rounded once.

    Beyond float32's range it stays as it is: float16 has 0 or infinity for it.
    """
    word = int64_pointer(cell)
    cell[0] = value
    exponent = word[0] >> 52 & 0x7FF
    if _LEAST_EXPONENT <= exponent < _INFINITE and word[0] & ((1 << _LOST) - 1):
        word[0] = (word[0] >> _LOST | 1) << _LOST
    return cell[0]
