"""The pyop engine: Python operators of onnxruntime-extensions, for libraries that do not export AddExternalCustomOp.

It has these limits. Tensors are float or double. Every input and output must be present. A float attribute has only 6
digits. Threads are not those of the session. In a session of onnxruntime's own class every attribute must be present, and
lists cannot be read; `ortops.InferenceSession` rewrites such models (`pyop_attributes`). An exception that left the body
would abort the process, so the outputs become NaN, the error is logged once, and `ortops.InferenceSession` raises it after
the run.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ortops.compute import compute, runner_on_all_cpus
from ortops.engine.c_api import probe_session
from ortops.engine.extensions import add_python_operator, install_call_hook
from ortops.engine.pyop_attributes import from_text
from ortops.shapes import Shape
from ortops.spec import ELEMENT_DTYPES, Operator

_LOGGER = logging.getLogger("ortops")
_ELEMENT_TYPES = ("float", "double", "int64", "uint32")

_logged_operators: set[str] = set()


def add_operators(operators: Iterable[Operator]) -> None:
    """Add the operators to the library and install the hook for its calls."""
    install_call_hook()
    for operator in operators:
        choices = ([kind for kind in allowed if kind in _ELEMENT_TYPES] for allowed in operator.types.values())
        for kinds in itertools.product(*choices):
            _add(operator, dict(zip(operator.types, kinds, strict=True)))
    _run_probe()


def _run_probe() -> None:
    """Run one Python operator: the library then imports parts of NumPy, which would deadlock with a signal handler later."""
    nothing = np.empty(0, np.float32)
    add_python_operator("OrtopsProbe", lambda x: [x], ["float"], ["float"], {}, [nothing])
    probe_session().run(None, {"x": nothing})


class RunErrors:
    """The errors of our operators in one run of a session on the current thread.

    An operator that runs on a thread of ONNX Runtime's own (ORT_PARALLEL) cannot know its run, so its error counts for the
    runs of all threads.
    """

    _of_threads: ClassVar[dict[int, list[BaseException]]] = {}

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        # A signal handler may start this run during another one on the same thread.
        self._outer = self._of_threads.get(self._thread)
        self._own: list[BaseException] = []
        self._of_threads[self._thread] = self._own

    def end(self) -> BaseException | None:
        """End the run and return its first error."""
        # If an inner run was interrupted before its end, errors were added to its list.
        last = self._of_threads.get(self._thread, [])
        if self._outer is None:
            self._of_threads.pop(self._thread, None)
        else:
            self._of_threads[self._thread] = self._outer
        return next(iter(self._own or last), None)

    @classmethod
    def add(cls, error: BaseException) -> None:
        """Record the error of an operator that runs on the current thread."""
        own = cls._of_threads.get(threading.get_ident())
        for errors in list(cls._of_threads.values()) if own is None else [own]:
            if not errors:
                errors.append(error)


def _add(operator: Operator, types: Mapping[str, str]) -> None:
    inputs, outputs = (
        [types.get(tensor.type, tensor.type) for tensor in tensors] for tensors in (operator.inputs, operator.outputs)
    )
    dtypes = [ELEMENT_DTYPES[kind] for kind in outputs]

    def body(*arrays: np.ndarray[Any, Any], **attributes: object) -> Sequence[np.ndarray[Any, Any]]:
        return _compute_outputs(operator, arrays, attributes, dtypes)

    attributes = {a.name: {"INT": "int64", "FLOAT": "float"}.get(a.type, "string") for a in operator.attributes}
    add_python_operator(operator.name, body, inputs, outputs, attributes, _empty_outputs(operator, dtypes))


def _compute_outputs(
    operator: Operator, arrays: Sequence[Any], attributes: Mapping[str, object], dtypes: Sequence[np.dtype[Any]]
) -> list[np.ndarray[Any, Any]]:
    outputs = _empty_outputs(operator, dtypes)

    def allocate(i: int, shape: Shape) -> np.ndarray[Any, Any]:
        outputs[i] = np.empty(shape, dtypes[i])
        return outputs[i]

    try:
        inputs = [np.asarray(array, order="C") for array in arrays]
        lists = {a.name: from_text(a, str(attributes[a.name])) for a in operator.attributes if a.is_list}
        compute(operator, inputs, operator.check_attributes({**attributes, **lists}), allocate, runner_on_all_cpus())
    except BaseException as error:  # noqa: BLE001 - an exception that left would abort the process
        RunErrors.add(error)
        if operator.name not in _logged_operators:
            _logged_operators.add(operator.name)
            message = str(error) or type(error).__name__
            _LOGGER.error("%s: %s; the outputs are NaN, and later errors of it are not logged", operator.name, message)
        for output in outputs:
            output[...] = np.nan
    return outputs


def _empty_outputs(operator: Operator, dtypes: Sequence[np.dtype[Any]]) -> list[np.ndarray[Any, Any]]:
    """Empty outputs, for errors before the shapes of the outputs are known."""
    return [np.empty((0,) * len(tensor.shape), dtype) for tensor, dtype in zip(operator.outputs, dtypes, strict=True)]
