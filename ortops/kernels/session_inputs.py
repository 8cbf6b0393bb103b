"""The inputs of a call of a session, read through OrtApi by compiled code: by ctypes, their 30 calls take 20 us."""

from __future__ import annotations

from typing import Any

from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.parallel import call
from ortops.kernels.jit.scalar import address_of, minimum, offset


@compiled
def describe(functions: Any, context: int, inputs: int, most_rank: int, rows: Any) -> int:
    """Fill a row for each input: its address, element type, rank and lengths; type 0 where it is absent.

    Args:
        functions: addresses of the functions of OrtApi, as in `ortops.engine.tensors`.
        context: of the call.
        inputs: their number.
        most_rank: the lengths of a row; those of further axes are left out.
        rows: [inputs, 3 + most_rank], all 0.

    Returns:
        0, or 1 where a function of OrtApi has failed.
    """
    for i in range(inputs):
        row = offset(rows, i * (3 + most_rank))
        if not _describe(functions, context, i, most_rank, row):
            return 1
    return 0


@compiled
def _describe(functions: Any, context: int, i: int, most_rank: int, row: Any) -> bool:
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
    row[2] = minimum(row[2], most_rank)
    done = done and call(functions[4], (info, here + 24, row[2])) == 0
    call(functions[6], (info,))
    return done and call(functions[5], (value, here)) == 0
