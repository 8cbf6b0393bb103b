# SPDX-License-Identifier: MIT OR Apache-2.0
"""OpenVINO's CPU plug-in, with ONNX's own nodes and mmdeploy's node for rotated RoIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import openvino
from openvino.properties import hint

from conformance import expected_failures
from conformance.backends.base import Backend, Session, UnsupportedError, require_standard
from conformance.case import DTYPES, Array, Case
from conformance.model import build, feeds

PRECISE = {
    hint.inference_precision(): openvino.Type.f32,
    hint.execution_mode(): hint.ExecutionMode.ACCURACY,
}
"""Options that keep the plug-in from computing float tensors in bfloat16 or float16, its default on some processors.

Half precision would hide errors in the operator's semantics.
"""

MMDEPLOY, MMDEPLOY_NODE = "mmdeploy", "MMCVRoIAlignRotated"
"""Domain and name of the operator for rotated RoIs that OpenVINO's frontend reads."""

NO_CONVERSION = "No conversion rule found"
"""Part of the frontend's message for an unknown operator, or an unknown opset of one."""

LAYERS = ("ROIAlign", "ROIPooling", "GridSample")
"""OpenVINO's names of the operators."""


class OpenVino(Backend):
    """Runs the standard node in a model compiled for the CPU."""

    is_unsafe = True
    """It reads out of bounds if the map has no pixels."""

    def __init__(self) -> None:
        _, self.expected_failures = expected_failures.load("openvino")
        self._core = openvino.Core()

    def prepare(self, case: Case) -> Session:
        """See `Backend`."""
        if case.operator == "RoIAlignRotated":
            return self._rotated(case)
        require_standard(case, element_types=DTYPES)
        compiled = self._compiled(build(case, "standard"))
        if case.element_type == "double" and (precision := _precision(compiled)) != "f64":
            raise UnsupportedError(f"double tensors are computed in {precision}")

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            answer = compiled.create_infer_request().infer(
                {name: _to_tensor(array) for name, array in feeds(case, inputs).items()}
            )
            return {name: _to_numpy(answer[name], case) for name in case.outputs}

        return run

    def _rotated(self, case: Case) -> Session:
        """A session for mmdeploy's MMCVRoIAlignRotated, whose RoIs have the batch index in their first column."""
        if case.element_type != "float":
            raise UnsupportedError(f"batch indices are a column of the RoIs, in {case.element_type}")
        if {"rois", "batch_indices"} & set(case.initializers):
            raise UnsupportedError("RoIs that are initializers have no column for the batch index")
        if case.inputs["batch_indices"].ndim != 1:
            raise UnsupportedError("mmdeploy's node has no input for batch indices")
        if case.attributes.get("aligned", 1) == 0:
            raise UnsupportedError("it has aligned = 1 only")
        model = build(case, "ortops")
        (node,) = model.graph.node
        node.op_type, node.domain = MMDEPLOY_NODE, MMDEPLOY
        node.input[:] = ["X", "rois"]
        model.opset_import.append(onnx.helper.make_opsetid(MMDEPLOY, 1))
        kept = [value for value in model.graph.input if value.name == "X"]
        kept.append(onnx.helper.make_tensor_value_info("rois", onnx.TensorProto.FLOAT, ["R", 6]))
        del model.graph.input[:]
        model.graph.input.extend(kept)
        compiled = self._compiled(model)

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            rois = np.column_stack((inputs["batch_indices"].astype(np.float32), inputs["rois"]))
            answer = compiled.create_infer_request().infer(feeds(case, {"X": inputs["X"], "rois": rois}))
            return {name: np.asarray(answer[name]) for name in case.outputs}

        return run

    def _compiled(self, model: onnx.ModelProto) -> Any:
        try:
            read = self._core.read_model(model.SerializeToString())
        except RuntimeError as error:
            if NO_CONVERSION in str(error):
                raise UnsupportedError(str(error)) from error
            raise
        return self._core.compile_model(read, "CPU", PRECISE)


def _precision(compiled: Any) -> str:
    """OpenVINO's name of the element type in which the compiled operator computes."""
    nodes = [node.get_rt_info() for node in compiled.get_runtime_model().get_ops()]
    return next(str(node["runtimePrecision"].astype(str)) for node in nodes if node["layerType"].astype(str) in LAYERS)


def _to_tensor(array: Array) -> Any:
    if array.dtype == ml_dtypes.bfloat16:
        # OpenVINO does not know NumPy's bfloat16: the bits go in as uint16, and come out as float16.
        return openvino.Tensor(array.view(np.uint16), array.shape, openvino.Type.bf16)
    return array


def _to_numpy(array: Array, case: Case) -> Array:
    return array.view(ml_dtypes.bfloat16) if case.dtype == ml_dtypes.bfloat16 else array
