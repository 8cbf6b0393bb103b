"""What a runtime of standard ONNX nodes can be asked."""

from __future__ import annotations

from conformance.backends.base import UnsupportedError
from conformance.case import Case


def require_standard(case: Case, *, element_types: tuple[str, ...]) -> None:
    """Passes where the case is a node of ONNX in one of `element_types`.

    Raises:
        UnsupportedError: it is not; says why.
    """
    if case.definition.standard is None:
        raise UnsupportedError(f"{case.operator} is no operator of ONNX")
    if case.attributes.get("mode") == "max_interpolated":
        raise UnsupportedError("ONNX has no mode max_interpolated")
    if case.element_type not in element_types:
        raise UnsupportedError(f"no {case.element_type} tensors")
