"""grid_sampler and deformable convolutions in models that PyTorch's exporter writes as mmdeploy has it write them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch.onnx import symbolic_helper

import ortops
from conformance.backends.session import CPU, options
from onnx_models import convert

OPSET = 11
"""mmdeploy's."""


@symbolic_helper.parse_args("v", "v", "i", "i", "i")  # type: ignore[untyped-decorator]
def grid_sampler(g: Any, x: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    return g.op(
        "mmdeploy::grid_sampler",
        x,
        grid,
        interpolation_mode_i=interpolation_mode,
        padding_mode_i=padding_mode,
        align_corners_i=align_corners,
    )


@pytest.fixture(autouse=True)
def symbolic() -> Iterator[None]:
    torch.onnx.register_custom_op_symbolic("aten::grid_sampler", grid_sampler, OPSET)
    yield
    torch.onnx.unregister_custom_op_symbolic("aten::grid_sampler", OPSET)


class Sampler(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, mode: str, padding: str, align: bool) -> None:
        super().__init__()
        self.arguments = {"mode": mode, "padding_mode": padding, "align_corners": align}

    def forward(self, x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return 2 * torch.nn.functional.grid_sample(torch.relu(x), grid, **self.arguments)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_an_exported_sampler_gives_what_pytorch_gives(mode: str, padding: str, align: bool) -> None:
    torch.manual_seed(0)
    x, grid = torch.randn(2, 3, 9, 7), 1.5 * torch.randn(2, 5, 4, 2)
    module, file = Sampler(mode, padding, align), io.BytesIO()
    torch.onnx.export(module, (x, grid), file, dynamo=False, opset_version=OPSET, input_names=["x", "grid"])
    model = onnx.load_from_string(file.getvalue())
    assert [node.op_type for node in model.graph.node if node.domain == "mmdeploy"] == ["grid_sampler"]
    feeds = {"x": x.numpy(), "grid": grid.numpy()}
    sessions: list[tuple[Callable[..., Any], onnx.ModelProto]] = [
        (ortops.InferenceSession, model),
        (onnxruntime.InferenceSession, convert(model)),
    ]
    for make, one in sessions:
        (y,) = make(one.SerializeToString(), options(), providers=[CPU]).run(None, feeds)
        np.testing.assert_allclose(y, module(x, grid).numpy(), rtol=1e-4, atol=1e-5)
