# SPDX-License-Identifier: MIT
"""Apache TVM, which imports the model into Relax and compiles it: `examples.backends.tvm_backend:TvmBackend`."""

from __future__ import annotations

from typing import Any

import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from conformance.case import Array


class TvmBackend:
    """A model compiled for the CPU."""

    def __init__(self, model: onnx.ModelProto) -> None:
        module = relax.transform.LegalizeOps()(from_onnx(model))
        self._machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU") -> TvmBackend:
        """Compile a model; the importer raises NotImplementedError for operators that it lacks."""
        return cls(model)

    def run(self, inputs: list[Array]) -> list[Any]:
        """The outputs for inputs in the order of the model."""
        outputs = self._machine["main"](*map(tvm.runtime.tensor, inputs))
        return [outputs.numpy()] if hasattr(outputs, "numpy") else [output.numpy() for output in outputs]
