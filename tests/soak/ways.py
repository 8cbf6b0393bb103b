"""The ways to have a session compute a case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from conformance.backends.session import QUIET, from_ort, to_ort
from conformance.case import Case

from .pool import Outputs


@dataclass(frozen=True, slots=True)
class Way:
    """A way to call.

    call: with a session and a case; the outputs.
    errors: the classes of its refusals.
    """

    call: Callable[[Any, Case], Outputs]
    errors: tuple[type[Exception], ...]


def ways(case: Case) -> Sequence[Way]:
    """Those that there are for the case's element type: NumPy has no bfloat16 that ONNX Runtime knows."""
    return _WITH_VALUES if case.dtype == ml_dtypes.bfloat16 else (_WITH_ARRAYS, *_WITH_VALUES)


def _run(session: Any, case: Case) -> Outputs:
    return dict(zip(case.outputs, session.run(case.outputs, dict(case.inputs), _quietly()), strict=True))


def _run_with_ort_values(session: Any, case: Case) -> Outputs:
    feeds = {name: to_ort(array) for name, array in case.inputs.items()}
    answers = session.run_with_ort_values(case.outputs, feeds, _quietly())
    return {name: from_ort(value) for name, value in zip(case.outputs, answers, strict=True)}


def _run_with_iobinding(session: Any, case: Case) -> Outputs:
    binding = session.io_binding()
    for name, array in case.inputs.items():
        binding.bind_ortvalue_input(name, to_ort(array))
    for name in case.outputs:
        binding.bind_output(name)
    session.run_with_iobinding(binding, _quietly())
    return {name: from_ort(value) for name, value in zip(case.outputs, binding.get_outputs(), strict=True)}


def _quietly() -> Any:
    chosen = onnxruntime.RunOptions()
    chosen.log_severity_level = QUIET
    return chosen


_WITH_ARRAYS = Way(_run, (InvalidArgument,))
_WITH_VALUES = (
    Way(_run_with_ort_values, (InvalidArgument,)),
    Way(_run_with_iobinding, (RuntimeError,)),  # ONNX Runtime has no other error there
)
