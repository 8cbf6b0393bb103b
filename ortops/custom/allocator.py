"""Memory that ONNX Runtime fills without reporting its size, such as strings that may contain zero bytes."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_void_p
from typing import Any

from ortops.engine.c_api import Api
from ortops.native.ort.types import API_VERSION, Allocator

_Allocate = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t)
_Free = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)
_Info = ctypes.CFUNCTYPE(c_void_p, c_void_p)


class SizedBlocks:
    """An OrtAllocator that keeps the blocks that OrtApi's functions allocate, with their sizes.

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
