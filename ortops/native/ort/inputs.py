# SPDX-License-Identifier: MIT
"""Read the inputs of a session's call through OrtApi, in compiled code: through ctypes, the 30 calls take 20 us."""

from __future__ import annotations

from ortops.compiler.compile import compiled
from ortops.compiler.scalar import address_of, minimum, offset
from ortops.compiler.struct_types import field_address, struct_at
from ortops.native.elements import Words
from ortops.native.ort.ort_api import call_api
from ortops.native.types import Tensor


@compiled
def describe(api: int, context: int, inputs: int, max_rank: int, rows: Words) -> int:
    """Fill a row for each input with its address, element type, rank and dimensions; an absent input's type is 0.

    A C function, too. A row is a `Tensor` of `max_rank` dimensions, initially 0; further dimensions are left out. The result
    is the OrtStatus of the first OrtApi function that failed, which the caller must release; 0 if all succeeded.
    """
    for i in range(inputs):
        tensor = struct_at(Tensor, address_of(offset(rows, i * (3 + max_rank))))
        status = _describe(api, context, i, max_rank, tensor)
        if status != 0:
            return status
    return 0


@compiled
def _describe(api: int, context: int, i: int, max_rank: int, tensor: Tensor) -> int:
    here = field_address(tensor, "address")
    status = call_api(api, "KernelContext_GetInput", (context, i, here))
    value = tensor.address
    if status != 0 or value == 0:
        return status
    status = call_api(api, "GetTensorTypeAndShape", (value, here))
    if status != 0:
        return status
    info = tensor.address
    status = describe_info(api, info, tensor, max_rank)
    call_api(api, "ReleaseTensorTypeAndShapeInfo", (info,))
    if status == 0:
        status = call_api(api, "GetTensorMutableData", (value, here))
    return status


@compiled
def describe_info(api: int, info: int, tensor: Tensor, max_rank: int) -> int:
    """Set a tensor's element type, rank and dimensions from an OrtTensorTypeAndShapeInfo; an OrtStatus."""
    status = call_api(api, "GetTensorElementType", (info, field_address(tensor, "type")))
    if status == 0:
        status = call_api(api, "GetDimensionsCount", (info, field_address(tensor, "rank")))
    if status == 0:
        tensor.rank = minimum(tensor.rank, max_rank)
        status = call_api(api, "GetDimensions", (info, address_of(tensor.dims), tensor.rank))
    return status
