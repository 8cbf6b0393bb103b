"""The cases that a runtime of standard ONNX nodes can run."""

from __future__ import annotations

from conformance.backends.base import UnsupportedError
from conformance.case import Case


def is_standard(case: Case) -> bool:
    """Whether ONNX has the operator of the case with its attributes and their values."""
    return case.definition.standard is not None and case.attributes.get("mode") != "max_interpolated"


def require_standard(case: Case, *, element_types: tuple[str, ...]) -> None:
    """Check that the case is a node of ONNX with tensors of one of `element_types`.

    Raises:
        UnsupportedError: it is not.
    """
    if case.definition.standard is None:
        raise UnsupportedError(f"ONNX has no operator {case.operator}")
    if case.attributes.get("mode") == "max_interpolated":
        raise UnsupportedError("ONNX has no mode max_interpolated")
    if case.element_type not in element_types:
        raise UnsupportedError(f"no {case.element_type} tensors")
