# SPDX-License-Identifier: MIT
"""MNN, whose converter reads the model from a file: `examples.backends.mnn_backend:MnnBackend`."""

from __future__ import annotations

import tempfile

import _tools  # MNN's converter; importing MNN.tools instead would make pip install a logger
import MNN
import numpy as np
import onnx

from conformance.case import Array


class MnnBackend:
    """A converted model. MNN has float32 and int32 only."""

    def __init__(self, model: onnx.ModelProto) -> None:
        names = [[value.name for value in values] for values in (model.graph.input, model.graph.output)]
        with tempfile.TemporaryDirectory() as folder:
            onnx.save(model, f"{folder}/model.onnx")
            files = ["--modelFile", f"{folder}/model.onnx", "--MNNModel", f"{folder}/model.mnn"]
            _tools.mnnconvert(["mnnconvert", "-f", "ONNX", *files, "--bizCode", "-"])
            self._module = MNN.nn.load_module_from_file(f"{folder}/model.mnn", *names)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU") -> MnnBackend:
        """Convert a model, which must have an operator of ONNX on float tensors."""
        if model.graph.node[0].domain or model.graph.output[0].type.tensor_type.elem_type != onnx.TensorProto.FLOAT:
            raise NotImplementedError("MNN has ONNX's own operators only, in float")
        return cls(model)

    def run(self, inputs: list[Array]) -> list[Array]:
        """The outputs for inputs in the order of the model."""
        if any(array.dtype == np.int64 and np.any(array != array.astype(np.int32)) for array in inputs):
            raise NotImplementedError("MNN has no integers beyond 32 bits")
        floats, ints = (np.float32, MNN.expr.float), (np.int32, MNN.expr.int)
        typed = [(array, *(floats if array.dtype == np.float32 else ints)) for array in inputs]
        given = [MNN.expr.const(array.astype(t), [*array.shape], MNN.expr.NCHW, kind) for array, t, kind in typed]
        return [np.array(MNN.expr.convert(y, MNN.expr.NCHW).read()) for y in self._module.forward(given)]
