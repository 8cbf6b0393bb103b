"""Read the inputs of a session's call through OrtApi, in compiled code: through ctypes, the 30 calls take 20 us."""

from __future__ import annotations

from typing import Any

from ortops.engine.compiled.ort_api import call_api
from ortops.jit.compile import compiled
from ortops.jit.elements import Words
from ortops.jit.scalar import address_of, minimum, offset


@compiled
def describe(api: int, context: int, inputs: int, max_rank: int, rows: Words) -> int:
    """Fill a row for each input with its address, element type, rank and dimensions; an absent input's type is 0.

    A C function, too.

    Args:
        api: OrtApi's address.
        context: the call's OrtKernelContext.
        inputs: the number of inputs.
        max_rank: the number of dimensions in a row; further dimensions are left out.
        rows: the result [inputs, 3 + max_rank], initially 0.

    Returns:
        The OrtStatus of the first OrtApi function that failed, which the caller must release; 0 if all succeeded.
    """
    for i in range(inputs):
        status = _describe(api, context, i, max_rank, offset(rows, i * (3 + max_rank)))
        if status != 0:
            return status
    return 0


@compiled
def _describe(api: int, context: int, i: int, max_rank: int, row: Any) -> int:
    here = address_of(row)
    status: int = call_api(api, "KernelContext_GetInput", (context, i, here))
    value = row[0]
    if status != 0 or value == 0:
        return status
    status = call_api(api, "GetTensorTypeAndShape", (value, here))
    if status != 0:
        return status
    info = row[0]
    status = call_api(api, "GetTensorElementType", (info, here + 8))
    if status == 0:
        status = call_api(api, "GetDimensionsCount", (info, here + 16))
    if status == 0:
        row[2] = minimum(row[2], max_rank)
        status = call_api(api, "GetDimensions", (info, here + 24, row[2]))
    call_api(api, "ReleaseTensorTypeAndShapeInfo", (info,))
    if status == 0:
        status = call_api(api, "GetTensorMutableData", (value, here))
    return status
