# SPDX-License-Identifier: MIT
"""OpenCV's DNN module, whose importer reads the model: `examples.backends.opencv_backend:OpenCvBackend`."""

from __future__ import annotations

import cv2
import numpy as np
import onnx

from conformance.case import Array

cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)  # cases provoke refusals, which need no line each


class OpenCvBackend:
    """A network that OpenCV's default engine runs on the CPU."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._names = [value.name for value in model.graph.input]
        self._network = cv2.dnn.readNetFromONNX(np.frombuffer(model.SerializeToString(), np.uint8))

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU") -> OpenCvBackend:
        """Import a model, which must be RoiAlign on float tensors."""
        if model.graph.node[0].op_type != "RoiAlign" or model.graph.node[0].domain:
            raise NotImplementedError("OpenCV has no other operator of the suite than ONNX's RoiAlign")
        if model.graph.output[0].type.tensor_type.elem_type != onnx.TensorProto.FLOAT:
            raise NotImplementedError("OpenCV computes in float32, whatever the type of the tensors")
        return cls(model)

    def run(self, inputs: list[Array]) -> list[Array]:
        """The outputs for inputs in the order of the model."""
        for name, array in zip(self._names, inputs, strict=True):
            self._network.setInput(array, name)
        return [self._network.forward()]
