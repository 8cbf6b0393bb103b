"""The interface of a backend, its errors, and the cases that a runtime of standard ONNX nodes can run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from conformance.case import Array, Case
from conformance.expected_failures import ExpectedFailure
from conformance.printable import PrintableError

Session = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""A function that runs the node of a case once: from all its inputs by name, initializers included, to its outputs."""


class MissingBackendError(PrintableError):
    """A backend that cannot be loaded."""


class ProviderError(PrintableError):
    """An execution provider that a backend cannot use; the message begins with its name."""


class UnsupportedError(Exception):
    """Raised by a backend for a case that needs something which it does not claim to support."""


class OperatorMissingError(Exception):
    """Raised by a backend if the runtime lacks an operator that it should have; never counts as a refusal."""


class Backend:
    """A runtime that answers cases.

    expected_failures: the cases that it is known to fail.
    conventions: the `conformance.conventions.CONVENTIONS` by which it is judged.
    is_unsafe: whether invalid data may end its process or corrupt its memory.
    compiles: whether `compile` does something.
    """

    expected_failures: Sequence[ExpectedFailure] = ()
    conventions: Sequence[str] = ()
    is_unsafe = False
    compiles = False

    def prepare(self, case: Case) -> Session:
        """A session for the case's node, which can run several times and with any lengths of symbolic axes.

        Both this method and the session raise:
            UnsupportedError: this backend does not claim to support the case.
            OperatorMissingError: the runtime has no implementation of the operator.
            Exception: any other is a refusal of the case.
            BaseException: any that is no Exception, such as SystemExit or a panic of pyo3, is a crash.
        """
        raise NotImplementedError

    def compile(self, cases: Sequence[Case]) -> None:
        """Compile what the runtime needs for these cases, before their time is measured."""


def is_standard(case: Case) -> bool:
    """Whether ONNX has the operator of the case with its attributes and their values."""
    return case.definition.standard is not None and case.attributes.get("mode") != "max_interpolated"


def require_standard(case: Case, *, element_types: Collection[str]) -> None:
    """Check that the case is a node of ONNX with tensors of one of `element_types`.

    Raises:
        UnsupportedError: it is not.
    """
    if case.definition.standard is None:
        raise UnsupportedError(f"ONNX has no operator {case.operator}")
    if not is_standard(case):
        raise UnsupportedError("ONNX has no mode max_interpolated")
    if case.element_type not in element_types:
        raise UnsupportedError(f"no {case.element_type} tensors")
