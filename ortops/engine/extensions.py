"""The only module that uses onnxruntime-extensions.

Little of what is used is documented, so each function says what it relies on. Releases 0.13.0, 0.15.0 and 0.15.2 have all of
it on Linux. Release 0.14.0 cannot be imported without transformers, which it does not require.
"""

from __future__ import annotations

import ctypes
import importlib
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ortops.engine.c_api import OrtError
from ortops.kernels.jit.kernel import Kernel
from ortops.kernels.jit.machine_code import keep_forever

RELEASES = ">=0.13,!=0.14.0,<0.16"
"""Those that this module was tried with, as pyproject.toml asks for them."""

_fill = Kernel("pyop_hook", "fill")

_METH_VARARGS = 1
"""The flag of a PyMethodDef whose function takes its arguments as a tuple."""

_C_ENTRY = "AddExternalCustomOp"

Array = np.ndarray[Any, Any]
Body = Callable[..., Sequence[Array]]

_definitions: dict[int, Any] = {}
_interrupted: dict[int, tuple[Any, ...]] = {}


def library_path() -> str:
    """The path of the library, as sessions register it.

    Relies on `get_library_path`, which is documented, and on its being the extension module that Python has imported: what
    is added to that is in every session that registers the library.

    Raises:
        OrtError: onnxruntime-extensions cannot be imported.
    """
    path: str = _part("get_library_path")()
    return path


def takes_c_operators() -> bool:
    """Whether `add_c_operator` can be used: the library exports AddExternalCustomOp on Linux and macOS, not on Windows.

    Raises:
        OrtError: onnxruntime-extensions cannot be imported.
    """
    return hasattr(ctypes.CDLL(library_path()), _C_ENTRY)


def add_c_operator(table: int) -> None:
    """Put an operator into the domain ai.onnx.contrib of all sessions that register the library from now on.

    Relies on the export `bool AddExternalCustomOp(const OrtCustomOp*)`, which keeps the pointer for good and neither reads
    the table nor asks which API version it has.

    Args:
        table: the address of an OrtCustomOp, which must live as long as the process.

    Raises:
        OrtError: the library has no such entry, or refuses the operator.
    """
    library = ctypes.CDLL(library_path())
    if not hasattr(library, _C_ENTRY):
        raise OrtError(f"onnxruntime-extensions does not export {_C_ENTRY} here: it cannot take an operator in C")
    if not ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)((_C_ENTRY, library))(table):
        raise OrtError("onnxruntime-extensions refused an operator in C")


def add_python_operator(
    name: str,
    body: Body,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: Mapping[str, str],
    interrupted: Sequence[Array],
) -> None:
    """Make a Python function an operator of the domain ai.onnx.contrib.

    Relies on `Opdef.create`, on the numbers `PyCustomOpDef.dt_*`, and on the identity of the Opdef being the handle with
    which the library calls it.

    Args:
        name: the operator's name.
        body: called with an array for each input and its attributes by name; returns an array for each output.
        inputs: for each input its element type, as in `PyCustomOpDef.dt_*`.
        outputs: for each output likewise.
        attributes: by name, "int64", "float" or "string".
        interrupted: the outputs of a call in which Python raises, and the exception is kept for the thread.

    Raises:
        OrtError: onnxruntime-extensions cannot be imported, or has no such part.
    """
    definition = _part("Opdef.create")(
        body,
        op_type=name,
        inputs=[_number(kind) for kind in inputs],
        outputs=[_number(kind) for kind in outputs],
        attrs={attribute: _number(kind) for attribute, kind in attributes.items()},
    )
    _definitions[id(definition)] = definition
    _interrupted[id(definition)] = _answer(id(definition), interrupted)


def take_python_calls() -> None:
    """Have the library's calls of all Python operators come here, so that outputs of ours stay arrays.

    Relies on `PyCustomOpDef.install_hooker`, which replaces the one hook there is; on the stock hook, `_on_pyop_invocation`,
    for the operators of others, which makes lists of their outputs; and on `Opdef.cast_attributes`.

    Raises:
        OrtError: onnxruntime-extensions cannot be imported, or has no such part.
    """
    stock = _part("_on_pyop_invocation")

    def invoke(handle: int, arrays: Sequence[Array], attributes: Mapping[str, str]) -> tuple[Any, ...]:
        definition = _definitions.get(handle)
        if definition is None:
            result: tuple[Any, ...] = stock(handle, arrays, attributes)
            return result
        return _answer(handle, definition.body(*arrays, **definition.cast_attributes(attributes)))

    _part("PyCustomOpDef.install_hooker")(_builtin(invoke))


def _answer(handle: int, outputs: Sequence[Array]) -> tuple[Any, ...]:
    return (handle, *(part for output in outputs for part in (output.shape, output.ravel())))


def _builtin(invoke: Callable[..., Any]) -> Callable[..., Any]:
    """A builtin function that calls `invoke`, and lets no exception of an operator of ours through (`pyop_hook`)."""
    name, own = ctypes.create_string_buffer(b"invoke"), (invoke, _interrupted)
    method = np.array([ctypes.addressof(name), 0, _METH_VARARGS, 0])
    _fill(method)
    keep_forever((name, method))
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    function: Callable[..., Any] = make(("PyCFunction_NewEx", ctypes.pythonapi))(method.ctypes.data, own, None)
    return function


def _number(kind: str) -> int:
    return int(_part(f"PyCustomOpDef.dt_{kind}"))


def _part(name: str) -> Any:
    """What onnxruntime-extensions has under a name, which may have dots."""
    try:
        package = importlib.import_module("onnxruntime_extensions")
        return operator.attrgetter(name)(importlib.import_module("onnxruntime_extensions._ocos"))
    except ImportError as error:
        raise OrtError(f"onnxruntime-extensions cannot be imported: must be {RELEASES} ({error})") from error
    except AttributeError as error:
        raise OrtError(f"onnxruntime-extensions {package.__version__} has no {name}: must be {RELEASES}") from error
