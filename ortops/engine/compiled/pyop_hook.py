"""The compiled function that onnxruntime-extensions calls for each of its Python operators.

The library is C++, where a Python exception would end the process. Ctrl-C or the recursion limit may raise an exception even
before a Python function's first line, so compiled code has to catch it.
"""

from __future__ import annotations

from typing import Any

from numba import types

from ortops.jit.compile import compiled
from ortops.jit.parallel import pointer_to
from ortops.jit.python_api import call, save_exception

_tuple_get = types.ExternalFunction("PyTuple_GetItem", types.intp(types.intp, types.intp))
_dict_get = types.ExternalFunction("PyDict_GetItem", types.intp(types.intp, types.intp))
_incref = types.ExternalFunction("Py_IncRef", types.void(types.intp))


@compiled
def fill(method: Any) -> int:
    """Set a PyMethodDef's C function."""
    method[1] = pointer_to(_invoke)
    return 0


@compiled
def _invoke(state: int, arguments: int) -> int:
    """Call state[0](*arguments). If it raises, save the exception and return state[1][arguments[0]] if that exists."""
    result = call(_tuple_get(state, 0), arguments)
    if result == 0:
        result = _dict_get(_tuple_get(state, 1), _tuple_get(arguments, 0))
        if result != 0:
            _incref(result)
            save_exception()
    return result
