"""An allocator (OrtAllocator) that keeps the size of each block in the 8 bytes before it."""

from __future__ import annotations

from ortops.engine.compiled.layout import ALLOCATOR_INFO
from ortops.jit.compile import compiled
from ortops.jit.parallel import allocate, pointer_to, release
from ortops.jit.scalar import address_of, int64_pointer


@compiled
def fill_allocator(table: int) -> int:
    """Set an OrtAllocator's functions. The word after them holds its memory information. A C function."""
    words = int64_pointer(table)
    words[1] = pointer_to(_allocate)  # Alloc
    words[2] = pointer_to(_free)  # Free
    words[3] = pointer_to(_info)  # Info
    words[4] = pointer_to(_allocate)  # Reserve
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
def _info(allocator: int) -> int:
    return int64_pointer(allocator)[ALLOCATOR_INFO]
