# SPDX-License-Identifier: MIT
"""Models of a problem, with our operators and with ONNX's own, and their calls in ONNX Runtime sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any

import onnx
import onnxruntime

import onnx_models
import ortops
from benchmarks.measure import Call
from benchmarks.workloads import MAX_ROI_POOL, Array, Attention, Problem, Resampling
from conformance.backends.session import CPU, options
from ortops import from_ort, to_ort
from ortops.operators import BY_NAME
from ortops.spec import Operator

OPSET = 19
"""The opset of Resize."""

_NAMES = {"InputTensor": "X", "InputGradientTensor": "dY"}
"""DirectML's names of inputs as ONNX's."""


def model(problem: Problem, *, portable: bool = False) -> onnx.ModelProto:
    """Return the model with our operators, with bodies of standard operators if `portable`."""
    operator = problem.operation.operator
    return onnx_models.model(
        operator,
        element_type=problem.element_type,
        attributes=_attributes(operator, problem),
        outputs=problem.operation.outputs if len(operator.outputs) > 1 else None,
        portable=portable,
    )


def standard(problem: Problem) -> onnx.ModelProto | None:
    """Return the model with ONNX's operator, or None if ONNX or ONNX Runtime has none."""
    operation, workload = problem.operation, problem.workload
    if operation.outputs != ("Y",) or operation.mode == "max_interpolated":
        return None
    if isinstance(workload, Resampling):
        shapes = [f"float[{','.join(map(str, shape))}]" for shape in (workload.shape, workload.y_shape)]
        attributes = ", ".join(f'{name} = "{value}"' for name, value in _resize(operation.mode).items())
        return onnx.parser.parse_model(f"""
            <ir_version: 9, opset_import: ["" : {OPSET}]>
            Resize ({shapes[0]} X) => ({shapes[1]} Y) <int64[4] sizes = {{{", ".join(map(str, workload.y_shape))}}}>
            {{ Y = Resize<{attributes}>(X, , , sizes) }}""")
    if isinstance(workload, Attention):
        return _attention(workload)
    if operation.forward.standard is None:
        return None
    # The newest in ONNX Runtime. They compute the same as those of opset 22, which have bfloat16.
    operator = BY_NAME["MaxRoiPool_1" if operation.forward is MAX_ROI_POOL else "RoiAlign_16"]
    model = onnx_models.model(operator, attributes=_attributes(operator, problem), standard=True)
    model.opset_import[0].version = 16
    return model


def _attention(workload: Attention) -> onnx.ModelProto:
    """Return the nodes of PyTorch's exporter, of which sessions of ortops would make one."""
    (batch, _, heads, channels), (_, queries, _) = workload.shape, workload.y_shape
    count, starts = len(workload.levels), [0, *accumulate(height * width for height, width in workload.levels)]
    lines, points = ["doubled = Mul (sampling_locations, two) grid = Sub (doubled, one)"], workload.points
    constants = {"axis": [1], "last": [-1], "grid_shape": [heads, queries, points, 2]}
    constants |= {"weights_shape": [heads, 1, queries, count * points], "y_shape": [batch, heads * channels, queries]}
    for i, (height, width) in enumerate(workload.levels):
        constants |= {f"start{i}": starts[i : i + 1], f"end{i}": starts[i + 1 : i + 2]}
        constants |= {f"flat{i}": [batch, height * width, -1], f"map{i}": [heads, channels, height, width]}
        lines.append(f"""
            part{i} = Slice (value, start{i}, end{i}, axis) row{i} = Reshape (part{i}, flat{i})
            column{i} = Transpose<perm = [0, 2, 1]> (row{i}) level{i} = Reshape (column{i}, map{i})
            at{i} = Constant<value_int = {i}> () of{i} = Gather<axis = 3> (grid, at{i})
            turned{i} = Transpose<perm = [0, 2, 1, 3, 4]> (of{i}) places{i} = Reshape (turned{i}, grid_shape)
            sample{i} = GridSample<mode = "bilinear"> (level{i}, places{i})""")
    values = (f"{name} = Constant<value_ints = {value}> ()" for name, value in constants.items())
    shapes = (
        f"float{list(array.shape)} {name}" for name, array in workload.inputs().items() if array.dtype.kind == "f"
    )
    return onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : {OPSET}]>
        attention ({", ".join(shapes)}) => (float{list(workload.y_shape)} Y) {{
            two = Constant<value_float = 2.0> () one = Constant<value_float = 1.0> () {" ".join(values)} {"".join(lines)}
            samples = Concat<axis = 3> ({", ".join(f"sample{i}" for i in range(count))})
            turned = Transpose<perm = [0, 2, 1, 3, 4]> (attention_weights) weights = Reshape (turned, weights_shape)
            products = Mul (samples, weights) sum = ReduceSum<keepdims = 0> (products, last)
            joined = Reshape (sum, y_shape) Y = Transpose<perm = [0, 2, 1]> (joined)
        }}""")


def _attributes(operator: Operator, problem: Problem) -> dict[str, Any]:
    workload, mode = problem.workload, problem.operation.mode
    if isinstance(workload, Attention):
        return {}
    if isinstance(workload, Resampling):
        shapes = {"x_shape": workload.shape, "sizes": workload.y_shape}
        known = onnx_models.resample_attributes(_resize(mode), **shapes, opset=OPSET)
    else:
        known = {**workload.attributes, "mode": mode, "pooled_shape": (workload.bins, workload.bins)}
    return {attribute.name: known[attribute.name] for attribute in operator.attributes if attribute.name in known}


def _resize(mode: str) -> dict[str, str]:
    return {"coordinate_transformation_mode": "half_pixel", "mode": mode, "nearest_mode": "round_prefer_floor"}


def session(kind: Callable[..., Any], model: onnx.ModelProto, threads: int, **chosen: Any) -> Any:
    """Create a session of a class with further options. Its idle threads do not spin: they would take the others' cores."""
    session_options = options()
    for name, value in {"intra_op_num_threads": threads, **chosen}.items():
        setattr(session_options, name, value)
    return kind(model.SerializeToString(), session_options, providers=[CPU])


def feeds(model: onnx.ModelProto, problem: Problem) -> dict[str, Array]:
    """Return the problem's arrays by the names of the model's inputs; they are not copied."""
    return {value.name: problem.arrays[_NAMES.get(value.name, value.name)] for value in model.graph.input}


def _call(
    kind: Callable[..., Any], model: onnx.ModelProto, problem: Problem, threads: int, is_same: bool = True
) -> Call:
    """Return a call of `run`, as most users do. bfloat16, which NumPy lacks, is passed as OrtValue: 50 us longer."""
    runtime, arrays = session(kind, model, threads), feeds(model, problem)
    names = [value.name for value in model.graph.output]
    if problem.element_type != "bfloat16":
        return Call(lambda: runtime.run(names, arrays), is_same=is_same)
    values = {name: to_ort(array) for name, array in arrays.items()}
    return Call(
        lambda: runtime.run_with_ort_values(names, values), lambda outputs: list(map(from_ort, outputs)), is_same
    )


def ours(problem: Problem, threads: int) -> Call:
    """Return a call of our operators."""
    return _call(ortops.InferenceSession, model(problem), problem, threads)


def in_type(element_type: str, problem: Problem, threads: int) -> Call | None:
    """Return a call of our operators in another element type, to which the inputs are rounded."""
    operator, other = problem.operation.operator, replace(problem, element_type=element_type)
    if element_type not in operator.element_types(operator.inputs[0]):
        return None
    return _call(ortops.InferenceSession, model(other), other, threads, is_same=other == problem)


def bodies(problem: Problem, threads: int) -> Call:
    """Return a call of our model in a session without our kernels, which runs its body of standard operators."""
    return _call(onnxruntime.InferenceSession, model(problem, portable=True), problem, threads)


def onnxruntime_own(problem: Problem, threads: int) -> Call | None:
    """Return a call of ONNX Runtime's own RoiAlign, MaxRoiPool or Resize."""
    model = standard(problem)
    # It computes MaxRoiPool's bins of whole pixels in float32, so that a bin may have one pixel more.
    is_same = problem.operation.forward is not MAX_ROI_POOL
    return _call(onnxruntime.InferenceSession, model, problem, threads, is_same) if model else None
