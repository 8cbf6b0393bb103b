# SPDX-License-Identifier: MIT
"""Round float64 sums once to an output's element type."""

from __future__ import annotations

from ortops.compiler.compile import compiled
from ortops.compiler.scalar import int64_pointer, kind_of, offset, store
from ortops.native.elements import FLOAT16, Doubles, Stored


@compiled
def round_sums(sums: Doubles, rows: int, columns: int, terms: int, next_row: int, next_term: int, y: Stored) -> None:
    """Add terms in order, and fill y [rows, columns] with the totals; a C function for each element type.

    The terms are overwritten. `next_row` is the distance from an element's first term to that of the element below,
    `next_term` the distance from term to term.
    """
    for r in range(rows):
        for k in range(columns):
            at = offset(sums, r * next_row + k)
            total = at[0] if terms > 0 else 0.0
            for i in range(1, terms):
                total += at[i * next_term]
            # bfloat16 does not need this: ml_dtypes rounds to it through float32, too.
            odd = kind_of(y) == FLOAT16 and terms > 0
            store(y, r * columns + k, _rounded_to_odd(total, at) if odd else total)


_LEAST_EXPONENT, _INFINITE = 1023 - 126, 1023 + 128
"""The exponents, as a float64 stores them, of the smallest normal float32 and the smallest number beyond float32's range."""

_LOST = 29
"""The number of mantissa bits that float32 lacks, compared with float64."""


@compiled
def _rounded_to_odd(value: float, cell: Doubles) -> float:
    """The number rounded to odd in float32's precision; rounding the result to float16 equals rounding the number once.

    A number beyond float32's range is unchanged, since float16 rounds it to 0 or infinity.
    """
    word = int64_pointer(cell)
    cell[0] = value
    exponent = word[0] >> 52 & 0x7FF
    if _LEAST_EXPONENT <= exponent < _INFINITE and word[0] & ((1 << _LOST) - 1):
        word[0] = (word[0] >> _LOST | 1) << _LOST
    return cell[0]
