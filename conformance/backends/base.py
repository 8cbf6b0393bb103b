# SPDX-License-Identifier: MIT OR Apache-2.0
"""The interface of a backend, its errors, and the backend that is the reference itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager

import numpy as np

from conformance.case import Array, Case
from conformance.child import limited_memory
from conformance.expected_failures import ExpectedFailure
from conformance.expected_values import evaluated, reference
from conformance.model import Dialect
from conformance.printable import PrintableError
from ortops.operators.asked import WITHOUT_KERNEL

Session = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""A function that runs a case's node once. It takes all inputs by name, including initializers, and returns the outputs."""


class MissingBackendError(PrintableError):
    """A backend that cannot be loaded."""


class ProviderError(PrintableError):
    """An execution provider that a backend cannot use. The message begins with its name."""


class UnsupportedError(Exception):
    """Raised by a backend for a case that it does not claim to support."""


class OperatorMissingError(Exception):
    """Raised by a backend if the runtime lacks an operator that it should have. It never counts as a refusal."""


class RefusedError(Exception):
    """Raised by a backend to refuse a case in the runtime's own words, without the name of an exception."""


class CrashError(Exception):
    """Raised by a backend if the runtime has crashed in a process of its own, which does not end this one."""


class Backend:
    """A runtime that runs cases.

    expected_failures: the cases that it is known to fail.
    conventions: those of `conformance.expected_values.CONVENTIONS` with which it is judged.
    is_unsafe: whether invalid data may end its process or corrupt its memory.
    version: its release, in reports; empty for a backend of this package, whose distribution has it.
    """

    expected_failures: Sequence[ExpectedFailure] = ()
    conventions: Sequence[str] = ()
    is_unsafe = False
    version = ""

    def limited_memory(self, size: int) -> AbstractContextManager[None]:
        """A context in which the runtime may use `size` more bytes of address space; only on Linux."""
        return limited_memory(size)

    def prepare(self, case: Case) -> Session:
        """A session for the case's node, which can run several times and with any lengths of symbolic axes.

        Both this method and the session raise:
            UnsupportedError: this backend does not claim to support the case.
            OperatorMissingError: the runtime has no implementation of the operator.
            CrashError: the case has crashed.
            Exception: every other exception is a refusal of the case.
            BaseException: others, such as SystemExit or a panic of pyo3, are a crash.
        """
        raise NotImplementedError


class Reference(Backend):
    """Evaluates `ortops.reference` in float64, and rounds its results once to the tensor's type."""

    def prepare(self, case: Case) -> Session:
        """See `Backend`."""

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            compute = reference if case.formula is None else evaluated
            results = compute(case.definition, case.attributes, inputs, case.outputs)
            with np.errstate(over="ignore"):
                return {name: value.astype(case.dtype) for name, value in results.items()}

        return run


def require_kernel(case: Case) -> None:
    """Check that this project computes the case's operator.

    Raises:
        UnsupportedError: it leaves the operator to ONNX Runtime.
    """
    if case.definition in WITHOUT_KERNEL:
        raise UnsupportedError(f"ortops has no kernel of {case.operator}: ONNX Runtime computes it")


def is_standard(case: Case) -> bool:
    """Whether ONNX has the case's operator with these attributes and values."""
    return case.definition.standard is not None and case.attributes.get("mode") != "max_interpolated"


def dialect_of(case: Case) -> Dialect:
    """The dialect of the case's model for a runtime: ONNX's own node if there is one."""
    return "standard" if is_standard(case) else "ortops"


def require_standard(case: Case, *, element_types: Collection[str]) -> None:
    """Check that the case is a node of ONNX with tensors of one of the `element_types`.

    Raises:
        UnsupportedError: it is not.
    """
    if case.definition.standard is None:
        raise UnsupportedError(f"ONNX has no operator {case.operator}")
    if not is_standard(case):
        raise UnsupportedError("ONNX has no mode max_interpolated")
    if case.element_type not in element_types:
        raise UnsupportedError(f"no {case.element_type} tensors")
