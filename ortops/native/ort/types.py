"""What ONNX Runtime calls of operators and of allocators, and what compiled callbacks need for it."""

from __future__ import annotations

from typing import Annotated

from ortops.native.interface import Signature, TypedOperator
from ortops.native.structs import POINTER, Struct
from ortops.native.types import Node, Text

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
    """OrtAllocator: the version, and the addresses of its functions; and behind them its OrtMemoryInfo."""

    version: int
    alloc: int
    free: int
    info: int
    reserve: int
    others: Annotated[list[int], 7]
    memory_info: int


API_FUNCTIONS = {
    "CreateStatus": 0,
    "GetErrorMessage": 2,
    "CreateCustomOpDomain": 26,
    "CustomOpDomain_Add": 27,
    "AddCustomOpDomain": 28,
    "GetTensorMutableData": 51,
    "FillStringTensor": 52,
    "GetStringTensorDataLength": 53,
    "GetStringTensorContent": 54,
    "CastTypeInfoToTensorInfo": 55,
    "CreateTensorTypeAndShapeInfo": 57,
    "SetTensorElementType": 58,
    "SetDimensions": 59,
    "GetTensorElementType": 60,
    "GetDimensionsCount": 61,
    "GetDimensions": 62,
    "GetSymbolicDimensions": 63,
    "GetTensorTypeAndShape": 65,
    "AllocatorFree": 76,
    "AllocatorGetInfo": 77,
    "GetAllocatorWithDefaultOptions": 78,
    "KernelInfoGetAttribute_float": 85,
    "KernelInfoGetAttribute_int64": 86,
    "KernelInfoGetAttribute_string": 87,
    "KernelContext_GetInputCount": 88,
    "KernelContext_GetOutputCount": 89,
    "KernelContext_GetInput": 90,
    "KernelContext_GetOutput": 91,
    "ReleaseStatus": 93,
    "ReleaseValue": 96,
    "ReleaseTypeInfo": 98,
    "ReleaseTensorTypeAndShapeInfo": 99,
    "ReleaseCustomOpDomain": 101,
    "KernelInfoGetAttributeArray_float": 162,
    "KernelInfoGetAttributeArray_int64": 163,
    "KernelInfo_GetInputCount": 230,
    "KernelInfo_GetOutputCount": 231,
    "KernelInfo_GetInputTypeInfo": 234,
    "KernelInfoGetAttribute_tensor": 236,
    "HasSessionConfigEntry": 237,
    "KernelInfo_GetLogger": 245,
    "GetResizedStringTensorElementBuffer": 252,
    "ShapeInferContext_GetInputCount": 267,
    "ShapeInferContext_GetInputTypeShape": 268,
    "ShapeInferContext_GetAttribute": 269,
    "ShapeInferContext_SetOutputTypeShape": 270,
    "SetSymbolicDimensions": 271,
    "ReadOpAttr": 272,
    "KernelContext_ParallelFor": 274,
}
"""The positions in OrtApi of the functions that compiled code calls."""
