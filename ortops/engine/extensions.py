"""All uses of onnxruntime-extensions.

Most parts used here are undocumented, so each function names the parts that it relies on. Releases 0.13.0, 0.15.0 and
0.15.2 have all of them on Linux. Release 0.14.0 cannot be imported without transformers, which it does not require.
"""

from __future__ import annotations

import ctypes
import importlib
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ortops.jit.kernel import Kernel
from ortops.jit.machine_code import keep_forever
from ortops.jit.source import Unimported

SUPPORTED_RELEASES = ">=0.13,!=0.14.0,<0.16"
"""The supported releases, as in pyproject.toml."""

if TYPE_CHECKING:
    from ortops.engine.compiled import pyop_hook
else:
    pyop_hook = Unimported("engine.compiled.pyop_hook")

_fill = Kernel(pyop_hook.fill)

_METH_VARARGS = 1
"""A PyMethodDef's flag for a function that takes its arguments as a tuple."""

_C_ENTRY = "AddExternalCustomOp"


class OrtError(RuntimeError):
    """ONNX Runtime or onnxruntime-extensions refused a call or lacks a function."""


Array = np.ndarray[Any, Any]
Body = Callable[..., Sequence[Array]]

_definitions: dict[int, Any] = {}
_interrupted_results: dict[int, tuple[Any, ...]] = {}


def library_path() -> str:
    """The path of the library that sessions register.

    It relies on `get_library_path`, which is documented. It also relies on this library being the extension module that
    Python imported, so that a session that registers it gets the operators that were added to the module.

    Raises:
        OrtError: onnxruntime-extensions cannot be imported.
    """
    path: str = _imported("get_library_path")()
    return path


def takes_c_operators() -> bool:
    """Whether `add_c_operator` works here: the library exports AddExternalCustomOp on Linux and macOS, not on Windows.

    Raises:
        OrtError: onnxruntime-extensions cannot be imported.
    """
    return hasattr(ctypes.CDLL(library_path()), _C_ENTRY)


def add_c_operator(table: int) -> None:
    """Add an operator to the domain ai.onnx.contrib, for all sessions that register the library later.

    It relies on the export `bool AddExternalCustomOp(const OrtCustomOp*)`, which stores the pointer until the process ends
    and neither reads the table nor checks its API version.

    Args:
        table: the address of an OrtCustomOp, which must live as long as the process.

    Raises:
        OrtError: the library does not export the function, or refuses the operator.
    """
    library = ctypes.CDLL(library_path())
    if not hasattr(library, _C_ENTRY):
        raise OrtError(f"onnxruntime-extensions does not export {_C_ENTRY} here: it cannot accept C operators")
    if not ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)((_C_ENTRY, library))(table):
        raise OrtError("onnxruntime-extensions refused a C operator")


def add_python_operator(
    name: str,
    body: Body,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: Mapping[str, str],
    interrupted: Sequence[Array],
) -> None:
    """Turn a Python function into an operator of the domain ai.onnx.contrib.

    It relies on `Opdef.create` and the numbers `PyCustomOpDef.dt_*`, and on the library passing the Opdef's `id` to the hook
    as its handle.

    Args:
        name: the operator's name.
        body: called with an array for each input and the attributes by name; returns an array for each output.
        inputs: each input's element type, as in `PyCustomOpDef.dt_*`.
        outputs: each output's element type, as in `PyCustomOpDef.dt_*`.
        attributes: each attribute's type: "int64", "float" or "string".
        interrupted: the outputs if Python raises during a call. The exception is stored for the thread.

    Raises:
        OrtError: onnxruntime-extensions cannot be imported or lacks one of these parts.
    """
    definition = _imported("Opdef.create")(
        body,
        op_type=name,
        inputs=[_type_number(kind) for kind in inputs],
        outputs=[_type_number(kind) for kind in outputs],
        attrs={attribute: _type_number(kind) for attribute, kind in attributes.items()},
    )
    _definitions[id(definition)] = definition
    _interrupted_results[id(definition)] = _hook_result(id(definition), interrupted)


def install_call_hook() -> None:
    """Replace the library's hook for calls of Python operators by a hook that returns our operators' outputs as arrays.

    It relies on `PyCustomOpDef.install_hooker`, which replaces the only hook; on the original hook, `_on_pyop_invocation`,
    which converts outputs to lists and still handles other packages' operators; and on `Opdef.cast_attributes`.

    Raises:
        OrtError: onnxruntime-extensions cannot be imported or lacks one of these parts.
    """
    original = _imported("_on_pyop_invocation")

    def invoke(handle: int, arrays: Sequence[Array], attributes: Mapping[str, str]) -> tuple[Any, ...]:
        definition = _definitions.get(handle)
        if definition is None:
            result: tuple[Any, ...] = original(handle, arrays, attributes)
            return result
        return _hook_result(handle, definition.body(*arrays, **definition.cast_attributes(attributes)))

    _imported("PyCustomOpDef.install_hooker")(_builtin(invoke))


def _hook_result(handle: int, outputs: Sequence[Array]) -> tuple[Any, ...]:
    return (handle, *(part for output in outputs for part in (output.shape, output.ravel())))


def _builtin(invoke: Callable[..., Any]) -> Callable[..., Any]:
    """A builtin function that calls `invoke` and blocks our operators' exceptions (`compiled.pyop_hook`)."""
    name, own = ctypes.create_string_buffer(b"invoke"), (invoke, _interrupted_results)
    method = np.array([ctypes.addressof(name), 0, _METH_VARARGS, 0])
    _fill(method)
    keep_forever((name, method))
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    function: Callable[..., Any] = make(("PyCFunction_NewEx", ctypes.pythonapi))(method.ctypes.data, own, None)
    return function


def _type_number(kind: str) -> int:
    return int(_imported(f"PyCustomOpDef.dt_{kind}"))


def _imported(name: str) -> Any:
    """An object in onnxruntime_extensions._ocos, by its name, which may contain dots."""
    try:
        package = importlib.import_module("onnxruntime_extensions")
        return operator.attrgetter(name)(importlib.import_module("onnxruntime_extensions._ocos"))
    except ImportError as error:
        raise OrtError(f"onnxruntime-extensions cannot be imported: must be {SUPPORTED_RELEASES} ({error})") from error
    except AttributeError as error:
        raise OrtError(
            f"onnxruntime-extensions {package.__version__} has no {name}: must be {SUPPORTED_RELEASES}"
        ) from error
