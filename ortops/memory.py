# SPDX-License-Identifier: MIT
"""Memory that Python and compiled code share."""

from __future__ import annotations

import ctypes
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

_BEHAVED = 0x101
"""NumPy's flags for a C-contiguous array with aligned elements."""


def for_kernels(array: Any) -> Any:
    """The array; or a copy if it is not C-contiguous and aligned, as compiled code requires."""
    return array if array.flags.num & _BEHAVED == _BEHAVED else array.copy(order="C")


OBJECT_HEAD = object.__basicsize__
"""The bytes before an array's fields in NumPy's binary interface: the address of its elements, its rank, its dimensions'."""

_word_at = ctypes.c_size_t.from_address


def data_pointer(array: Array) -> int:
    """The address of an array's first element."""
    # Measured: a sixth of the time of array.ctypes.data.
    return _word_at(id(array) + OBJECT_HEAD).value


_PROBE = np.empty((3, 2))
_fields = (ctypes.c_int64 * 3).from_address(id(_PROBE) + OBJECT_HEAD)
if (
    _fields[0] != _PROBE.ctypes.data
    or _fields[1] & 0xFFFFFFFF != _PROBE.ndim
    or _word_at(_fields[2]).value != len(_PROBE)
):
    raise ImportError("NumPy's arrays do not begin as ortops expects: it needs CPython and NumPy's binary interface")


def keep_forever(thing: object) -> None:
    """Keep an object alive until the process ends.

    The interpreter clears modules when it exits, but sessions can end later, and ONNX Runtime may use the object until then.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
