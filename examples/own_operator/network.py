"""A PyTorch module with the operator, and its export: ``python -m examples.own_operator.network model.onnx``."""

from __future__ import annotations

import sys
from typing import Any

import torch
from onnxscript.values import Opset

import onnx_models
from examples.own_operator.leaky_bias import LeakyBias

onnx_models.register_schemas([LeakyBias])  # so that `Opset` knows it


@torch.library.custom_op("mine::leaky_bias", mutates_args=())  # type: ignore[untyped-decorator]
def leaky_bias(x: torch.Tensor, bias: torch.Tensor, slope: float) -> torch.Tensor:
    """Compute the operator in PyTorch by the same function."""
    return torch.from_numpy(LeakyBias(x.detach().numpy(), bias.detach().numpy(), slope=slope))


@leaky_bias.register_fake  # type: ignore[untyped-decorator]
def _(x: Any, bias: Any, slope: float) -> Any:  # noqa: ARG001
    return torch.empty_like(x)


class Network(torch.nn.Module):  # type: ignore[misc]
    """A linear layer whose bias and activation are the operator."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([[1.0, 0.0, -1.0], [2.0, 1.0, 0.0]]))
        self.bias = torch.nn.Parameter(torch.tensor([0.5, -4.0]))

    def forward(self, x: Any) -> Any:
        """Compute [n, 2] from [n, 3]."""
        return leaky_bias(x @ self.weight.T, self.bias, 0.25)


def translation(x: Any, bias: Any, slope: float) -> Any:
    """The node of a model in place of a call of `leaky_bias`."""
    return Opset("mine", 1).LeakyBias(x, bias, slope=slope)


def export(file: str) -> None:
    """Write the module as a model whose input has any number of rows."""
    torch.onnx.export(
        Network().eval(),
        (torch.rand(2, 3),),
        file,
        input_names=["x"],
        output_names=["y"],
        dynamo=True,
        verbose=False,
        external_data=False,
        dynamic_shapes={"x": {0: torch.export.Dim("n")}},
        custom_translation_table={torch.ops.mine.leaky_bias.default: translation},
    )


if __name__ == "__main__":
    export(sys.argv[1])
