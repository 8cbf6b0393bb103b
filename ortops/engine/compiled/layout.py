"""Constants that Python shares with the compiled callbacks of sessions."""

from __future__ import annotations

VERSION, CREATE_KERNEL, INFER_SHAPES = 0, 17, 19
"""Word indices in OrtCustomOp: the interface's version, and the callbacks CreateKernelV2 and InferOutputShapeFn."""

NAME, INPUTS, OUTPUTS, API, ZERO, ONE, LAST_VERSION, OPERATOR, REFERENCES, CREATE, INFER, TEXT, MAKER = range(26, 39)
MAKER_NAME, TENSORS = 39, 40
"""Indices of the 8-byte words that follow OrtCustomOp in an operator's table (`ortops.engine.c_api`).

NAME, TEXT: addresses of C strings: the operator's name, and the prefix of messages about exceptions.
INPUTS, OUTPUTS: the number of inputs and of outputs.
API: OrtApi's address.
ZERO, ONE, LAST_VERSION: constants that ONNX Runtime asks for.
OPERATOR: of a library's operator, the address of its record (`ortops.library.compiled.layout`).
REFERENCES: of a library's operator, the number of kernels that use the table, plus 1 while session options may use it.
CREATE, INFER: of a Python operator, the addresses of Python functions, or 0.
MAKER: the address of a word with the number of the thread for which the operator has the name MAKER_NAME; or 0.
MAKER_NAME: the address of a C string.
TENSORS: from here on TENSOR_WORDS for each number, shared by the input and the output with this number.
"""

INPUT_TYPE, INPUT_PRESENCE, OUTPUT_TYPE, OUTPUT_PRESENCE = range(TENSORS, TENSORS + 4)
"""The indices of the first input's and the first output's words: the element type; and 0 for a required tensor, 1 for an
optional tensor, 2 for a variadic tensor."""

TENSOR_WORDS = 4

FAIL, INVALID_ARGUMENT = 1, 2
"""OrtErrorCode's ORT_FAIL and ORT_INVALID_ARGUMENT."""

ALLOCATOR_INFO = 12
"""The index of the word with an OrtMemoryInfo's address, after all of an OrtAllocator's functions."""

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
