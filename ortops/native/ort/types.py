# SPDX-License-Identifier: MIT
"""What ONNX Runtime calls of operators and of allocators, and what compiled callbacks need for it."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_char_p, c_int, c_size_t, c_void_p
from typing import Annotated, Any

from ortops.native.interface import Signature, TypedOperator
from ortops.native.structs import POINTER, Struct
from ortops.native.types import Node, Text

API_VERSION = 20
"""The version of OrtApi and of OrtCustomOp in onnxruntime 1.20, which later releases support."""

FAIL, INVALID_ARGUMENT = 1, 2
"""OrtErrorCode's ORT_FAIL and ORT_INVALID_ARGUMENT."""


class CustomOp(Struct):
    """OrtCustomOp of API version 20: the version, and the addresses of functions. Source: onnxruntime_c_api.h."""

    version: int
    create_kernel_v1: int
    get_name: int
    get_execution_provider_type: int
    get_input_type: int
    get_input_type_count: int
    get_output_type: int
    get_output_type_count: int
    kernel_compute_v1: int
    kernel_destroy: int
    get_input_characteristic: int
    get_output_characteristic: int
    get_input_memory_type: int
    get_variadic_input_min_arity: int
    get_variadic_input_homogeneity: int
    get_variadic_output_min_arity: int
    get_variadic_output_homogeneity: int
    create_kernel: int
    kernel_compute: int
    infer_output_shape: int
    get_start_version: int
    get_end_version: int
    get_may_inplace: int
    release_may_inplace: int
    get_alias_map: int
    release_alias_map: int


class Table(Struct):
    """An operator's OrtCustomOp, and what its callbacks need."""

    custom_op: CustomOp
    api: int  # the address of OrtApi
    operator: Annotated[TypedOperator, POINTER]  # if it is the library's
    references: int  # of the library's: the number of kernels that use the table, plus 1 while session options may
    create: int  # of Python's: the addresses of Python functions, or 0
    infer: int
    prefix: Text  # of Python's: the beginning of messages about exceptions
    maker: Annotated[list[int] | None, POINTER]  # the number of the thread for which the operator has another name
    maker_name: Text
    signature: Signature  # perhaps with more tensors than there is room for: then the memory is larger than the struct


class Kernel(Struct):
    """A kernel of one of the library's operators: its table and its node."""

    table: Annotated[Table, POINTER]
    node: Node


class PythonKernel(Struct):
    """A kernel that Python has made: its object; its table; and its node, if compiled code computes it."""

    callable: int
    table: Annotated[Table, POINTER]
    node: Annotated[Node | None, POINTER]


class Allocator(Struct):
    """OrtAllocator: the version, and the addresses of its functions."""

    version: int
    alloc: int
    free: int
    info: int
    reserve: int
    others: Annotated[list[int], 7]


API_FUNCTIONS: Mapping[str, tuple[Any, ...]] = {
    "CreateStatus": (0, c_int, c_char_p),
    "GetErrorMessage": (2, c_void_p),
    "CreateCustomOpDomain": (26, c_char_p, c_void_p),
    "CustomOpDomain_Add": (27, c_void_p, c_void_p),
    "AddCustomOpDomain": (28, c_void_p, c_void_p),
    "GetTensorMutableData": (51, c_void_p, c_void_p),
    "FillStringTensor": (52, c_void_p, c_void_p, c_size_t),
    "GetStringTensorDataLength": (53, c_void_p, c_void_p),
    "GetStringTensorContent": (54, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t),
    "CastTypeInfoToTensorInfo": (55, c_void_p, c_void_p),
    "CreateTensorTypeAndShapeInfo": (57, c_void_p),
    "SetTensorElementType": (58, c_void_p, c_int),
    "SetDimensions": (59, c_void_p, c_void_p, c_size_t),
    "GetTensorElementType": (60, c_void_p, c_void_p),
    "GetDimensionsCount": (61, c_void_p, c_void_p),
    "GetDimensions": (62, c_void_p, c_void_p, c_size_t),
    "GetSymbolicDimensions": (63, c_void_p, c_void_p, c_size_t),
    "GetTensorTypeAndShape": (65, c_void_p, c_void_p),
    "AllocatorGetInfo": (77, c_void_p, c_void_p),
    "GetAllocatorWithDefaultOptions": (78, c_void_p),
    "KernelInfoGetAttribute_float": (85, c_void_p, c_char_p, c_void_p),
    "KernelInfoGetAttribute_int64": (86, c_void_p, c_char_p, c_void_p),
    "KernelInfoGetAttribute_string": (87, c_void_p, c_char_p, c_void_p, c_void_p),
    "KernelContext_GetInputCount": (88, c_void_p, c_void_p),
    "KernelContext_GetOutputCount": (89, c_void_p, c_void_p),
    "KernelContext_GetInput": (90, c_void_p, c_size_t, c_void_p),
    "KernelContext_GetOutput": (91, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p),
    "ReleaseStatus": (93, c_void_p),
    "ReleaseValue": (96, c_void_p),
    "ReleaseTypeInfo": (98, c_void_p),
    "ReleaseTensorTypeAndShapeInfo": (99, c_void_p),
    "ReleaseCustomOpDomain": (101, c_void_p),
    "KernelInfoGetAttributeArray_float": (162, c_void_p, c_char_p, c_void_p, c_void_p),
    "KernelInfoGetAttributeArray_int64": (163, c_void_p, c_char_p, c_void_p, c_void_p),
    "KernelInfo_GetInputCount": (230, c_void_p, c_void_p),
    "KernelInfo_GetOutputCount": (231, c_void_p, c_void_p),
    "KernelInfo_GetInputTypeInfo": (234, c_void_p, c_size_t, c_void_p),
    "KernelInfoGetAttribute_tensor": (236, c_void_p, c_char_p, c_void_p, c_void_p),
    "HasSessionConfigEntry": (237, c_void_p, c_char_p, c_void_p),
    "KernelInfo_GetLogger": (245, c_void_p, c_void_p),
    "GetResizedStringTensorElementBuffer": (252, c_void_p, c_size_t, c_size_t, c_void_p),
    "ShapeInferContext_GetInputCount": (267, c_void_p, c_void_p),
    "ShapeInferContext_GetInputTypeShape": (268, c_void_p, c_size_t, c_void_p),
    "ShapeInferContext_GetAttribute": (269, c_void_p, c_char_p, c_void_p),
    "ShapeInferContext_SetOutputTypeShape": (270, c_void_p, c_size_t, c_void_p),
    "SetSymbolicDimensions": (271, c_void_p, c_void_p, c_size_t),
    "ReadOpAttr": (272, c_void_p, c_int, c_void_p, c_size_t, c_void_p),
    "KernelContext_ParallelFor": (274, c_void_p, c_void_p, c_size_t, c_size_t, c_void_p),
}
"""The functions of OrtApi that are called: the position of each in the table, and the types of its arguments."""
