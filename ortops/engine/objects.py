"""Objects that operators have for a session: made with its first kernel, closed with its last one.

ONNX Runtime does not tell a kernel of which session it is. But all kernels of a session get the session's own logger, which
outlives them, so that its address names the session as long as one of them lives.
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
    """The objects of one session."""

    def __init__(self, address: int) -> None:
        self._address = address
        self._made: dict[Operator, Bind] = {}
        self._kernels: set[object] = set()
        self._exits = contextlib.ExitStack()

    def bind_of(self, operator: Operator, constructor: Constructor) -> Bind:
        """What binds nodes to the object of an operator, which the first call makes."""
        if operator not in self._made:
            self._made[operator], close = constructor()
            self._exits.callback(close)
        return self._made[operator]

    def enter(self, kernel: object) -> None:
        """Keep the objects for a kernel."""
        self._kernels.add(kernel)

    def leave(self, kernel: object) -> None:
        """End a kernel; the last one closes all objects."""
        self._kernels.discard(kernel)
        if not self._kernels:
            _sessions.pop(self._address, None)
            self._made.clear()
            self._exits.close()


def kernel_with_object(
    api: Api, info: int, operator: Operator, constructor: Constructor, make: Callable[[Bind], Callback]
) -> Callback:
    """Make a kernel with the object that its operator has for the session.

    Args:
        api: the functions of ONNX Runtime.
        info: the address of the node's OrtKernelInfo.
        operator: the operator.
        constructor: makes its object.
        make: makes the kernel from what binds nodes to the object.

    Returns:
        The kernel, to which ONNX Runtime must hold the only reference.
    """
    logger, token = c_void_p(), object()
    api.check(api.KernelInfo_GetLogger(info, byref(logger)))
    address = logger.value or 0
    session = _sessions.setdefault(address, _Session(address))
    session.enter(token)
    try:
        # Not the function itself, which the traceback of an exception may keep alive.
        kernel = functools.partial(make(session.bind_of(operator, constructor)))
    except BaseException:
        session.leave(token)
        raise
    weakref.finalize(kernel, session.leave, token)  # at the exit of the interpreter, too
    _close_last()
    return kernel


@functools.cache
def _close_last() -> None:
    """Let the exit of the interpreter wait for running calls before it closes objects."""
    register_exit_function()
