"""An allocator (OrtAllocator) that keeps the size of each block in the 8 bytes before it."""

from __future__ import annotations

from ortops.compiler.compile import compiled
from ortops.compiler.parallel import allocate, pointer_to, release
from ortops.compiler.scalar import address_of, int64_pointer
from ortops.native.ort.types import Allocator


@compiled
def fill_allocator(table: Allocator) -> int:
    """Set an OrtAllocator's functions. A C function."""
    table.alloc = table.reserve = pointer_to(_allocate)
    table.free = pointer_to(_free)
    table.info = pointer_to(_info)
    return 0


@compiled
def _allocate(_allocator: int, size: int) -> int:
    block = allocate(size // 8 + 2)
    if address_of(block) == 0:
        return 0
    block[0] = size
    return address_of(block) + 8


@compiled
def _free(_allocator: int, memory: int) -> int:
    if memory != 0:
        release(int64_pointer(memory - 8))
    return 0


@compiled
def _info(allocator: Allocator) -> int:
    return allocator.memory_info
