# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tensors as plain files, which a program in any language can read and write: the elements and nothing else.

The elements are little-endian and in C order. Type and shape are in a description, which JSON can hold:
``{"name":"X","type":"float","shape":[1,2,4,4],"file":"input_0.bin"}``. The type is ONNX's name of the element type in lower
case, and the file is in a folder that both sides know.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from conformance.case import Array
from ortops.spec import ELEMENT_DTYPES

MAX_AXES = 32
"""The most axes that NumPy 1 has."""

MAX_BYTES = 2**62
"""The size of a tensor that is read may be smaller; the caller knows what is reasonable."""

TYPES = {name: dtype for name, dtype in ELEMENT_DTYPES.items() if dtype.kind not in "bO"}
"""The NumPy type of each element type that a file can have: numbers, whose every pattern of bits is valid."""

_NAMES = {dtype: name for name, dtype in TYPES.items()}


class Description(TypedDict):
    """The description of a file, with its fields in this order."""

    name: str
    type: str
    shape: list[int]
    file: str


def write(array: Array, folder: Path, file: str, name: str) -> Description:
    """Write an array. The same elements always give the same bytes.

    Args:
        array: numbers of one of `TYPES`, of any layout.
        folder: an existing folder.
        file: the file's name in the folder. An existing file is replaced.
        name: the tensor's name in its model.

    Raises:
        ValueError: a file cannot have this type.
        OSError: the file cannot be written.
    """
    if array.dtype not in _NAMES:
        raise ValueError(f"{name} has type {array.dtype}: must be one of {', '.join(TYPES)}")
    with (folder / file).open("wb") as stream:
        stream.write(little_endian(array).data)
    return {"name": name, "type": _NAMES[array.dtype], "shape": list(array.shape), "file": file}


def little_endian(array: Array) -> Array:
    """The elements in C order and as little-endian integers, because not every type of NumPy knows the order of bytes."""
    return np.ascontiguousarray(array).view(f"u{array.itemsize}").astype(_bits(array.dtype), copy=False)


def read(description: object, folder: Path, max_bytes: int = MAX_BYTES) -> Array:
    """The array that a description names. Everything is checked before memory is taken.

    Args:
        description: what JSON gave, which may be anything.
        folder: the folder of the file.
        max_bytes: the largest size of the file.

    Raises:
        ValueError: the description breaks a rule, or the file has another size or is no regular file. The message names the
            field, the value and the rule.
        OSError: the file cannot be opened or read.
    """
    fields = checked(description)
    dtype, shape = TYPES[fields["type"]], fields["shape"]
    size = math.prod(shape) * dtype.itemsize
    if size > max_bytes:
        raise ValueError(f"shape {_short(shape)}: needs {size} bytes, must need at most {max_bytes}")
    # A link could name any file, and opening a pipe would wait for its other end.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(folder / fields["file"], "rb", buffering=0, opener=lambda path, _: os.open(path, flags)) as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"file {fields['file']}: must be a regular file")
        if status.st_size != size:
            rule = f"{fields['type']} of shape {_short(shape)} needs exactly {size}"
            raise ValueError(f"file {fields['file']}: has {status.st_size} bytes, but {rule}")
        bits = np.fromfile(stream, _bits(dtype), size // dtype.itemsize)
    if bits.nbytes != size:
        raise ValueError(f"file {fields['file']}: became shorter while it was read")
    return bits.astype(f"u{dtype.itemsize}", copy=False).view(dtype).reshape(shape)


def checked(description: object) -> Description:
    """What JSON gave as a description.

    Raises:
        ValueError: a field has a wrong type or value; the message names it, the value and the rule.
    """
    if not isinstance(description, Mapping) or set(description) != set(Description.__annotations__):
        rule = f"must be an object with the fields {', '.join(Description.__annotations__)}"
        raise ValueError(f"tensor {_short(description)}: {rule}")
    name, kind, shape, file = (description[field] for field in Description.__annotations__)
    if not isinstance(name, str):
        raise ValueError(f"name {_short(name)}: must be a string")
    if not isinstance(kind, str) or kind not in TYPES:
        raise ValueError(f"type {_short(kind)}: must be one of {', '.join(TYPES)}")
    if not isinstance(shape, list) or any(type(length) is not int or length < 0 for length in shape):
        raise ValueError(f"shape {_short(shape)}: must be a list of integers, none below 0")
    if len(shape) > MAX_AXES or math.prod(max(length, 1) for length in shape) * TYPES[kind].itemsize > MAX_BYTES:
        raise ValueError(f"shape {_short(shape)}: must have at most {MAX_AXES} axes and {MAX_BYTES} bytes")
    if not isinstance(file, str) or file in ("", ".", "..") or set(file) & set("/\\:\0"):
        raise ValueError(f"file {_short(file)}: must be the name of a file in the folder, without a path")
    return {"name": name, "type": kind, "shape": shape, "file": file}


def _bits(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"<u{dtype.itemsize}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
