"""The pyop engine: the operators as Python operators of onnxruntime-extensions, where its library exports no C entry.

Its limits: float and double tensors only; every input and output must be present; a float attribute arrives with 6 digits;
threads are not the session's; in a plain session every attribute must be present and lists cannot be read at all, which
`ortops.InferenceSession` mends (`pyop_attributes`). An exception that left the body would abort the process, so none
does: the outputs are NaN, the error is logged once, and `ortops.InferenceSession` raises it after the run.
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
from ortops.engine.extensions import add_python_operator, take_python_calls
from ortops.engine.pyop_attributes import from_text
from ortops.shapes import Shape
from ortops.spec import ELEMENT_DTYPES, Operator

_LOGGER = logging.getLogger("ortops")
_ELEMENT_TYPES = ("float", "double", "int64", "uint32")

_logged: set[str] = set()


def add_operators(operators: Iterable[Operator]) -> None:
    """Add the operators to the library and take its calls of them."""
    take_python_calls()
    for operator in operators:
        choices = ([kind for kind in allowed if kind in _ELEMENT_TYPES] for allowed in operator.types.values())
        for kinds in itertools.product(*choices):
            _add(operator, dict(zip(operator.types, kinds, strict=True)))
    _call_once()


def _call_once() -> None:
    """Have the library call Python once: it then imports parts of NumPy, for which a signal handler would wait forever."""
    nothing = np.empty(0, np.float32)
    add_python_operator("OrtopsProbe", lambda x: [x], ["float"], ["float"], {}, [nothing])
    probe_session().run(None, {"x": nothing})


class Errors:
    """The errors of our operators in a run of a session on this thread.

    An operator of the run that is on a thread of ONNX Runtime's own (ORT_PARALLEL) does not know which run it is of: its
    error counts for the runs of all threads.
    """

    _of_threads: ClassVar[dict[int, list[BaseException]]] = {}

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        # That of a run which a signal handler has interrupted by this one.
        self._outer = self._of_threads.get(self._thread)
        self._own: list[BaseException] = []
        self._of_threads[self._thread] = self._own

    def end(self) -> BaseException | None:
        """The first error of the run, which ends."""
        # Those of a run that has been interrupted before its end.
        last = self._of_threads.get(self._thread, [])
        if self._outer is None:
            self._of_threads.pop(self._thread, None)
        else:
            self._of_threads[self._thread] = self._outer
        return next(iter(self._own or last), None)

    @classmethod
    def add(cls, error: BaseException) -> None:
        """Add an error of an operator that runs on this thread."""
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
        return _outputs(operator, arrays, attributes, dtypes)

    attributes = {a.name: {"INT": "int64", "FLOAT": "float"}.get(a.type, "string") for a in operator.attributes}
    add_python_operator(operator.name, body, inputs, outputs, attributes, _empty(operator, dtypes))


def _outputs(
    operator: Operator, arrays: Sequence[Any], attributes: Mapping[str, object], dtypes: Sequence[np.dtype[Any]]
) -> list[np.ndarray[Any, Any]]:
    outputs = _empty(operator, dtypes)

    def allocate(i: int, shape: Shape) -> np.ndarray[Any, Any]:
        outputs[i] = np.empty(shape, dtypes[i])
        return outputs[i]

    try:
        inputs = [np.asarray(array, order="C") for array in arrays]
        lists = {a.name: from_text(a, str(attributes[a.name])) for a in operator.attributes if a.is_list}
        compute(operator, inputs, operator.check_attributes({**attributes, **lists}), allocate, runner_on_all_cpus())
    except BaseException as error:  # noqa: BLE001 - one that leaves would abort the process
        Errors.add(error)
        if operator.name not in _logged:
            _logged.add(operator.name)
            words = str(error) or type(error).__name__
            _LOGGER.error("%s: %s; the outputs are NaN, and later errors of it are not logged", operator.name, words)
        for output in outputs:
            output[...] = np.nan
    return outputs


def _empty(operator: Operator, dtypes: Sequence[np.dtype[Any]]) -> list[np.ndarray[Any, Any]]:
    """The outputs where not even their shapes are known."""
    return [np.empty((0,) * len(tensor.shape), dtype) for tensor, dtype in zip(operator.outputs, dtypes, strict=True)]
