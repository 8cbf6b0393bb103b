# SPDX-License-Identifier: MIT
"""onnx2torch, which converts a model to a module of PyTorch: `examples.backends.onnx2torch_backend:Onnx2TorchBackend`."""

from __future__ import annotations

from typing import Any

import onnx
from onnx2torch import convert

from conformance.backends.torchvision import to_numpy, to_torch
from conformance.case import Array


class Onnx2TorchBackend:
    """A converted model."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._module = convert(model)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU") -> Onnx2TorchBackend:
        """Convert a model; the converter raises NotImplementedError for operators that it lacks."""
        return cls(model)

    def run(self, inputs: list[Array]) -> list[Any]:
        """The outputs for inputs in the order of the model."""
        outputs = self._module(*map(to_torch, inputs))
        return [to_numpy(y) for y in (outputs if isinstance(outputs, tuple | list) else [outputs])]
