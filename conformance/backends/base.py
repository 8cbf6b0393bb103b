"""What the suite asks of a backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from conformance.case import Array, Case
from conformance.expected_failures import ExpectedFailure
from conformance.printable import PrintableError

Session = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""Runs the node of a case once: from its inputs by name, constants of the model included, to its outputs by name."""


class MissingBackendError(PrintableError):
    """A backend that cannot be loaded."""


class ProviderError(PrintableError):
    """An execution provider that a backend cannot use; the message begins with its name."""


class UnsupportedError(Exception):
    """Raised by a backend: the case asks for something that it does not claim to have."""


class OperatorMissingError(Exception):
    """Raised by a backend: the runtime should have the operator and does not. Never taken for a refusal."""


class Backend(Protocol):
    """A runtime that answers cases. It may say that it is unsafe, and which conventions it has: see below."""

    @property
    def expected_failures(self) -> Sequence[ExpectedFailure]:
        """What it is known to get wrong."""

    def prepare(self, case: Case) -> Session:
        """What runs the case's node, as often as it is called and with any lengths of the tensors.

        Raises, as the session does:
            UnsupportedError: this backend does not claim to support the case.
            OperatorMissingError: the runtime has no implementation of the operator.
            Exception: any other is a refusal of the case.
        """


def is_unsafe(backend: Backend) -> bool:
    """Whether wrong data may end this backend's process, or harm its memory unseen: it has `is_unsafe = True`."""
    return bool(getattr(backend, "is_unsafe", False))


def conventions_of(backend: Backend) -> Sequence[str]:
    """By which of `conformance.conventions.CONVENTIONS` the backend asks to be judged: its attribute `conventions`."""
    return tuple(getattr(backend, "conventions", ()))
