"""An ONNX Runtime session with this project's operators, for its own nodes or for those of ONNX."""

from __future__ import annotations

import math

import onnx

import ortops
from conformance.backends import session
from conformance.backends.base import Backend, MissingBackendError, Session, require_standard
from conformance.case import DTYPES, Case
from conformance.model import Dialect, build

SMALL = 724
"""A session with at least this many elements in all tensors has threads: at most the root of the work that kernels share."""


class Ortops(Backend):
    """Runs the custom operator in an `ortops.InferenceSession`.

    dialect: "standard" for models of ONNX's own nodes, which the session runs as they are.
    provider: the session's execution provider; the operators themselves run on the CPU.
    """

    def __init__(self, provider: str | None = None, dialect: Dialect = "ortops") -> None:
        self._dialect: Dialect = dialect
        self._provider = session.check_provider(provider)
        self._options, self._options_of_small_cases = session.options(), session.options()
        self._options_of_small_cases.intra_op_num_threads = 1
        for options in (self._options, self._options_of_small_cases):
            ortops.register(options)

    def prepare(self, case: Case) -> Session:
        """See `Backend`."""
        if self._dialect == "standard":
            require_standard(case, element_types=DTYPES)
        model = build(case, self._dialect)
        options = self._options_of_small_cases if is_small(case, model) else self._options
        made = ortops.InferenceSession(
            model.SerializeToString(), options, providers=[self._provider], standard=self._dialect == "standard"
        )
        return session.as_session(made, case)


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
    return (
        not has_open_axis and constants + sum(math.prod(axis.dim_value for axis in tensor) for tensor in axes) < SMALL
    )


def load(provider: str | None = None) -> Ortops:
    """The backend for this project's nodes.

    Raises:
        MissingBackendError: ONNX Runtime is too old, or the library is missing.
    """
    return _loaded(provider, "ortops")


def load_standard(provider: str | None = None) -> Ortops:
    """The backend for unconverted models, with ONNX's own nodes. Raises as `load`."""
    return _loaded(provider, "standard")


def _loaded(provider: str | None, dialect: Dialect) -> Ortops:
    try:
        return Ortops(provider, dialect)
    except RuntimeError as error:
        raise MissingBackendError(f"ortops: {error}") from error
