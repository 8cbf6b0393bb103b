# SPDX-License-Identifier: MIT
"""emx-onnx-cgen, which writes a model as a C program: `examples.backends.emx_backend:EmxBackend`."""

from __future__ import annotations

import onnx
from emx_onnx_cgen.errors import UnsupportedOpError
from emx_onnx_cgen.onnx_backend import prepare

from conformance.case import Array


class CrashError(BaseException):
    """The program ended without a message, for example by a signal. The package's own backend reports it as an error."""


class EmxBackend:
    """A program that the system's C compiler has made."""

    def __init__(self, model: onnx.ModelProto) -> None:
        for output in model.graph.output:  # emx-onnx-cgen refuses outputs with symbolic axes
            output.type.tensor_type.ClearField("shape")
        try:
            self._program = prepare(onnx.shape_inference.infer_shapes(model))
        except UnsupportedOpError as error:  # also for attributes that it refuses
            raise NotImplementedError(str(error)) if str(error).startswith("Unsupported op ") else error from None

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU") -> EmxBackend:
        """Write, compile and link the program."""
        return cls(model)

    def run(self, inputs: list[Array]) -> list[Array]:
        """The outputs for inputs in the order of the model."""
        try:
            return list(self._program.run(inputs))
        except RuntimeError as error:
            if str(error).strip() == "Execution failed:":
                raise CrashError(str(error)) from error
            raise
