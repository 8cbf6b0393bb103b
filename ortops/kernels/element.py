"""Elements of every type as numbers: float16 and bfloat16 travel as 16-bit words, since numba has no such types on a CPU.

`words` views float16 as uint16 and bfloat16 as int16, so that the element type of an array says how to read it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

from ortops.kernels.compile import INNER

Array: TypeAlias = np.ndarray[Any, Any]

_WORD = {np.dtype(np.float16): np.uint16, np.dtype(ml_dtypes.bfloat16): np.int16}


def words(array: Array) -> Array:
    """The array itself, or its view as 16-bit words: uint16 for float16, int16 for bfloat16."""
    word = _WORD.get(array.dtype)
    return array if word is None else array.view(word)


def accumulator(array: Array) -> np.dtype[Any]:
    """The type in which sums of the array's elements are accumulated: float64 for float64, else float32."""
    return np.dtype(np.float64 if array.dtype == np.float64 else np.float32)


@intrinsic
def _half_to_float(_typing: Any, word: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), codegen


@intrinsic
def _float_to_half(_typing: Any, value: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), codegen


@njit(**INNER)
def _bfloat16_to_float(word):
    return np.uint32(np.uint32(np.uint16(word)) << np.uint32(16)).view(np.float32)


@njit(**INNER)
def _float_to_bfloat16(value):
    bits = np.float32(value).view(np.uint32)
    if np.isnan(value):
        return np.int16((bits >> np.uint32(16)) | np.uint32(0x40))
    nearest_even = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return np.int16(np.uint32(bits + nearest_even) >> np.uint32(16))


def widen(element: Any) -> Any:
    """The number that an element stands for: float32 for 16-bit words, else the element. For compiled code only."""
    raise TypeError("widen is for compiled code only")


def put(array: Any, index: int, value: float) -> None:
    """Round `value` once to the type of the 1-D `array` and store it at `index`. For compiled code only."""
    raise TypeError("put is for compiled code only")


def sums_for(array: Any) -> Any:
    """Zeros to accumulate in: the array itself where it is float or double, else float32. For compiled code only."""
    raise TypeError("sums_for is for compiled code only")


def round_sums(sums: Any, array: Any) -> None:
    """Round what was accumulated in `sums_for(array)` into the 2-D array. For compiled code only."""
    raise TypeError("round_sums is for compiled code only")


@overload(widen, inline="always")
def _widen(element):
    if element == types.uint16:
        return lambda element: _half_to_float(element)
    if element == types.int16:
        return lambda element: _bfloat16_to_float(element)
    return lambda element: element


@overload(put, inline="always")
def _put(array, index, value):
    if array.dtype == types.uint16:

        def put_half(array, index, value):
            array[index] = _float_to_half(np.float32(value))

        return put_half
    if array.dtype == types.int16:

        def put_bfloat16(array, index, value):
            array[index] = _float_to_bfloat16(np.float32(value))

        return put_bfloat16

    def put_float(array, index, value):
        array[index] = value

    return put_float


@overload(sums_for)
def _sums_for(array):
    if array.dtype in (types.uint16, types.int16):
        return lambda array: np.zeros(array.shape, np.float32)

    def clear(array):
        array[...] = 0.0
        return array

    return clear


@overload(round_sums)
def _round_sums(sums, array):
    if array.dtype not in (types.uint16, types.int16):
        return lambda sums, array: None

    def round_into(sums, array):
        for i in range(array.shape[0]):
            line = array[i]
            for j in range(array.shape[1]):
                put(line, np.uintp(j), sums[i, j])

    return round_into


@njit(**INNER)
def round_at(numbers: Array, array: Array, at: int) -> None:
    """Round the 2-D numbers into the 1-D array from element `at` on."""
    for p in range(numbers.shape[0]):
        for q in range(numbers.shape[1]):
            put(array, np.uintp(at + p * numbers.shape[1] + q), numbers[p, q])
