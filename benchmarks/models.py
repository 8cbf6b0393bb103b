"""Models of a problem, with our operators and with ONNX's own, and their calls in ONNX Runtime sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import onnx
import onnxruntime

import onnx_models
import ortops
from benchmarks.bench import Call
from benchmarks.workloads import Problem, Resampling
from conformance.backends.session import CPU, options
from ortops import from_ort, to_ort
from ortops.operators import BY_NAME
from ortops.spec import Operator

OPSET = 19
"""The opset of Resize and MaxRoiPool."""

_NAMES = {"InputTensor": "X", "InputGradientTensor": "dY"}
"""DirectML's names of inputs as ONNX's."""

_BOUNDS = "it computes its bins of whole pixels in float32, so that a bin may have one pixel more"


def model(problem: Problem, *, portable: bool = False) -> onnx.ModelProto:
    """Return the model with our operators, with bodies of standard operators if `portable`."""
    operation, operator = problem.operation, problem.operation.operator
    return onnx_models.model(
        operator,
        element_type=problem.element_type,
        attributes=_attributes(operator, problem),
        outputs=operation.outputs if len(operator.outputs) > 1 else None,
        portable=portable,
    )


def standard(problem: Problem) -> onnx.ModelProto | None:
    """Return the model with ONNX's operator, or None if ONNX or ONNX Runtime has none."""
    operation, workload, kind = problem.operation, problem.workload, problem.element_type
    if operation.is_gradient or kind == "bfloat16" or operation.mode == "max_interpolated":
        return None
    if not isinstance(workload, Resampling):
        if operation.forward.standard is None:
            return None
        # The newest in ONNX Runtime. They compute the same as those of opset 22, which have bfloat16.
        operator = BY_NAME["RoiAlign_16" if operation.mode else "MaxRoiPool_1"]
        made = onnx_models.model(operator, element_type=kind, attributes=_attributes(operator, problem), standard=True)
        # At opset 1, ONNX Runtime cannot cast types for which it has no kernel.
        made.opset_import[0].version = max(made.opset_import[0].version, 16 if operation.mode else OPSET)
        return made
    element = onnx.TensorProto.DataType.Value(kind.upper())
    graph = onnx.helper.make_graph(
        [_resize(operation.mode)],
        "Resize",
        [onnx.helper.make_tensor_value_info("X", element, workload.shape)],
        [onnx.helper.make_tensor_value_info("Y", element, workload.y_shape)],
        [onnx.helper.make_tensor("sizes", onnx.TensorProto.INT64, [4], workload.y_shape)],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=9)


def _attributes(operator: Operator, problem: Problem) -> dict[str, Any]:
    workload, mode = problem.workload, problem.operation.mode
    if isinstance(workload, Resampling):
        given = {one.name: onnx.helper.get_attribute_value(one) for one in _resize(mode).attribute}
        known = onnx_models.resample_attributes(given, workload.shape, sizes=workload.y_shape, opset=OPSET)
    else:
        known = {**workload.attributes, "mode": mode, "pooled_shape": (workload.bins, workload.bins)}
    return {one.name: known[one.name] for one in operator.attributes if one.name in known}


def _resize(mode: str) -> onnx.NodeProto:
    inputs, how = ["X", "", "", "sizes"], {"nearest_mode": "round_prefer_floor", "mode": mode}
    return onnx.helper.make_node("Resize", inputs, ["Y"], coordinate_transformation_mode="half_pixel", **how)


def session(kind: Callable[..., Any], model: onnx.ModelProto, threads: int, profile: str | None = None) -> Any:
    """Create a session of a class, which writes a profile to a file with the prefix `profile`, if given.

    Its idle threads do not spin: they would take the others' cores.
    """
    chosen = options()
    chosen.intra_op_num_threads = threads
    if profile is not None:
        chosen.enable_profiling = True
        chosen.profile_file_prefix = profile
    return kind(model.SerializeToString(), chosen, providers=[CPU])


def _call(kind: Callable[..., Any], model: onnx.ModelProto, problem: Problem, threads: int) -> Call:
    """Return a call of the model in a session of a class, on the problem's arrays, which are not copied.

    It calls `run`, as most users do. bfloat16, which NumPy lacks, is passed as OrtValue, which takes 50 us longer.
    """
    made = session(kind, model, threads)
    inputs, outputs = ([value.name for value in values] for values in (model.graph.input, model.graph.output))
    feeds = {name: problem.arrays[_NAMES.get(name, name)] for name in inputs}
    if problem.element_type != "bfloat16":
        return Call(lambda: made.run(outputs, feeds), list)
    values = {name: to_ort(array) for name, array in feeds.items()}
    return Call(lambda: made.run_with_ort_values(outputs, values), lambda answers: list(map(from_ort, answers)))


def ours(problem: Problem, threads: int) -> Call:
    """Return a call of our operators."""
    return _call(ortops.InferenceSession, model(problem), problem, threads)


def bodies(problem: Problem, threads: int) -> Call | None:
    """Return a call of our model in a session without our kernels, which runs its body of standard operators."""
    return _stock(model(problem, portable=True), problem, threads)


def onnxruntime_own(problem: Problem, threads: int) -> Call | None:
    """Return a call of ONNX Runtime's own RoiAlign, MaxRoiPool or Resize."""
    made = standard(problem)
    call = _stock(made, problem, threads) if made else None
    is_max_roi_pool = not problem.operation.mode
    return replace(call, expected_difference=_BOUNDS) if call and is_max_roi_pool else call


def _stock(model: onnx.ModelProto, problem: Problem, threads: int) -> Call | None:
    """Return a call of ONNX Runtime without our operators, or None if it has no kernel for the model."""
    try:
        return _call(onnxruntime.InferenceSession, model, problem, threads)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return None
