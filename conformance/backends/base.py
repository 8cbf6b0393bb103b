"""The interface of a backend, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

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


class Backend(Protocol):
    """A runtime that answers cases. It may also have the attributes `is_unsafe` and `conventions`: see below."""

    @property
    def expected_failures(self) -> Sequence[ExpectedFailure]:
        """The cases that it is known to fail."""

    def prepare(self, case: Case) -> Session:
        """A session for the case's node, which can run several times and with any lengths of symbolic axes.

        Both this method and the session raise:
            UnsupportedError: this backend does not claim to support the case.
            OperatorMissingError: the runtime has no implementation of the operator.
            Exception: any other is a refusal of the case.
            BaseException: any that is no Exception, such as SystemExit or a panic of pyo3, is a crash.
        """


def is_unsafe(backend: Backend) -> bool:
    """Whether invalid data may end this backend's process or corrupt its memory: it has `is_unsafe = True`."""
    return bool(getattr(backend, "is_unsafe", False))


def conventions_of(backend: Backend) -> Sequence[str]:
    """The `conformance.conventions.CONVENTIONS` in the backend's attribute `conventions`, by which it is judged."""
    return tuple(getattr(backend, "conventions", ()))
