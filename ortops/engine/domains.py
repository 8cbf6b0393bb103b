"""Adds domains of custom operators to session options, so that each session has its own operators.

OrtApi's AddCustomOpDomain needs the address of the OrtSessionOptions that Python's object holds. The documented way is a
shared library (RegisterCustomOps), but this engine compiles in memory and has no shared library.
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

_WORD = ctypes.sizeof(c_void_p)
_HEAD = object.__basicsize__
"""The offset at which a pybind11 object holds the address of the object that it wraps, since pybind11 2.2: after its head.

Once ``__init__`` has run, the owner follows: a std::unique_ptr whose only word is the same address. Calling a method would
not show whether ``__init__`` has run: before that, pybind11 allocates memory without content for the call.
"""


class Domains:
    """A SessionOptions object's custom domains. This object must live as long as the options use the operators.

    ONNX Runtime's options hold addresses of domains, and domains hold addresses of operators; neither owns them. A new
    session copies what it needs, and its kernels keep their operators alive (`ortops.engine.direct`).
    """

    def __init__(self) -> None:
        self._handles: dict[str, tuple[Any, int]] = {}
        self._operators: list[CustomOp] = []

    def add(self, options: onnxruntime.SessionOptions, domain: str, operators: Iterable[CustomOp]) -> None:
        """Add operators to a domain of the options, for sessions made later with these options.

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
        """Release the domains. The options must be gone."""
        for _, handle in self._handles.values():
            ort_api().ReleaseCustomOpDomain(handle)


def check_options(options: object, name: str) -> None:
    """Check that ONNX Runtime and this module accept an object as session options, without calling its methods.

    Args:
        options: any object.
        name: the argument's name, for errors.

    Raises:
        TypeError: the object is not an onnxruntime.SessionOptions, its class also derives from another pybind11 class, or
            its ``__init__`` has not run.
    """
    kind = type(options)
    if not issubclass(kind, onnxruntime.SessionOptions):
        raise TypeError(f"{name} is a {kind.__name__}: must be an onnxruntime.SessionOptions")
    # pybind11 keeps the values of several bases elsewhere. The bases are read past what a metaclass may define.
    for base in type.mro(kind):
        is_own = issubclass(base, onnxruntime.SessionOptions) or base in onnxruntime.SessionOptions.__mro__
        if isinstance(base, type(onnxruntime.SessionOptions)) and not is_own:
            raise TypeError(
                f"{name} is a {kind.__name__}, which also derives from {base.__name__}: SessionOptions must be its only "
                "base class from onnxruntime"
            )
    if _has_known_layout() and not _value(options):
        raise TypeError(f"{name} is a {kind.__name__} whose __init__ was not called: must be initialised")


def _value(options: onnxruntime.SessionOptions) -> int:
    """The address of the object that an instance wraps, 0 before its ``__init__``. Reads only the instance's words."""
    value, owner = (c_void_p.from_address(id(options) + _HEAD + i * _WORD).value or 0 for i in range(2))
    return value if value == owner else 0


@functools.cache
def _has_known_layout() -> bool:
    """Whether instances have the size and the parts of pybind11's ``instance``, so that `_value` reads the right words.

    These are the address, two words for the owner, the list of weak references and a word of flags.
    """
    kind: Any = onnxruntime.SessionOptions
    return (type(kind).__name__, kind.__basicsize__, kind.__weakrefoffset__) == (
        "pybind11_type",
        _HEAD + 5 * _WORD,
        _HEAD + 3 * _WORD,
    )


def _address(options: onnxruntime.SessionOptions) -> int:
    """The OrtSessionOptions' address, for options that `check_options` has accepted."""
    _check_layout()
    return _value(options)


@functools.cache
def _check_layout() -> None:
    """Check that the address is where this module reads it: set an entry in new options from Python, and find it there.

    ONNX Runtime gets the address only if an instance has the known layout, and address and owner agree.

    Raises:
        OrtError: the address is elsewhere.
    """
    options, api, found = onnxruntime.SessionOptions(), ort_api(), c_int()
    options.add_session_config_entry("ortops.probe", "1")
    address = _value(options) if _has_known_layout() else 0
    if address:
        api.check(api.HasSessionConfigEntry(address, b"ortops.probe", byref(found)))
    if not found.value:
        raise OrtError(
            f"onnxruntime {onnxruntime.__version__} holds its options elsewhere: cannot add operators to them"
        )
