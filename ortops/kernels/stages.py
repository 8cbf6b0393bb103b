"""The compiled functions that drivers call by their addresses, for each element type."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

from ortops.jit.elements import BFLOAT16, DOUBLE, FLOAT, FLOAT16, OUT_OF_MEMORY, PANEL, Elements
from ortops.jit.kernel import Array, CFunction, Kernel, data_pointer
from ortops.jit.source import Function, Unimported
from ortops.kernels.layout import NEEDS_CHUNKS, NEEDS_PANELS, NEEDS_PLANES, NEEDS_SORT, Form, Stages, Storage

_KINDS = {
    np.dtype(np.float16): FLOAT16,
    np.dtype(ml_dtypes.bfloat16): BFLOAT16,
    np.dtype(np.float32): FLOAT,
    np.dtype(np.float64): DOUBLE,
}
if TYPE_CHECKING:
    from ortops.jit import tasks
    from ortops.kernels import pack, sliding
else:
    tasks, pack, sliding = map(Unimported, ("jit.tasks", "kernels.pack", "kernels.sliding"))

CHUNKS = tasks.run_in_chunks
"""The function that runs tasks in chunks."""

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
def address(function: Function, kind: int | None = None, is_panel: bool = False) -> int:
    """The address of a compiled function, for an element type if it has one, and for panels."""
    return CFunction(function, _NAMES[kind] + (PANEL if is_panel else "")).address


@functools.cache
def storage(kind: int) -> Storage:
    """The functions that load and store elements, all of them loaded."""
    return Storage(*(address(function, kind) for function in _STORAGE.values()))


class Stage(NamedTuple):
    """A function of the arithmetic, the type that it is compiled for, and whether it is for panels of it."""

    function: Function
    kind: int
    is_panel: bool = False

    @property
    def address(self) -> int:
        """The address of the function, which is compiled if it has to be."""
        return address(*self)


def for_both(function: Function, kind: int) -> tuple[Stage, Stage]:
    """A function for panels, which have values of the compute type, and for planes of elements."""
    return Stage(function, values_of(kind), is_panel=True), Stage(function, kind)


class Functions:
    """The functions that a driver calls by their addresses; those that not every call needs are loaded at their first use.

    Args:
        planning: a `Form`, with what plans the call.
        panel: the arithmetic for panels.
        plane: the arithmetic for single planes.
        kinds: the element types to load and store.
    """

    def __init__(self, planning: Form, panel: Stage, plane: Stage, *kinds: int) -> None:
        self._planning, self._panel, self._plane, self._kinds = planning, panel, plane, kinds
        self._stages = Stages(0, 0)
        self._storages = [Storage(0, 0, 0, 0) for _ in kinds]
        _all.append(self)

    def call(self, kernel: Kernel, *arguments: Any, after: tuple[Any, ...]) -> None:
        """Call kernel(*arguments, planning, *storages, stages, *after), with more functions if it asks for them.

        Raises:
            MemoryError: the kernel could not allocate its workspace.
        """
        while (status := kernel(*arguments, self._planning, *self._storages, self._stages, *after)) in _LOADED:
            self._load(status)
        check_status(status)

    def load_all(self) -> None:
        """Load all functions, for any call."""
        for status in _LOADED:
            self._load(status)

    def _load(self, status: int) -> None:
        if status in _PLANNING:
            field, source = _PLANNING[status]
            loaded = self._planning.planning._replace(**{field: address(source)})
            self._planning = self._planning._replace(planning=loaded)
        elif status in _STAGES:
            names, field = _STAGES[status]
            for i, kind in enumerate(self._kinds):
                self._storages[i] = self._storages[i]._replace(
                    **{name: address(_STORAGE[name], kind) for name in names}
                )
            stage = self._panel if field == "panel" else self._plane
            self._stages = self._stages._replace(**{field: stage.address})


_STORAGE = {"pack": pack.pack, "unpack": pack.unpack, "read": pack.read, "write": pack.write}
_PLANNING = {NEEDS_SORT: ("sort", sliding.sort_by_first_row), NEEDS_CHUNKS: ("run", CHUNKS)}
_STAGES = {NEEDS_PANELS: (("pack", "unpack"), "panel"), NEEDS_PLANES: (("read", "write"), "plane")}
_LOADED = (*_PLANNING, *_STAGES)

_all: list[Functions] = []


def load_all() -> None:
    """Load what calls of the operators that have been called may need, too."""
    for functions in _all:
        functions.load_all()


def check_status(status: int) -> None:
    """Raise an error if a kernel's status is one.

    Raises:
        MemoryError: the kernel could not allocate its workspace.
    """
    if status == OUT_OF_MEMORY:
        raise MemoryError("out of memory for the workspace of a RoI")
