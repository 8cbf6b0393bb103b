"""The pyop engine: onnxruntime-extensions' Python operators, for libraries that do not export AddExternalCustomOp.

It has these limits. Tensors are float or double. Every input and output must be present. A float attribute has only 6
digits. The session's threads are not used. In an onnxruntime.InferenceSession every attribute must be present, and lists
cannot be read; `ortops.InferenceSession` rewrites such models (`pyop_attributes`). An exception that left the body would
abort the process, so the outputs become NaN, the error is logged once, and `ortops.InferenceSession` raises it after the
run.

A user's operator runs only in an `ortops.InferenceSession`, which writes the attributes of its nodes as JSON. It can use all
types except float16 and bfloat16, and no variadic tensors.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ortops.engine.c_api import probe_session
from ortops.engine.extensions import OrtError, add_python_operator, install_call_hook
from ortops.engine.pyop_attributes import JSON, from_json, from_text
from ortops.shapes import Shape
from ortops.spec import DOMAIN, ELEMENT_DTYPES, AttributeValue, Bind, Operator, check_combinations

_LOGGER = logging.getLogger("ortops")
_REFUSED_TYPES = ("float16", "bfloat16")

_logged_operators: set[str] = set()
_added: dict[str, Operator] = {}


def add_operator(operator: Operator, bind: Bind) -> None:
    """Add an operator to the library, for all sessions that register it later. A second call does nothing.

    Raises:
        ValueError: the process has another operator with this domain and name, or its inputs have too many combinations of
            element types.
        TypeError: the library cannot run such an operator.
    """
    if _added.get(operator.label, operator) is not operator:
        raise ValueError(
            f"{operator.label}: the pyop engine already has another operator of this name: names must be unique"
        )
    if operator.label in _added:
        return
    if operator.constructor is not None:
        raise TypeError(f"{operator.label} is a class: the pyop engine (Windows) does not support this")
    if not operator.domain:
        raise TypeError(f"{operator.label} has the domain '': the pyop engine (Windows) does not support this")
    tensors = (*operator.inputs, *operator.outputs)
    for tensor in tensors:
        if tensor.variadic or set(operator.element_types(tensor)) <= set(_REFUSED_TYPES):
            what = "variadic" if tensor.variadic else " or ".join(operator.element_types(tensor))
            raise TypeError(
                f"{operator.label}: {tensor.name} is {what}: the pyop engine (Windows) does not support this"
            )
    for attribute in operator.attributes:
        if attribute.type == "TENSOR":
            raise TypeError(
                f"{operator.label}: {attribute.name} is a tensor: the pyop engine (Windows) does not support this"
            )
    choices = {
        variable: [kind for kind in allowed if kind not in _REFUSED_TYPES]
        for variable, allowed in operator.types.items()
    }
    check_combinations(operator.label, "for the pyop engine (Windows), its tensors have", choices)
    for kinds in itertools.product(*choices.values()):
        _add(operator, bind, dict(zip(operator.types, kinds, strict=True)))
    _added[operator.label] = operator


def start() -> None:
    """Install the hook for the library's calls, and run a Python operator.

    The library then imports parts of NumPy; later, this could deadlock with a signal handler.
    """
    install_call_hook()
    nothing = np.empty(0, np.float32)
    add_python_operator("OrtopsProbe", lambda x: [x], ["float"], ["float"], {}, [nothing])
    probe_session().run(None, {"x": nothing})


class RunErrors:
    """Our operators' errors in one run of a session on the current thread.

    An operator on one of ONNX Runtime's own threads (ORT_PARALLEL) cannot know its run, so its error counts for all threads'
    runs.
    """

    _of_threads: ClassVar[dict[int, list[BaseException]]] = {}

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        # A signal handler may start this run during another run on the same thread.
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
        """Record an error of an operator that runs on the current thread."""
        own = cls._of_threads.get(threading.get_ident())
        for errors in list(cls._of_threads.values()) if own is None else [own]:
            if not errors:
                errors.append(error)


def _add(operator: Operator, bind: Bind, types: Mapping[str, str]) -> None:
    inputs, outputs = (
        [types.get(tensor.type, tensor.type) for tensor in tensors] for tensors in (operator.inputs, operator.outputs)
    )
    dtypes = [ELEMENT_DTYPES[kind] for kind in outputs]

    def body(*arrays: np.ndarray[Any, Any], **attributes: object) -> Sequence[np.ndarray[Any, Any]]:
        return _compute_outputs(operator, bind, arrays, attributes, outputs)

    attributes = {JSON: "string"}
    if operator.domain == DOMAIN:
        attributes = {a.name: {"INT": "int64", "FLOAT": "float"}.get(a.type, "string") for a in operator.attributes}
    add_python_operator(operator.label, body, inputs, outputs, attributes, _empty_outputs(operator, dtypes))


def _compute_outputs(
    operator: Operator, bind: Bind, arrays: Sequence[Any], given: Mapping[str, object], kinds: Sequence[str]
) -> list[np.ndarray[Any, Any]]:
    dtypes = [ELEMENT_DTYPES[kind] for kind in kinds]
    outputs = _empty_outputs(operator, dtypes)

    def allocate(i: int, shape: Shape) -> np.ndarray[Any, Any]:
        outputs[i] = np.empty(shape, dtypes[i])
        return outputs[i]

    try:
        inputs = [np.require(array, requirements=("C", "A")) for array in arrays]
        bind(operator, _attributes(operator, given), kinds)(inputs, allocate, None)
    except BaseException as error:  # noqa: BLE001 - an exception that left would abort the process
        message = str(error) or type(error).__name__
        if operator.domain != DOMAIN and isinstance(error, Exception):
            named = OrtError(f"{operator.label}: {message}")
            named.__cause__ = error.__cause__ or error
            RunErrors.add(named)
        else:
            RunErrors.add(error)
        if operator.name not in _logged_operators:
            _logged_operators.add(operator.name)
            _LOGGER.error("%s: %s; the outputs are NaN, and its later errors are not logged", operator.name, message)
        for output, dtype in zip(outputs, dtypes, strict=True):
            output[...] = {"f": np.nan, "O": ""}.get(dtype.kind, 0)
    return outputs


def _attributes(operator: Operator, given: Mapping[str, object]) -> dict[str, AttributeValue]:
    """A node's checked attributes, from the values that the library passes."""
    if operator.domain != DOMAIN:
        return operator.check_attributes(from_json(str(given[JSON])))
    lists = {a.name: from_text(a, str(given[a.name])) for a in operator.attributes if a.is_list}
    return operator.check_attributes({**given, **lists})


def _empty_outputs(operator: Operator, dtypes: Sequence[np.dtype[Any]]) -> list[np.ndarray[Any, Any]]:
    """Empty outputs, for errors before the outputs' shapes are known."""
    return [np.empty((0,) * len(tensor.shape), dtype) for tensor, dtype in zip(operator.outputs, dtypes, strict=True)]
