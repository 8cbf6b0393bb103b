# SPDX-License-Identifier: MIT
"""onnx2tf, which converts a model to one of TensorFlow: `examples.backends.onnx2tf_backend:Onnx2TfBackend`."""

from __future__ import annotations

import numpy as np
import onnx
import onnx2tf

from conformance.case import Array

IMAGES = 4
"""The number of axes of a batch of images, which the converted model has with the channels last."""


class Onnx2TfBackend:
    """A converted model, which TensorFlow runs on the CPU."""

    def __init__(self, model: onnx.ModelProto) -> None:
        if model.graph.node[0].op_type != "RoiAlign" or model.graph.node[0].domain:
            raise NotImplementedError("onnx2tf converts no other operator of the suite than ONNX's RoiAlign")
        self._model = onnx2tf.convert(
            onnx_graph=model, not_use_onnxsim=True, not_use_opname_auto_generate=True, disable_model_save=True
        )

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU") -> Onnx2TfBackend:
        """Convert a model."""
        return cls(model)

    def run(self, inputs: list[Array]) -> list[Array]:
        """The outputs for inputs in the order of the model."""
        last = [np.moveaxis(array, 1, -1) if array.ndim == IMAGES else array for array in inputs]
        return [np.moveaxis(np.asarray(self._model(last)), -1, 1)]
