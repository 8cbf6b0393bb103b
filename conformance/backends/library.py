"""A shared library of our operators (`python -m ortops library`) in ONNX Runtime, named by the path of its file."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

from conformance.backends import session
from conformance.backends.base import Backend, MissingBackendError, Session, UnsupportedError, require_standard
from conformance.backends.ortops import is_small
from conformance.case import DTYPES, Case
from conformance.model import Dialect, build


class Library(Backend):
    """Runs the operators of a library, for its element types.

    path: its file.
    dialect: "standard" for models of ONNX's own nodes.

    Raises:
        MissingBackendError: ONNX Runtime cannot register the library.
    """

    def __init__(self, path: str, dialect: Dialect) -> None:
        self._dialect: Dialect = dialect
        self._options, self._options_of_small_cases = session.options(), session.options()
        self._options_of_small_cases.intra_op_num_threads = 1
        try:
            for options in (self._options, self._options_of_small_cases):
                options.register_custom_ops_library(str(Path(path).absolute()))
        except Exception as error:  # ONNX Runtime has an exception for each of its codes
            raise MissingBackendError(f"library {path}: {error}") from error

    def prepare(self, case: Case) -> Session:
        """See `Backend`."""
        if self._dialect == "standard":
            require_standard(case, element_types=DTYPES)
        model = build(case, self._dialect)
        options = self._options_of_small_cases if is_small(case, model) else self._options
        try:
            made = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except (Fail, InvalidGraph, NoKernel) as error:
            if case.expects_error is None and any(text in str(error) for text in _LACKS):
                raise UnsupportedError(f"the library has no {case.operator} for {case.element_type}") from error
            raise
        return session.as_session(made, case)


_LACKS = ("is not a registered function/op", "Type Error: Type 'tensor(", "Could not find an implementation")
"""Parts of ONNX Runtime's messages for operators and for types that a session lacks."""
