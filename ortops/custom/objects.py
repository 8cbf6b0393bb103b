# SPDX-License-Identifier: MIT
"""Operators' objects for a session: made with the session's first kernel, closed with its last kernel.

ONNX Runtime does not tell a kernel which session it belongs to. But all kernels of a session get the session's logger, which
outlives them. So the logger's address identifies the session while a kernel lives.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable
from ctypes import byref, c_void_p

from ortops.engine.c_api import Api, Callback
from ortops.engine.shutdown import register_exit_function
from ortops.spec import Bind, Constructor, Operator

_sessions: dict[int, _Session] = {}


class _Session:
    """A session's objects, which live as long as its `kernels`."""

    def __init__(self, address: int) -> None:
        self._address = address
        self._made: dict[Operator, Bind] = {}
        self.kernels: set[object] = set()
        self._exits = contextlib.ExitStack()

    def bind_of(self, operator: Operator, constructor: Constructor) -> Bind:
        """The function that binds nodes to an operator's object; the first call makes the object."""
        if operator not in self._made:
            self._made[operator], close = constructor()
            self._exits.callback(close)
        return self._made[operator]

    def leave(self, kernel: object) -> None:
        """End a kernel; the last kernel closes all objects."""
        self.kernels.discard(kernel)
        if not self.kernels:
            _sessions.pop(self._address, None)
            self._made.clear()
            self._exits.close()


def kernel_with_object(
    api: Api, info: int, operator: Operator, constructor: Constructor, make: Callable[[Bind], Callback]
) -> Callback:
    """Make a kernel with its operator's object for the session.

    Args:
        api: ONNX Runtime's functions.
        info: the address of the node's OrtKernelInfo.
        constructor: makes the object.
        make: makes the kernel from the function that binds nodes to the object.

    Returns:
        The kernel; ONNX Runtime must hold the only reference to it.
    """
    logger, token = c_void_p(), object()
    api.check(api.KernelInfo_GetLogger(info, byref(logger)))
    address = logger.value or 0
    session = _sessions.setdefault(address, _Session(address))
    session.kernels.add(token)
    try:
        # Not the function itself: an exception's traceback may keep it alive.
        kernel = functools.partial(make(session.bind_of(operator, constructor)))
    except BaseException:
        session.leave(token)
        raise
    weakref.finalize(kernel, session.leave, token)  # also when the interpreter exits
    _close_last()
    return kernel


@functools.cache
def _close_last() -> None:
    """Make the interpreter's exit wait for running calls before it closes objects."""
    register_exit_function()
