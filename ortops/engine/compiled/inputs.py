"""Read the inputs of a call in a session through OrtApi in compiled code: by ctypes, the 30 calls take 20 us."""

from __future__ import annotations

from typing import Any

from ortops.jit.compile import compiled
from ortops.jit.parallel import call
from ortops.jit.scalar import address_of, minimum, offset


@compiled
def describe(functions: Any, context: int, inputs: int, max_rank: int, rows: Any) -> int:
    """Fill a row for each input with its address, element type, rank and dimensions; the type is 0 if it is absent.

    Args:
        functions: the addresses of OrtApi's functions, as in `ortops.engine.tensors`.
        context: the OrtKernelContext of the call.
        inputs: the number of inputs.
        max_rank: the number of dimensions in a row; further ones are left out.
        rows: the result [inputs, 3 + max_rank], initially 0.

    Returns:
        0, or 1 if a function of OrtApi failed.
    """
    for i in range(inputs):
        row = offset(rows, i * (3 + max_rank))
        if not _describe(functions, context, i, max_rank, row):
            return 1
    return 0


@compiled
def _describe(functions: Any, context: int, i: int, max_rank: int, row: Any) -> bool:
    here = address_of(row)
    if call(functions[0], (context, i, here)) != 0:
        return False
    value = row[0]
    if value == 0:
        return True
    if call(functions[1], (value, here)) != 0:
        return False
    info = row[0]
    done = call(functions[2], (info, here + 8)) == 0 and call(functions[3], (info, here + 16)) == 0
    row[2] = minimum(row[2], max_rank)
    done = done and call(functions[4], (info, here + 24, row[2])) == 0
    call(functions[6], (info,))
    return done and call(functions[5], (value, here)) == 0
