"""The compiled functions that drivers call by their addresses, for each element type."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np

from ortops.kernels.jit.kernel import Array, CFunction, data_pointer
from ortops.kernels.layout import BFLOAT16, DOUBLE, FLOAT, FLOAT16, Elements, Stages, Storage

_KINDS = {
    np.dtype(np.float16): FLOAT16,
    np.dtype(ml_dtypes.bfloat16): BFLOAT16,
    np.dtype(np.float32): FLOAT,
    np.dtype(np.float64): DOUBLE,
}
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
def address(module: str, function: str, kind: int | None = None) -> int:
    """The address of a compiled function of a module of kernels, for an element type if it has one."""
    return CFunction(module, function, _NAMES[kind]).address


@functools.cache
def storage(kind: int) -> Storage:
    """The functions that load and store elements."""
    return Storage(*(address("pack", name, kind) for name in Storage._fields))


@functools.cache
def by_source(module: str, name: str, kind: int) -> Stages:
    """`{name}_panel`, which reads values of the compute type, and `{name}_plane`, which reads elements."""
    return Stages(address(module, f"{name}_panel", values_of(kind)), address(module, f"{name}_plane", kind))
