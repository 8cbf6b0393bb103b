"""What onnxruntime-extensions calls for every Python operator, as a builtin function whose code is compiled.

The library is C++, and an exception that Python raises would end the process, also one from before the first line of the
function that is called: Ctrl-C's, or that of the recursion limit.
"""

from __future__ import annotations

from typing import Any

from numba import types

from ortops.kernels.jit.compile import inner
from ortops.kernels.jit.parallel import pointer_to
from ortops.kernels.jit.python import call, keep_exception

_item = types.ExternalFunction("PyTuple_GetItem", types.intp(types.intp, types.intp))
_look_up = types.ExternalFunction("PyDict_GetItem", types.intp(types.intp, types.intp))
_hold = types.ExternalFunction("Py_IncRef", types.void(types.intp))


@inner
def fill(method: Any) -> int:
    """Set the function of a PyMethodDef."""
    method[1] = pointer_to(_invoke)
    return 0


@inner
def _invoke(own: int, arguments: int) -> int:
    """Call own[0]; where it raises, keep the exception and answer with own[1][arguments[0]], if it is there."""
    result = call(_item(own, 0), arguments)
    if result == 0:
        result = _look_up(_item(own, 1), _item(arguments, 0))
        if result != 0:
            _hold(result)
            keep_exception()
    return result
