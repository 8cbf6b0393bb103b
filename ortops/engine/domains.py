"""Adds domains of custom operators to session options, so that each session has operators of its own.

OrtApi's AddCustomOpDomain needs the address of the OrtSessionOptions that Python's object holds. The documented way is a
shared library (RegisterCustomOps), and this project has none, since it compiles in memory.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable
from ctypes import byref, c_int, c_void_p
from typing import Any

import onnxruntime

from ortops.engine.c_api import CustomOp, ort_api
from ortops.engine.extensions import OrtError

_VALUE = object.__basicsize__
"""Where an object of pybind11 has the address of what it wraps, since pybind11 2.2: right behind the object's head."""


class Domains:
    """The custom domains of one SessionOptions object, which must outlive the operators' use by it.

    ONNX Runtime's options hold addresses of domains, and domains those of operators: neither owns what it has. A session
    copies what it needs when it is made, and its kernels keep their operators (`ortops.engine.direct`).
    """

    def __init__(self) -> None:
        self._handles: dict[str, tuple[Any, int]] = {}
        self._operators: list[CustomOp] = []

    def add(self, options: onnxruntime.SessionOptions, domain: str, operators: Iterable[CustomOp]) -> None:
        """Add operators to a domain of the options, for sessions that are made with them later.

        Raises:
            OrtError: ONNX Runtime refuses the domain or an operator.
        """
        api = ort_api()
        if domain not in self._handles:
            address = _address(options)
            name, handle = ctypes.create_string_buffer(domain.encode()), c_void_p()
            api.check(api.CreateCustomOpDomain(ctypes.cast(name, ctypes.c_char_p), byref(handle)))
            self._handles[domain] = name, int(handle.value or 0)
            api.check(api.AddCustomOpDomain(address, handle))
        for operator in operators:
            self._operators.append(operator)
            api.check(api.CustomOpDomain_Add(self._handles[domain][1], operator.address))

    def release(self) -> None:
        """Release the domains once the options are gone."""
        for _, handle in self._handles.values():
            ort_api().ReleaseCustomOpDomain(handle)


def _address(options: onnxruntime.SessionOptions) -> int:
    """The address of the OrtSessionOptions of a Python object."""
    _check_layout()
    return c_void_p.from_address(id(options) + _VALUE).value or 0


@functools.cache
def _check_layout() -> None:
    """Check on options of its own that the address is where this module reads it: an entry set by Python is found there.

    Raises:
        OrtError: it is elsewhere.
    """
    options, api, found = onnxruntime.SessionOptions(), ort_api(), c_int()
    options.add_session_config_entry("ortops.probe", "1")
    if type(onnxruntime.SessionOptions).__name__ == "pybind11_type":
        address = c_void_p.from_address(id(options) + _VALUE).value
        api.check(api.HasSessionConfigEntry(address, b"ortops.probe", byref(found)))
    if not found.value:
        raise OrtError(
            f"onnxruntime {onnxruntime.__version__} holds its options elsewhere: cannot add operators to them"
        )
