# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sessions of ONNX Runtime for the tensors of a case, bfloat16 included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import onnx
import onnxruntime
from onnx import helper

from conformance.backends.base import ProviderError, Session
from conformance.case import Array, Case
from conformance.model import feeds
from ortops import from_ort, to_ort

CPU = "CPUExecutionProvider"

QUIET = 4
"""ONNX Runtime's severity for fatal messages only: cases provoke refusals, which need no line each."""

# While a session is made, kernels log through the process's logger, whatever the session's own severity.
onnxruntime.set_default_logger_severity(QUIET)


def options() -> Any:
    """Session options without output and without spinning threads.

    A session runs one small case. Spinning took a third of the processor time with this project's operators, and half of it
    with portable bodies.
    """
    session_options = onnxruntime.SessionOptions()
    session_options.log_severity_level = QUIET
    session_options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return session_options


def check_provider(provider: str | None) -> str:
    """The name of an execution provider that sessions can use here; the CPU's for None.

    Raises:
        ProviderError: ONNX Runtime has no provider of this name, or a session silently ignores it because a library or a
            device is missing.
    """
    if provider is None or provider == CPU:
        return CPU
    available = onnxruntime.get_available_providers()
    if provider not in available:
        raise ProviderError(f"{provider!r}: must be one of {', '.join(available)}")
    try:
        trial = onnxruntime.InferenceSession(_IDENTITY, options(), providers=[provider])
    except Exception as error:  # each provider has its own exceptions
        raise ProviderError(f"{provider!r}: ONNX Runtime has it, but cannot make a session with it: {error}") from error
    if provider not in trial.get_providers():
        raise ProviderError(f"{provider!r}: ONNX Runtime has it, but cannot start it here: check its requirements")
    return provider


def _identity() -> bytes:
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "XY")
    graph = helper.make_graph([helper.make_node("Identity", ["X"], ["Y"])], "identity", [x], [y])
    opsets = [helper.make_opsetid("", 16)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


_IDENTITY = _identity()


def as_session(session: Any, case: Case) -> Session:
    """An ONNX Runtime session as the suite's `Session`. Its tensors have the case's names."""
    names = [output.name for output in session.get_outputs()]
    run_options = onnxruntime.RunOptions()
    run_options.log_severity_level = QUIET

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        given = feeds(case, inputs)
        if case.dtype != ml_dtypes.bfloat16:
            return dict(zip(names, session.run(names, given, run_options), strict=True))
        # ONNX Runtime does not know NumPy's bfloat16: the bits go in and out as uint16.
        values = {name: to_ort(array) for name, array in given.items()}
        answers = session.run_with_ort_values(names, values, run_options)
        return {name: from_ort(value) for name, value in zip(names, answers, strict=True)}

    return run
