"""Calls of ONNX Runtime sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import onnxruntime

import ortops
from benchmarks.call import Call
from benchmarks.models import ours
from benchmarks.problem import Problem
from conformance.backends.session import CPU, from_ort, options, to_ort

_NAMES = {"InputTensor": "X", "InputGradientTensor": "dY"}
"""DirectML's names of inputs as ONNX's."""


def make(session: Callable[..., Any], model: onnx.ModelProto, threads: int, profile: str | None = None) -> Any:
    """Create a session of a class, which writes a profile to a file with the prefix `profile`, if given."""
    chosen = options()
    chosen.intra_op_num_threads = threads
    # Spinning idle threads of one session would take the others' cores.
    chosen.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if profile is not None:
        chosen.enable_profiling = True
        chosen.profile_file_prefix = profile
    return session(model.SerializeToString(), chosen, providers=[CPU])


def call_of(session: Callable[..., Any], model: onnx.ModelProto, problem: Problem, threads: int) -> Call:
    """Return a call of the model in a session of a class, on the problem's arrays, which are not copied.

    It calls `run`, as most users do. bfloat16, which NumPy lacks, is passed as OrtValue, which takes 50 us longer.
    """
    made = make(session, model, threads)
    inputs, outputs = ([value.name for value in values] for values in (model.graph.input, model.graph.output))
    feeds = {name: problem.arrays[_NAMES.get(name, name)] for name in inputs}
    if problem.element_type != "bfloat16":
        return Call(lambda: made.run(outputs, feeds), list)
    values = {name: to_ort(array) for name, array in feeds.items()}
    return Call(
        lambda: made.run_with_ort_values(outputs, values),
        lambda answers: [from_ort(answer) for answer in answers],
    )


def our_call(problem: Problem, threads: int) -> Call:
    """Return a call of our operators."""
    return call_of(ortops.InferenceSession, ours(problem), problem, threads)


def stock_call(model: onnx.ModelProto, problem: Problem, threads: int) -> Call | None:
    """Return a call of ONNX Runtime without our operators, or None if it has no kernel for the model."""
    try:
        return call_of(onnxruntime.InferenceSession, model, problem, threads)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return None
