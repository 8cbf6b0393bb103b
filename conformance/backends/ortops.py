# SPDX-License-Identifier: MIT OR Apache-2.0
"""ONNX Runtime sessions with this project's operators: of the package, or of a library that it built."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

import ortops
from conformance.backends import session
from conformance.backends.base import (
    Backend,
    MissingBackendError,
    Session,
    UnsupportedError,
    require_kernel,
    require_standard,
)
from conformance.case import DTYPES, Case
from conformance.model import Dialect, build

SMALL = 724
"""A session with at least this many elements in all tensors has threads: at most the root of the work that kernels share."""

_LACKS = ("is not a registered function/op", "Type Error: Type 'tensor(", "Could not find an implementation")
"""Parts of ONNX Runtime's messages for operators and for types that a session lacks."""


class _WithOperators(Backend):
    """Sessions whose options have this project's operators; those of small cases have one thread.

    dialect: "standard" for models of ONNX's own nodes.
    register: a function that registers the operators in session options.
    """

    def __init__(self, dialect: Dialect, register: Callable[[Any], object]) -> None:
        self._dialect: Dialect = dialect
        self._options, self._options_of_small_cases = session.options(), session.options()
        self._options_of_small_cases.intra_op_num_threads = 1
        for options in (self._options, self._options_of_small_cases):
            register(options)

    def prepare(self, case: Case) -> Session:
        """See `Backend`."""
        require_kernel(case)
        if self._dialect == "standard":
            require_standard(case, element_types=DTYPES)
        model = build(case, self._dialect)
        options = self._options_of_small_cases if is_small(case, model) else self._options
        return session.as_session(self._session(case, model.SerializeToString(), options), case)

    def _session(self, case: Case, model: bytes, options: Any) -> Any:
        """The session of a case's model with one of the options."""
        raise NotImplementedError


class Ortops(_WithOperators):
    """Runs the custom operator in an `ortops.InferenceSession`.

    provider: the session's execution provider; the operators themselves run on the CPU.

    Raises:
        MissingBackendError: ONNX Runtime is too old, or the library is missing.
    """

    def __init__(self, provider: str | None = None, dialect: Dialect = "ortops") -> None:
        self._provider = session.check_provider(provider)
        try:
            super().__init__(dialect, ortops.register)
        except RuntimeError as error:
            raise MissingBackendError(f"ortops: {error}") from error

    def _session(self, case: Case, model: bytes, options: Any) -> Any:  # noqa: ARG002
        is_standard = self._dialect == "standard"
        return ortops.InferenceSession(model, options, providers=[self._provider], standard=is_standard)


class OrtopsStandard(Ortops):
    """Runs unconverted models, with ONNX's own nodes."""

    def __init__(self, provider: str | None = None) -> None:
        super().__init__(provider, "standard")


class Library(_WithOperators):
    """Runs the operators of a library that `python -m ortops library` wrote, for its element types.

    path: its file.

    Raises:
        MissingBackendError: ONNX Runtime cannot register the library.
    """

    def __init__(self, path: str, dialect: Dialect) -> None:
        file = str(Path(path).absolute())
        try:
            super().__init__(dialect, lambda options: options.register_custom_ops_library(file))
        except Exception as error:  # ONNX Runtime has an exception for each of its codes
            raise MissingBackendError(f"library {path}: {error}") from error

    def _session(self, case: Case, model: bytes, options: Any) -> Any:
        try:
            return onnxruntime.InferenceSession(model, options, providers=[session.CPU])
        except (Fail, InvalidGraph, NoKernel) as error:
            if case.expects_error is None and any(text in str(error) for text in _LACKS):
                raise UnsupportedError(f"the library has no {case.operator} for {case.element_type}") from error
            raise


def is_small(case: Case, model: onnx.ModelProto) -> bool:
    """Whether this project's kernels use one thread for every input of this case's model.

    They do so for little work. RoIs and pixels are elements of the tensors, so fewer pixels are read and written than the
    square of `SMALL`. RoIAlignRotated is left out, because its work also grows with the number of samples.
    """
    if case.definition.family == "roi_align_rotated":
        return False
    tensors = (*model.graph.input, *model.graph.output)
    axes = [tensor.type.tensor_type.shape.dim for tensor in tensors]
    has_open_axis = any(axis.dim_param for tensor in axes for axis in tensor)
    constants = sum(math.prod(constant.dims) for constant in model.graph.initializer)
    lengths = sum(math.prod(axis.dim_value for axis in tensor) for tensor in axes)
    return not has_open_axis and constants + lengths < SMALL
