# SPDX-License-Identifier: MIT
"""Shape inference in sessions, through ONNX Runtime's C interface for custom operators."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p

import numpy as np

from ortops.engine.c_api import Api, onnxruntime_version, ort_api
from ortops.native.types import ATTRIBUTE_TYPES
from ortops.shapes import Axes
from ortops.spec import ELEMENT_TYPES, Attribute, AttributeValue, Length, Operator

_numbers = itertools.count()

_BYTES = 256
"""The most bytes of an attribute that the first read takes; a longer attribute is read again."""


def infer_output_shapes(operator: Operator, context: int) -> int:
    """Set each output's element type and shape where inputs and attributes determine its rank, and return 0.

    ONNX Runtime uses one such function for all of an operator's element types, so this reads the types from the inputs.

    Args:
        operator: the definition.
        context: the address of an OrtShapeInferContext.

    Raises:
        TypeError, ValueError: an attribute or a known shape breaks a rule of the operator.
        OrtError: ONNX Runtime refuses a call.
    """
    api = ort_api()
    given = {attribute.name: _attribute(api, context, attribute) for attribute in operator.attributes}
    known = {name: value for name, value in given.items() if value is not None}
    unknown = {a.name: np.empty(0) for a in operator.attributes if a.type == "TENSOR"}
    checked = operator.check_attributes(known | unknown)
    axes = Axes(operator, {name: value for name, value in checked.items() if name not in unknown})
    types = dict(ELEMENT_TYPES)
    count = c_size_t()
    api.check(api.ShapeInferContext_GetInputCount(context, byref(count)))
    for i in range(count.value):
        tensor = operator.inputs[min(i, len(operator.inputs) - 1)]
        element_type, lengths = _input(api, context, i)
        if element_type:
            types.setdefault(tensor.type, element_type)
        if lengths:
            axes.bind_shape(tensor, lengths)
    for i, tensor in enumerate(() if operator.outputs[-1].variadic else operator.outputs):
        shape = axes.shape_of(tensor)
        if tensor.type in types and shape is not None:
            # The interface takes -1 without a name for a length, so an unknown length gets a name that no other one has.
            named = [f"ortops_unknown_{next(_numbers)}" if length is None else length for length in shape]
            _set_output(api, context, i, types[tensor.type], named)
    return 0


def _attribute(api: Api, context: int, attribute: Attribute) -> AttributeValue | None:
    handle, size = c_void_p(), c_size_t()
    if not api.succeeds(api.ShapeInferContext_GetAttribute(context, attribute.name.encode(), byref(handle))):
        return None
    if attribute.type not in ATTRIBUTE_TYPES:
        return None  # a tensor, which the interface does not give
    kind, content = ATTRIBUTE_TYPES[attribute.type], ctypes.create_string_buffer(_BYTES)
    while not api.succeeds(api.ReadOpAttr(handle, kind, content, len(content), byref(size))):
        if size.value <= len(content):
            return None  # another type, which the kernel reports
        content = ctypes.create_string_buffer(size.value)
    if attribute.type.startswith("STRING"):
        text = content.raw[: size.value].decode(errors="surrogateescape")
        if attribute.is_list:  # a list of strings with zero bytes reads wrongly here; the node's kernel refuses it
            return text.split("\0")[:-1]
        return text if onnxruntime_version() >= (1, 23) else text[:-1]  # earlier releases count a zero byte at the end
    cell = c_int64 if attribute.type.startswith("INT") else c_float
    values = list((cell * (size.value // ctypes.sizeof(cell))).from_buffer(content))
    return values if attribute.is_list else values[0]


def _input(api: Api, context: int, i: int) -> tuple[int, list[Length]]:
    """An input's element type and lengths, as from `type_and_lengths`; 0 and [] if they are unknown."""
    info = c_void_p()
    if not api.succeeds(api.ShapeInferContext_GetInputTypeShape(context, i, byref(info))) or not info:
        return 0, []
    return type_and_lengths(api, info)


def type_and_lengths(api: Api, info: c_void_p) -> tuple[int, list[Length]]:
    """A tensor's element type and lengths; None for an unknown length, and [] for an unknown rank.

    Args:
        api: ONNX Runtime's functions.
        info: the address of an OrtTensorTypeAndShapeInfo.
    """
    element_type, rank = c_int(), c_size_t()
    api.check(api.GetTensorElementType(info, byref(element_type)))
    api.check(api.GetDimensionsCount(info, byref(rank)))
    lengths, names = (c_int64 * rank.value)(), (c_char_p * rank.value)()
    api.check(api.GetDimensions(info, lengths, rank.value))
    api.check(api.GetSymbolicDimensions(info, names, rank.value))
    known = zip(lengths, names, strict=True)
    shape: list[Length] = [length if length >= 0 else (name.decode() if name else None) for length, name in known]
    return element_type.value, shape


def _set_output(api: Api, context: int, i: int, element_type: int, shape: Sequence[Length]) -> None:
    info, rank = c_void_p(), len(shape)
    api.check(api.CreateTensorTypeAndShapeInfo(byref(info)))
    try:
        api.check(api.SetTensorElementType(info, element_type))
        lengths = (c_int64 * rank)(*(length if isinstance(length, int) else -1 for length in shape))
        names = (c_char_p * rank)(*(length.encode() if isinstance(length, str) else b"" for length in shape))
        api.check(api.SetDimensions(info, lengths, rank))
        api.check(api.SetSymbolicDimensions(info, names, rank))
        api.check(api.ShapeInferContext_SetOutputTypeShape(context, i, info))
    finally:
        api.ReleaseTensorTypeAndShapeInfo(info)
