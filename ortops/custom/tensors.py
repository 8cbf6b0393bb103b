# SPDX-License-Identifier: MIT
"""NumPy arrays over the memory of ONNX Runtime's tensors, and memory that ONNX Runtime fills without reporting its size."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from ctypes import byref, c_int, c_int64, c_size_t, c_void_p
from typing import Any

import ml_dtypes
import numpy as np

from ortops.engine.c_api import Api
from ortops.memory import Array, data_pointer
from ortops.native.ort.types import API_VERSION, Allocator
from ortops.runtime import library
from ortops.shapes import Shape
from ortops.spec import ELEMENT_DTYPES, ELEMENT_TYPES

_DTYPES = {number: ELEMENT_DTYPES[name] for name, number in ELEMENT_TYPES.items()}
_BFLOAT16, _STRING = ELEMENT_TYPES["bfloat16"], ELEMENT_TYPES["string"]
_DTYPES[_STRING] = np.dtype(np.uint64)  # strings' objects, which nobody reads
_TYPESTR = {number: "<i2" if number == _BFLOAT16 else dtype.str for number, dtype in _DTYPES.items()}


class Inputs:
    """Reads a node's inputs as arrays.

    Args:
        api: ONNX Runtime's functions.
        types: each input's element type, as in `ELEMENT_TYPES`.
        max_rank: the most dimensions to read, enough to refuse a tensor with more.
        copies: whether the arrays are copies, which stay valid after the call and can be changed.
    """

    def __init__(self, api: Api, types: Sequence[int], max_rank: int, *, copies: bool = False) -> None:
        self._api, self._count, self._max_rank = api, len(types), max_rank
        self._array = _copy if copies else _aligned
        self._strings = [i for i, kind in enumerate(types) if kind == _STRING]

    def read(self, context: int) -> list[Array | None]:
        """A call's inputs, None for an absent input. Arrays that are not copies are valid only during the call.

        Raises:
            OrtError: ONNX Runtime gives no access to an input.
        """
        rows = np.zeros((self._count, 3 + self._max_rank), np.int64)
        self._api.check(_describe()(self._api.address, context, self._count, self._max_rank, data_pointer(rows)))
        arrays = [self._array(row[0], row[1], tuple(row[3 : 3 + row[2]])) if row[1] else None for row in rows.tolist()]
        for i in self._strings:
            if (array := arrays[i]) is not None:
                value = c_void_p()
                self._api.check(self._api.KernelContext_GetInput(context, i, byref(value)))
                arrays[i] = _strings(self._api, value, array.shape)
        return arrays


@functools.cache
def _describe() -> Callable[..., int]:
    return library().function("describe_inputs", *[c_int64] * 5)


def _strings(api: Api, value: c_void_p, shape: Shape) -> Array:
    """A string tensor's elements. Bytes that are not UTF-8 become surrogates, as in file names."""
    count, size = math.prod(shape), c_size_t()
    strings = np.empty(count, object)
    if count:
        api.check(api.GetStringTensorDataLength(value, byref(size)))
        text, starts = ctypes.create_string_buffer(max(size.value, 1)), (c_size_t * count)()
        api.check(api.GetStringTensorContent(value, text, size.value, starts, count))
        ends, content = [*starts[1:], size.value], text.raw
        strings[:] = [content[i:j].decode(errors="surrogateescape") for i, j in zip(starts, ends, strict=True)]
    return strings.reshape(shape)


class _Strings:
    """A string tensor; ``tensor[...] = array`` fills it."""

    def __init__(self, api: Api, value: c_void_p) -> None:
        self._api, self._value = api, value

    def __setitem__(self, _: object, array: Array) -> None:
        texts = [text if isinstance(text, bytes) else text.encode(errors="surrogateescape") for text in array.flat]
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        content = np.frombuffer(b"\0".join([*texts, b""]), np.uint8)
        # Measured: for a million strings, an array of c_char_p took 7 times as long.
        starts = content.ctypes.data + np.cumsum(lengths + 1) - (lengths + 1)
        self._api.check(self._api.FillStringTensor(self._value, starts.ctypes.data, len(texts)))
        if np.count_nonzero(content == 0) == len(texts):
            return
        for i, text in enumerate(texts):
            if b"\0" in text:  # the function above ends a string there
                memory = c_void_p()
                self._api.check(self._api.GetResizedStringTensorElementBuffer(self._value, i, len(text), byref(memory)))
                ctypes.memmove(memory, text, len(text))


def tensor_attribute(api: Api, value: c_void_p) -> Array:
    """A copy of a tensor OrtValue."""
    info, kind, rank, data = c_void_p(), c_int(), c_size_t(), c_void_p()
    api.check(api.GetTensorTypeAndShape(value, byref(info)))
    try:
        api.check(api.GetTensorElementType(info, byref(kind)))
        api.check(api.GetDimensionsCount(info, byref(rank)))
        lengths = (c_int64 * rank.value)()
        api.check(api.GetDimensions(info, lengths, rank.value))
    finally:
        api.ReleaseTensorTypeAndShapeInfo(info)
    if kind.value == _STRING:
        return _strings(api, value, tuple(lengths))
    if kind.value not in _TYPESTR:
        raise TypeError(f"a tensor has the element type {kind.value}: must be one of {', '.join(ELEMENT_TYPES)}")
    api.check(api.GetTensorMutableData(value, byref(data)))
    return _copy(data.value or 0, kind.value, tuple(lengths))


def output(
    api: Api, context: int, i: int, shape: Shape, element_type: int, unaligned: list[tuple[Array, Array]]
) -> Any:
    """Output `i` as an array over ONNX Runtime's memory, or None if the node leaves it out.

    For strings, the result is an object that ``tensor[...] = array`` fills.

    Memory that a binding gives may be unaligned. Then the result is a separate array, and the pair of the array over ONNX
    Runtime's memory and this array is appended to `unaligned`, for the caller to copy.

    Raises:
        OrtError: ONNX Runtime cannot allocate it.
    """
    value, data = c_void_p(), c_void_p()
    api.check(api.KernelContext_GetOutput(context, i, (c_int64 * len(shape))(*shape), len(shape), byref(value)))
    if not value:
        return None
    if element_type == _STRING:
        return _Strings(api, value)
    api.check(api.GetTensorMutableData(value, byref(data)))
    array = _view(data.value or 0, element_type, shape)
    if not array.flags.aligned:
        unaligned.append((array, np.empty_like(array)))
        return unaligned[-1][1]
    return array


def _aligned(data: int, element_type: int, shape: Shape) -> Array:
    """The elements in place, or a copy if they are unaligned, as a fed NumPy array's elements may be."""
    is_unaligned = data % 8 != 0 and data % _DTYPES[element_type].itemsize != 0
    return (_copy if is_unaligned else _view)(data, element_type, shape)


def _copy(data: int, element_type: int, shape: Shape) -> Array:
    # Measured: faster than a copy of a view, by 3 us.
    array: Array = np.empty(shape, _DTYPES[element_type])
    if array.nbytes:
        ctypes.memmove(data_pointer(array), data, array.nbytes)
    return array


class _Memory:
    """An object with NumPy's array interface over memory that NumPy does not own."""

    __slots__ = ("__array_interface__",)

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def _view(data: int, element_type: int, shape: Shape) -> Array:
    typestr = _TYPESTR[element_type]
    if data:
        array = np.asarray(_Memory({"data": (data, False), "shape": shape, "typestr": typestr, "version": 3}))
    else:  # an empty tensor may have no memory
        array = np.empty(shape, typestr)
    return array.view(ml_dtypes.bfloat16) if element_type == _BFLOAT16 else array


_Allocate = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t)
_Free = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)
_Info = ctypes.CFUNCTYPE(c_void_p, c_void_p)


class SizedBlocks:
    """An OrtAllocator that keeps the blocks that OrtApi's functions allocate, and so knows their sizes.

    ctypes would drop what a signal handler raises in its functions, so it is for `exceptions.run_shielded` functions.

    Attributes:
        address: the OrtAllocator's address.
    """

    def __init__(self, api: Api) -> None:
        self._blocks: dict[int, Any] = {}
        default, info = c_void_p(), c_void_p()
        api.check(api.GetAllocatorWithDefaultOptions(byref(default)))
        api.check(api.AllocatorGetInfo(default, byref(info)))
        self._functions = (
            _Allocate(lambda _, size: self._allocate(size)),
            _Free(lambda _, memory: self._blocks.pop(memory, None)),
            _Info(lambda _: info.value),
        )
        allocate, free, get_info = (ctypes.cast(function, c_void_p).value for function in self._functions)
        self._table = Allocator(API_VERSION, allocate, free, get_info, allocate)
        self.address = ctypes.addressof(self._table)

    def _allocate(self, size: int) -> int:
        block = ctypes.create_string_buffer(size or 1)
        self._blocks[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def content(self, memory: int) -> bytes:
        """The whole content of a block."""
        block: bytes = self._blocks[memory].raw
        return block
