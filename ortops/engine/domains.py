"""Adds domains of custom operators to session options, so that the sessions of each have their own operators."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from ctypes import byref, c_void_p
from typing import Any

import onnxruntime

from ortops.engine.c_api import CustomOp, LibraryOp, captured_address, ort_api


class Domains:
    """A SessionOptions object's custom domains. This object must live as long as the options use the operators.

    ONNX Runtime's options hold addresses of domains, and domains hold addresses of operators; neither owns them. A new
    session copies what it needs, and its kernels keep their operators alive (`ortops.custom.kernel`).
    """

    def __init__(self) -> None:
        self._address = 0
        self._handles: dict[str, tuple[Any, int]] = {}
        self._operators: list[CustomOp | LibraryOp] = []

    def add(self, options: onnxruntime.SessionOptions, domain: str, operators: Iterable[CustomOp | LibraryOp]) -> None:
        """Add operators to a domain of the options, for sessions made later with these options.

        Raises:
            OrtError: ONNX Runtime refuses the domain or an operator.
        """
        api = ort_api()
        if domain not in self._handles:
            self._address = self._address or captured_address(options)
            name, handle = ctypes.create_string_buffer(domain.encode()), c_void_p()
            api.check(api.CreateCustomOpDomain(ctypes.cast(name, ctypes.c_char_p), byref(handle)))
            self._handles[domain] = name, int(handle.value or 0)
            api.check(api.AddCustomOpDomain(self._address, handle))
        for operator in operators:
            self._operators.append(operator)
            api.check(api.CustomOpDomain_Add(self._handles[domain][1], operator.address))

    def release(self) -> None:
        """Release the domains and the library's operators. The options must be gone."""
        for _, handle in self._handles.values():
            ort_api().ReleaseCustomOpDomain(handle)
        for operator in self._operators:
            if isinstance(operator, LibraryOp):
                operator.release()


def check_options(options: object, name: str) -> None:
    """Check that an object is session options.

    Args:
        options: any object.
        name: the argument's name, for errors.

    Raises:
        TypeError: the object is not an onnxruntime.SessionOptions.
    """
    if onnxruntime.SessionOptions not in type.mro(type(options)):  # what the object and its class say may not be true
        raise TypeError(f"{name} is a {type(options).__name__}: must be an onnxruntime.SessionOptions")
