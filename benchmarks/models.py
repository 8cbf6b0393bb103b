"""Build ONNX models of a problem, with our operators and with ONNX's own."""

from __future__ import annotations

import onnx

import onnx_models.build
from benchmarks.operations import Operation
from benchmarks.problem import Problem
from benchmarks.workloads import Resampling, Workload
from ortops.operators import BY_NAME
from ortops.operators.max_roi_pool import MAX_ROI_POOL_1, MAX_ROI_POOL_22, MAX_ROI_POOL_GRAD
from ortops.spec import Operator

OPSET = 19
"""The opset of Resize and MaxRoiPool."""


def ours(problem: Problem, portable: bool = False) -> onnx.ModelProto:
    """Return the model with our operators, with bodies of standard operators if `portable`."""
    operation, workload = problem.operation, problem.workload
    if isinstance(workload, Resampling):
        return _resampling(operation, workload, problem.element_type, portable)
    mode, kind = operation.mode, problem.element_type
    if operation.family == "rotated":
        return _rotated(operation, workload, kind, portable)
    if operation.family == "max_roi_pool":
        operator = MAX_ROI_POOL_GRAD if operation.is_gradient else MAX_ROI_POOL_22
        return _max_roi_pool(operator, workload, kind, portable=portable)
    if not operation.is_gradient:
        return onnx_models.roi_align(
            _opset(kind), element_type=kind, portable=portable, mode=mode, **workload.attributes
        )
    if "Y" in operation.outputs:
        return onnx_models.roi_align_with_grad(element_type=kind, portable=portable, mode=mode, **workload.attributes)
    return onnx_models.roi_align_grad(
        element_type=kind, outputs=operation.outputs, portable=portable, mode=mode, **workload.gradient_attributes
    )


def standard(problem: Problem) -> onnx.ModelProto | None:
    """Return the model with ONNX's operator, or None if ONNX has none."""
    operation, workload, kind = problem.operation, problem.workload, problem.element_type
    if operation.is_gradient or operation.family == "rotated" or operation.mode == "max_interpolated":
        return None
    if not isinstance(workload, Resampling):
        if operation.family == "max_roi_pool":
            if kind == "bfloat16":
                return _max_roi_pool(MAX_ROI_POOL_22, workload, kind, standard=True)
            made = _max_roi_pool(MAX_ROI_POOL_1, workload, kind, standard=True)
            # The definition holds up to opset 21. At opset 1, ONNX Runtime cannot cast types for which it has no kernel.
            made.opset_import[0].version = OPSET
            return made
        return onnx_models.roi_align(
            _opset(kind), standard=True, element_type=kind, mode=operation.mode, **workload.attributes
        )
    element = onnx.TensorProto.DataType.Value(kind.upper())
    graph = onnx.helper.make_graph(
        [_resize(operation)],
        "Resize",
        [onnx.helper.make_tensor_value_info("X", element, workload.shape)],
        [onnx.helper.make_tensor_value_info("Y", element, workload.y_shape)],
        [onnx.helper.make_tensor("sizes", onnx.TensorProto.INT64, [4], workload.y_shape)],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=9)


def _opset(element_type: str) -> int:
    """Return the opset of RoiAlign: the newest in ONNX Runtime, or the only one with bfloat16. They compute the same."""
    return 22 if element_type == "bfloat16" else 16


def _rotated(operation: Operation, workload: Workload, kind: str, portable: bool) -> onnx.ModelProto:
    if not operation.is_gradient:
        operator = BY_NAME["RoIAlignRotated"]
        return onnx_models.build.model(operator, element_type=kind, portable=portable, attributes=workload.attributes)
    return onnx_models.build.model(
        BY_NAME["RoIAlignRotatedGrad"],
        element_type=kind,
        portable=portable,
        attributes=workload.gradient_attributes,
        outputs=operation.outputs,
        omit=("X",) if operation.outputs == ("dX",) else (),
    )


def _max_roi_pool(
    operator: Operator, workload: Workload, kind: str, *, standard: bool = False, portable: bool = False
) -> onnx.ModelProto:
    known = {"pooled_shape": (workload.bins, workload.bins), "spatial_scale": workload.spatial_scale}
    attributes = {attribute.name: known[attribute.name] for attribute in operator.attributes}
    return onnx_models.build.model(
        operator, element_type=kind, attributes=attributes, standard=standard, portable=portable
    )


def _resampling(operation: Operation, workload: Resampling, kind: str, portable: bool) -> onnx.ModelProto:
    resize, sizes = _resize(operation), workload.y_shape
    if operation.is_gradient:
        return onnx_models.resize_grad(
            resize, workload.shape, sizes=sizes, opset=OPSET, element_type=kind, portable=portable
        )
    given = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in resize.attribute}
    attributes = onnx_models.resample_attributes(given, workload.shape, sizes=sizes, opset=OPSET)
    return onnx_models.dml_resample(element_type=kind, portable=portable, **attributes)


def _resize(operation: Operation) -> onnx.NodeProto:
    return onnx.helper.make_node(
        "Resize",
        ["X", "", "", "sizes"],
        ["Y"],
        mode=operation.mode,
        coordinate_transformation_mode="half_pixel",
        nearest_mode="round_prefer_floor",
    )
