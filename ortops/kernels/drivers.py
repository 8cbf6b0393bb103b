"""Drivers, and the compiled functions that they call by their addresses, for each element type."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from ortops.jit.elements import BFLOAT16, DOUBLE, FLOAT, FLOAT16, OUT_OF_MEMORY, PANEL, Elements, T
from ortops.jit.kernel import Array, CFunction, Kernel, data_pointer
from ortops.jit.source import Function, Unimported
from ortops.kernels.functions import Functions
from ortops.kernels.layout import NEEDS_CHUNKS, NEEDS_PANELS, NEEDS_PLANES, NEEDS_SORT, Form

_KINDS = {
    np.dtype(np.float16): FLOAT16,
    np.dtype(ml_dtypes.bfloat16): BFLOAT16,
    np.dtype(np.float32): FLOAT,
    np.dtype(np.float64): DOUBLE,
}
if TYPE_CHECKING:
    from ortops.jit import tasks
    from ortops.jit.elements import Address
    from ortops.kernels import pack, sliding
else:
    tasks, pack, sliding = map(Unimported, ("jit.tasks", "kernels.pack", "kernels.sliding"))

_NAMES = {None: "", FLOAT16: "float16", BFLOAT16: "bfloat16", FLOAT: "float", DOUBLE: "double"}


def kind_of(array: Array) -> int:
    """The element type of an array: FLOAT16, BFLOAT16, FLOAT or DOUBLE."""
    return _KINDS[array.dtype]


def values_of(kind: int) -> int:
    """The type in which elements are computed: FLOAT or DOUBLE."""
    return max(kind, FLOAT)


def elements(array: Array) -> Elements:
    """A pointer to the elements of a C-contiguous array."""
    return Elements(data_pointer(array), kind_of(array))


@functools.cache
def address(function: T, kind: int | None = None, is_panel: bool = False) -> Address[T]:
    """The address of a compiled function, for an element type if it has one, and for panels."""
    of_c: Any = CFunction(function, _NAMES[kind] + (PANEL if is_panel else ""))
    return of_c.address


_none: Any = 0
NO_FUNCTIONS = Functions(*[_none] * len(Functions._fields))


class Driver:
    """A driver with the functions that it calls by their addresses; those that not every call needs are loaded at first use.

    Args:
        kernel: the driver.
        form: what its tables hold.
        functions: those that fill the tables.
        arithmetic: the function for panels and for planes.
        kind: the element type to load and store.
        of_planes: the element type of planes. Panels have values of the compute type.
    """

    def __init__(
        self, kernel: Kernel, form: Form, functions: Functions, arithmetic: Function, kind: int, of_planes: int
    ) -> None:
        self._kernel, self._form, self._functions = kernel, form, functions
        self._arithmetic, self._kind, self._of_planes = arithmetic, kind, of_planes
        _all.append(self)

    def __call__(self, *arguments: Any, after: tuple[Any, ...]) -> None:
        """Call kernel(*arguments, form, functions, *after), with more functions if it asks for them.

        Raises:
            MemoryError: the kernel could not allocate its workspace.
        """
        while (status := self._kernel(*arguments, self._form, self._functions, *after)) in _NEEDS:
            self._load(status)
        check_status(status)

    def load_all(self) -> None:
        """Load all functions, for any call."""
        for status in _NEEDS:
            self._load(status)

    def _load(self, status: int) -> None:
        kind, loaded = self._kind, self._functions
        if status == NEEDS_SORT:
            loaded = loaded._replace(sort=address(sliding.sort_by_first_row))
        elif status == NEEDS_CHUNKS:
            loaded = loaded._replace(run=address(tasks.run_in_chunks))
        elif status == NEEDS_PANELS:
            of_panels = address(self._arithmetic, values_of(kind), is_panel=True)
            loaded = loaded._replace(pack=address(pack.pack, kind), unpack=address(pack.unpack, kind), panel=of_panels)
        else:
            of_planes = address(self._arithmetic, self._of_planes)
            loaded = loaded._replace(read=address(pack.read, kind), write=address(pack.write, kind), plane=of_planes)
        self._functions = loaded


_NEEDS = NEEDS_SORT, NEEDS_CHUNKS, NEEDS_PANELS, NEEDS_PLANES

_all: list[Driver] = []


def load_all() -> None:
    """Load what calls of the operators that have been called may need, too."""
    for driver in _all:
        driver.load_all()


def check_status(status: int) -> None:
    """Raise an error if a kernel's status is one.

    Raises:
        MemoryError: the kernel could not allocate its workspace.
    """
    if status == OUT_OF_MEMORY:
        raise MemoryError("out of memory for the workspace of a RoI")
