"""Memory that ONNX Runtime fills without reporting its size, such as strings that may contain zero bytes."""

from __future__ import annotations

import ctypes
import functools
from ctypes import byref, c_int64, c_void_p

from ortops.engine.c_api import Api
from ortops.memory import keep_forever
from ortops.native.ort.types import API_VERSION, Allocator
from ortops.runtime import library


@functools.cache
def sized_allocator(api: Api) -> int:
    """The address of an OrtAllocator whose blocks `SizedBlocks.take` reads."""
    default, info = c_void_p(), c_void_p()
    api.check(api.GetAllocatorWithDefaultOptions(byref(default)))
    api.check(api.AllocatorGetInfo(default, byref(info)))
    allocator = Allocator(API_VERSION)
    allocator.memory_info = info.value or 0
    address = ctypes.addressof(allocator)
    library().function("fill_allocator", c_int64)(address)
    keep_forever(allocator)
    return address


class SizedBlocks:
    """An allocator that remembers the size of each block that OrtApi's functions allocate.

    Attributes:
        address: the OrtAllocator's address.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self.address = sized_allocator(api)

    def take(self, memory: int) -> bytes:
        """Free a block and return its whole content; b"" for a null pointer."""
        if not memory:
            return b""
        content = ctypes.string_at(memory, c_int64.from_address(memory - ctypes.sizeof(c_int64)).value)
        self._api.check(self._api.AllocatorFree(self.address, memory))
        return content
