"""emx-onnx-cgen, which writes a model as a C program: `examples.backends.emx_backend:EmxBackend`."""

from __future__ import annotations

from typing import Any

import onnx
from emx_onnx_cgen.errors import UnsupportedOpError
from emx_onnx_cgen.onnx_backend import prepare

from conformance.case import Array


class CrashError(BaseException):
    """The program ended without a message, as by a signal: a crash, which the package's own backend calls an error."""


class EmxBackend:
    """A program that the system's C compiler has made."""

    def __init__(self, model: onnx.ModelProto) -> None:
        try:
            self._program = prepare(model)
        except UnsupportedOpError as error:  # also for attributes that it refuses
            raise NotImplementedError(str(error)) if str(error).startswith("Unsupported op ") else error from None

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU") -> EmxBackend:
        """Write, compile and link the program."""
        return cls(model)

    def run(self, inputs: list[Array]) -> list[Any]:
        """The outputs for inputs in the order of the model."""
        try:
            return list(self._program.run(inputs))
        except RuntimeError as error:
            if str(error).strip() == "Execution failed:":
                raise CrashError(str(error)) from error
            raise
