# SPDX-License-Identifier: MIT OR Apache-2.0
"""Backends outside this package: `module[:Class]` with ONNX's backend interface, or `module:function` on NumPy arrays.

docs/conformance.md explains how to write one.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
import unittest
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from types import ModuleType
from typing import Any

import numpy as np

from conformance import expected_failures
from conformance.backends.base import Backend, MissingBackendError, Session, UnsupportedError, dialect_of
from conformance.case import Array, Case
from conformance.expected_failures import ExpectedFailure
from conformance.expected_values import check_conventions
from conformance.guard import EndOfProcessError, is_stop, kept_surroundings
from conformance.model import attributes_of, build
from conformance.printable import described, message_of, printable


class OnnxBackend(Backend):
    """A backend that calls `target`, a module or class with ONNX's backend interface."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self.expected_failures, self.conventions = _declared_by(target)

    def prepare(self, case: Case) -> Session:
        """See `Backend`."""
        model = build(case, dialect_of(case))
        is_compatible = getattr(self._target, "is_compatible", None)
        if is_compatible is not None and not is_compatible(model, device="CPU"):
            raise UnsupportedError("is_compatible(model) is False")
        with _translated_errors():
            prepared = self._target.prepare(model, "CPU")

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            with _translated_errors():
                outputs = prepared.run([inputs[i.name] for i in model.graph.input])
            return _by_name(outputs if outputs is None else list(outputs), tuple(o.name for o in model.graph.output))

        return run


class FunctionBackend(Backend):
    """A backend that calls `target`, a function on NumPy arrays."""

    def __init__(self, target: Callable[..., object]) -> None:
        self._target = target
        self.expected_failures, self.conventions = _declared_by(target)

    def prepare(self, case: Case) -> Session:
        """See `Backend`."""
        definition = case.definition
        outputs = tuple(tensor.name for tensor in definition.outputs if tensor.name in case.outputs)
        op_type = definition.standard[0] if definition.standard else definition.name

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            by_name = {tensor.name: inputs.get(tensor.name) for tensor in definition.inputs}
            with _translated_errors():
                return _by_name(self._target(op_type, by_name, attributes_of(case), outputs), outputs)

        return run


@contextlib.contextmanager
def _translated_errors() -> Iterator[None]:
    """Turn NotImplementedError and SkipTest into the suite's UnsupportedError."""
    try:
        yield
    except (NotImplementedError, unittest.SkipTest) as error:
        raise UnsupportedError(message_of(error) or type(error).__name__) from error


def _declared_by(target: object) -> tuple[Sequence[ExpectedFailure], Sequence[str]]:
    """A target's EXPECTED_FAILURES, a mapping from globs to reasons, and its CONVENTIONS; both may be absent.

    Raises:
        ValueError: a convention is unknown, or one of both has a wrong form.
    """
    conventions, failures = getattr(target, "CONVENTIONS", ()), getattr(target, "EXPECTED_FAILURES", {})
    if isinstance(conventions, str) or not isinstance(conventions, Iterable):
        raise ValueError(f"CONVENTIONS = {conventions!r}: must be a list of names")
    conventions = tuple(conventions)
    check_conventions(conventions)
    return expected_failures.from_mapping(failures), conventions


def _by_name(answer: object, outputs: tuple[str, ...]) -> dict[str, Array]:
    """The outputs by name, without None. The comparison reports what is missing, and more outputs, which have numbers."""
    if not isinstance(answer, Mapping):
        values = answer if isinstance(answer, list | tuple) else [answer]
        answer = dict(zip((*outputs, *range(len(outputs), len(values))), values, strict=False))
    return {str(name): np.asarray(value) for name, value in answer.items() if value is not None}


def load(name: str) -> Backend:
    """The backend that `module[:Class]` or `module:function` names; its version is the module's or its package's.

    Raises:
        MissingBackendError: the module cannot be imported, or has no such attribute; or the object is neither a function of
            a node nor has `prepare`; or its EXPECTED_FAILURES or CONVENTIONS have a wrong form.
    """
    place, _, attribute = name.partition(":")
    with _loading(name, "importing it"), kept_surroundings():
        if place.endswith(".py"):
            raise ValueError(f"must be MODULE:NAME; did you mean {PurePath(place).stem}:{attribute or 'answer'}?")
        module = importlib.import_module(place)
        target = getattr(module, attribute) if attribute else module
    with _loading(name, "loading it"), kept_surroundings():
        if callable(getattr(target, "prepare", None)):
            backend: Backend = OnnxBackend(target)
        elif callable(target) and not inspect.isclass(target):
            if fault := _fault(target):
                raise ValueError(f"must take op_type, inputs, attributes and outputs: {fault}")
            backend = FunctionBackend(target)
        else:
            raise ValueError(f"must be a function or have prepare(model, device){_meant(module)}")
        stated = (getattr(sys.modules.get(each), "__version__", None) for each in (place, place.partition(".")[0]))
        backend.version = next((printable(text) for text in stated if isinstance(text, str)), "")
        return backend


def _fault(function: Callable[..., object]) -> str:
    """Why a function cannot be called with the four arguments of a node; empty if it can, or if nobody knows."""
    try:
        inspect.signature(function).bind(*range(4))
    except TypeError as error:
        return message_of(error)
    except ValueError:  # of a compiled function without a signature
        pass
    return ""


def _meant(module: ModuleType) -> str:
    """A question that names some backends which a module defines; empty if there are none."""
    names = [
        f"{each.__module__}:{name}"
        for name, each in vars(module).items()
        if getattr(each, "__module__", None) == module.__name__
        and (callable(getattr(each, "prepare", None)) or (inspect.isfunction(each) and not _fault(each)))
    ]
    return f"; did you mean {' or '.join(names[:4])}?" if names else ""


@contextlib.contextmanager
def _loading(name: str, what: str) -> Iterator[None]:
    """Turn every exception of a module that is being loaded into a MissingBackendError, unless the user stops the run."""
    try:
        yield
    except BaseException as error:
        if is_stop(error):
            raise
        if issubclass(type(error), ImportError | AttributeError | ValueError):
            text = message_of(error)
        elif issubclass(
            type(error), EndOfProcessError | SystemExit
        ):  # with status 0 a run would look as if it had passed
            text = f"{what} would have ended the process: {message_of(error)}"
        else:
            text = f"{what} raised {described(error)}"
        raise MissingBackendError(f"backend {name}: {text}") from error
