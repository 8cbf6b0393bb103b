"""A host that registers a library, with an OrtApiBase that tests can change."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import onnxruntime

from ortops.engine.c_api import captured_address, ort_api
from ortops.memory import keep_forever
from ortops.native.ort.types import API_FUNCTIONS

_WORDS = 1 + max(place for place, *_ in API_FUNCTIONS.values())


class Host:
    """An ONNX Runtime whose functions can be replaced.

    Args:
        version: what it says its version is.
        replaced: functions of OrtApi by name, which take and return integers.
        oldest: the API version that it has no table for, and all later ones; 0 for none.
    """

    def __init__(
        self,
        version: str = onnxruntime.__version__,
        replaced: Mapping[str, Callable[..., int]] | None = None,
        oldest: int = 0,
    ) -> None:
        self.api = ort_api()
        self._table = (ctypes.c_void_p * _WORDS).from_buffer_copy(
            ctypes.string_at(self.api.address, ctypes.sizeof(ctypes.c_void_p) * _WORDS)
        )
        self._kept: list[Any] = [ctypes.create_string_buffer(version.encode())]
        for name, function in (replaced or {}).items():
            self._table[API_FUNCTIONS[name][0]] = self._address(function, function.__code__.co_argcount)
        table, text = ctypes.addressof(self._table), ctypes.addressof(self._kept[0])
        self._base = (ctypes.c_void_p * 2)(
            self._address(lambda wanted: 0 if oldest and wanted >= oldest else table, 1), self._address(lambda: text, 0)
        )

        keep_forever(self)  # registrations keep the address of the table

    def _address(self, function: Callable[..., int], arguments: int) -> int:
        made = ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * arguments)(function)
        self._kept.append(made)
        return ctypes.cast(made, ctypes.c_void_p).value or 0

    def register(self, options: onnxruntime.SessionOptions, library: Any, name: str = "RegisterCustomOps") -> None:
        """Call a function of a library with this host, as ONNX Runtime does for options.

        Raises:
            OrtError: the library returned a status.
        """
        register = getattr(library, name)
        register.restype = ctypes.c_void_p
        address = ctypes.c_void_p(captured_address(options))
        self.api.check(register(address, ctypes.c_void_p(ctypes.addressof(self._base))))
