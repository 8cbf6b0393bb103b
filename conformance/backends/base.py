"""What the suite asks of a backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from conformance.case import Array, Case
from conformance.expected_failures import ExpectedFailure
from conformance.printable import PrintableError


class MissingBackendError(PrintableError):
    """A backend that cannot be loaded."""


class ProviderError(PrintableError):
    """An execution provider that a backend cannot use; the message begins with its name."""


class UnsupportedError(Exception):
    """Raised by `Backend.run`: the case asks for something that this backend does not claim to have."""


class OperatorMissingError(Exception):
    """Raised by `Backend.run`: the runtime should have the operator and does not. Never taken for a refusal."""


class Backend(Protocol):
    """A runtime that answers cases. It may say that it is unsafe, see `is_unsafe`."""

    @property
    def expected_failures(self) -> Sequence[ExpectedFailure]:
        """What it is known to get wrong."""

    def run(self, case: Case) -> dict[str, Array]:
        """The case's outputs, by name.

        Raises:
            UnsupportedError: this backend does not claim to support the case.
            OperatorMissingError: the runtime has no implementation of the operator.
            Exception: any other is a refusal of the case.
        """


def is_unsafe(backend: Backend) -> bool:
    """Whether wrong data may end this backend's process, or harm its memory unseen: it has `is_unsafe = True`."""
    return bool(getattr(backend, "is_unsafe", False))
