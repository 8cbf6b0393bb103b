"""What onnxruntime-extensions calls for every Python operator, as a builtin function whose code is compiled.

The library is C++, and an exception that Python raises would end the process, also one from before the first line of the
function that is called: Ctrl-C's, or that of the recursion limit.
"""

from __future__ import annotations

from typing import Any

from numba import types

from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.parallel import pointer_to
from ortops.kernels.jit.python_api import call, save_exception

_tuple_get = types.ExternalFunction("PyTuple_GetItem", types.intp(types.intp, types.intp))
_dict_get = types.ExternalFunction("PyDict_GetItem", types.intp(types.intp, types.intp))
_incref = types.ExternalFunction("Py_IncRef", types.void(types.intp))


@compiled
def fill(method: Any) -> int:
    """Set the function of a PyMethodDef."""
    method[1] = pointer_to(_invoke)
    return 0


@compiled
def _invoke(own: int, arguments: int) -> int:
    """Call own[0]; where it raises, keep the exception and answer with own[1][arguments[0]], if it is there."""
    result = call(_tuple_get(own, 0), arguments)
    if result == 0:
        result = _dict_get(_tuple_get(own, 1), _tuple_get(arguments, 0))
        if result != 0:
            _incref(result)
            save_exception()
    return result
