"""Tensors as JSON has them: {"type": ONNX's name, "shape", "data": the elements' bytes, little-endian, in base64}.

Bytes, because JSON has neither NaN nor infinities, and decimal digits take three times the room.
"""

from __future__ import annotations

import base64
import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.case import Array, element_type_of
from ortops.spec import ELEMENT_DTYPES

_IS_LITTLE = sys.byteorder == "little"


def encode(outputs: Mapping[str, Array]) -> dict[str, dict[str, Any]]:
    """The tensors by name; those of types that no operator of the suite has are left out."""
    known = set(ELEMENT_DTYPES.values())
    return {name: _encoded(array) for name, array in outputs.items() if array.dtype in known}


def _encoded(array: Array) -> dict[str, Any]:
    stored = array if _IS_LITTLE else array.byteswap()
    data = base64.b64encode(stored.tobytes()).decode("ascii")
    return {"type": element_type_of(array.dtype), "shape": list(array.shape), "data": data}


def decode(stored: object) -> dict[str, Array]:
    """The tensors by name.

    Raises:
        ValueError: it is no such thing; says what is wrong.
    """
    if not isinstance(stored, dict):
        raise ValueError("its outputs have no names")
    return {name: _decoded(name, tensor) for name, tensor in stored.items()}


def _decoded(name: str, tensor: object) -> Array:
    fields = tensor if isinstance(tensor, dict) else {}
    kind, shape, data = (fields.get(key) for key in ("type", "shape", "data"))
    if not isinstance(kind, str) or kind not in ELEMENT_DTYPES:
        raise ValueError(f"output {name}: type {kind!r} is not one of {', '.join(ELEMENT_DTYPES)}")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"output {name}: shape {shape!r} is no list of lengths")
    try:
        stored = base64.b64decode(data if isinstance(data, str) else "?", validate=True)
    except ValueError as error:
        raise ValueError(f"output {name}: data is no base64: {error}") from error
    dtype = ELEMENT_DTYPES[kind]
    if len(stored) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"output {name}: {len(stored)} bytes of data for shape {shape} of {kind}")
    array = np.frombuffer(stored, dtype)
    return (array if _IS_LITTLE else array.byteswap()).reshape(shape)
