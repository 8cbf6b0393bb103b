# SPDX-License-Identifier: MIT
"""The provider of onnxruntime-openvino: `examples.backends.onnxruntime_openvino_backend:OpenVinoProvider`."""

from __future__ import annotations

import onnx
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from conformance.backends.onnxruntime import FELL_BACK
from conformance.backends.session import options
from conformance.case import Array


class OpenVinoProvider:
    """A session that computes no node on ONNX Runtime's own CPU provider."""

    def __init__(self, model: onnx.ModelProto) -> None:
        (node,), (output,) = model.graph.node, model.graph.output
        node.output[:] = ["pooled"]  # the provider leaves a model of one node to the CPU, but not one of three
        for source, target in (("pooled", "negated"), ("negated", output.name)):
            model.graph.node.append(onnx.helper.make_node("Neg", [source], [target]))
        self._names = [value.name for value in model.graph.input]
        alone = options()
        alone.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        provider = ("OpenVINOExecutionProvider", {"device_type": "CPU", "precision": "ACCURACY"})
        try:
            self._session = onnxruntime.InferenceSession(model.SerializeToString(), alone, providers=[provider])
        except Fail as error:
            raise NotImplementedError("a node for the CPU provider") if FELL_BACK in str(error) else error from None

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU") -> OpenVinoProvider:
        """A session for a model, which must be ONNX's RoiAlign."""
        if model.graph.node[0].op_type != "RoiAlign" or model.graph.node[0].domain:
            raise NotImplementedError("the provider claims RoiAlign only")
        return cls(model)

    def run(self, inputs: list[Array]) -> list[Array]:
        """The outputs for inputs in the order of the model."""
        return list(self._session.run(None, dict(zip(self._names, inputs, strict=True))))
