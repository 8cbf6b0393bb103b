# SPDX-License-Identifier: MIT
"""What PyTorch's exporters make of parameters: which `wrt="parameters"` selects, and those of equal values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional

import onnx_models
from onnx_models import with_optimizer
from onnx_models.gradient import report
from onnx_models.gradient.tied import TiedParametersWarning
from onnx_models.torch import export
from torch_checks import QUIET, assert_close, run

pytestmark = QUIET


class Layers(nn.Module):  # type: ignore[misc]
    """Normalizations with and without a learned scale and bias, numbers of activations, and a learned factor."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(4, 8), nn.GroupNorm(1, 8), nn.GroupNorm(8, 8), nn.BatchNorm2d(8)])
        self.norms += [nn.InstanceNorm2d(8, affine=True), nn.InstanceNorm2d(8), nn.BatchNorm2d(8, affine=False)]
        self.norms += [nn.GroupNorm(4, 8, affine=False), nn.PReLU(), nn.Hardswish()]
        self.layers = nn.ModuleList([nn.LayerNorm(8), nn.LayerNorm(8, bias=False), nn.GELU("tanh"), nn.GELU()])
        self.layers += [nn.LayerNorm(8, elementwise_affine=False), nn.Linear(8, 3)]
        self.factor = nn.Parameter(torch.tensor([0.3]))

    def forward(self, x: Any) -> Any:
        for norm in self.norms:
            x = torch.tanh(norm(x))
        x = x.mean((2, 3)) * self.factor
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Attentions(nn.Module):  # type: ignore[misc]
    """Attentions with masks, and one in windows with a learned bias of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.positions = nn.Parameter(torch.zeros(2, 5, 5))
        self.register_buffer("windows", torch.tensor([0.0, -100.0])[torch.ones(5, 5).tril().long()])

    def forward(self, x: Any) -> Any:
        causal = nn.Transformer.generate_square_subsequent_mask(5)
        y = self.encoder(x, src_mask=causal, is_causal=False)
        y = self.attention(y, y, y, attn_mask=causal)[0].reshape(2, 5, 2, 4).transpose(1, 2)
        return torch.softmax((y * 4**-0.5) @ y.transpose(-1, -2) + self.positions + self.windows, -1) @ y


class Noted(nn.Module):  # type: ignore[misc]
    """What only the newer exporter's notes tell: a learned factor of rank 0, and a table that is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, norm_first=True)
        self.norm, self.factor = nn.RMSNorm(8), nn.Parameter(torch.tensor(1.0))
        self.register_buffer("table", torch.arange(40.0).reshape(5, 8).sin())

    def forward(self, x: Any) -> Any:
        causal = nn.Transformer.generate_square_subsequent_mask(5)
        y = self.decoder(x + self.table, x, tgt_mask=causal, tgt_is_causal=False)
        return functional.gelu(self.norm(y), approximate="tanh") * self.factor


def by_dynamo(module: Any, x: Any, path: Path) -> None:
    torch.onnx.export(module, (x,), path, dynamo=True, verbose=False, output_names=["y"])


def by_torch_script(module: Any, x: Any, path: Path) -> None:
    torch.onnx.export(module, (x,), path, dynamo=False, output_names=["y"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(
    ("kind", "shape", "export"),
    [
        (Layers, (2, 8, 4, 4), by_dynamo),
        (Layers, (2, 8, 4, 4), by_torch_script),
        (Attentions, (2, 5, 8), by_dynamo),
        (Attentions, (2, 5, 8), by_torch_script),
        (Noted, (2, 5, 8), by_dynamo),
    ],
)
def test_what_is_selected_are_the_parameters_of_the_module(
    kind: type[Any], shape: tuple[int, ...], export: Callable[[Any, Any, Path], None], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    module = kind().eval()
    parameters = {name: tensor.detach() for name, tensor in module.named_parameters()}
    for tensor in parameters.values():
        tensor.add_(torch.randn_like(tensor), alpha=0.125)  # exporters merge fresh ones, since they are equal
    export(module, torch.randn(shape), tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    model.graph.node.append(onnx.helper.make_node("ReduceSum", ["y"], ["loss"], keepdims=0))
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    selected = report(model, "loss", "parameters").wrt
    # Exporters transpose and rename weights.
    wanted = {name: np.sort(tensor.numpy(), axis=None).tolist() for name, tensor in parameters.items()}
    found = [np.sort(values[name], axis=None).tolist() for name in selected]
    assert {name for name, value in wanted.items() if value not in found} == set()
    assert {name for name, value in zip(selected, found, strict=True) if value not in wanted.values()} == set()


class Fresh(torch.nn.Module):  # type: ignore[misc]
    """As layers are made: scales of ones, biases and means of zeros; and two linear layers of the same values."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.before, self.after = torch.nn.LayerNorm(4), torch.nn.LayerNorm(4)
        self.left, self.right = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.right.load_state_dict(self.left.state_dict())

    def forward(self, x: Any) -> Any:
        y = self.norm(torch.tanh(self.conv(x))).mean((2, 3))
        y = self.left(self.before(y)) + torch.sigmoid(self.right(y * y))
        return (self.after(y) ** 3 + y).sum()


def problem() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return Fresh().eval(), torch.randn(2, 1, 5, 5)


@pytest.mark.parametrize("as_inputs", [False, True])
def test_equal_parameters_have_their_own_gradients(as_inputs: bool) -> None:
    module, x = problem()
    model = export(module, (x,), parameters_as_inputs=as_inputs)
    parameters = dict(module.named_parameters())
    read = {name for node in model.graph.node for name in node.input}
    assert read >= set(parameters)
    found = run(model, {"x": x})
    module(x).backward()
    for name, parameter in parameters.items():
        assert_close(found[f"{name}_grad"], parameter.grad, name)


def by_stock_exporter(module: Any, x: Any) -> Any:
    options = {"dynamo": True, "verbose": False, "opset_version": 18}
    program = torch.onnx.export(module, (x,), input_names=["x"], output_names=["loss"], **options)
    return program.model_proto


LAYERS = {
    "node__native_batch_norm_legit_no_training__0": "norm",
    "node_layer_norm": "before",
    "node_layer_norm_1": "after",
}
INPUTS = {"Scale": "weight", "B": "bias", "input_mean": "running_mean", "input_var": "running_var"}


def test_what_the_stock_exporter_has_merged_is_untied() -> None:
    module, x = problem()
    model = by_stock_exporter(module, x)
    assert len(model.graph.initializer) < len(list(module.parameters()))
    module(x).backward()
    with pytest.warns(
        TiedParametersWarning, match=r"'norm.weight' is .* of node 'node_layer_norm' \(LayerNormalization\)"
    ):
        tied = run(onnx_models.gradient(model, "loss", "parameters"), {"x": x})
    untied = run(onnx_models.gradient(model, "loss", "parameters", untie=True), {"x": x})
    for parameter in ("weight", "bias"):
        wanted = {layer: getattr(getattr(module, layer), parameter).grad for layer in LAYERS.values()}
        found = {"norm": untied[f"norm.{parameter}_grad"]}
        for name, value in untied.items():
            node, _, kind = name.removesuffix("_grad").partition(".")
            if node in LAYERS and INPUTS[kind] == parameter:
                found[LAYERS[node]] = value
        for layer, gradient in wanted.items():
            assert_close(found[layer], gradient, f"{layer}.{parameter}")
            assert abs(tied[f"norm.{parameter}_grad"] - gradient.numpy()).max() > 0.1


def test_what_has_its_own_gradients_is_not_called_tied() -> None:
    class Shared(torch.nn.Module):  # type: ignore[misc]
        """One fresh LayerNorm, and one fresh parameter, for two layers."""

        def __init__(self) -> None:
            super().__init__()
            self.norm, self.first, self.last = torch.nn.LayerNorm(4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            self.scale = torch.nn.Parameter(torch.ones(4))

        def forward(self, x: Any) -> Any:
            y = self.norm(self.first(x) * self.scale)
            return self.norm(self.last(y * self.scale)).pow(3).sum()

    model = export(Shared(), (torch.rand(2, 4),))
    onnx_models.gradient(model, "loss", {"norm.weight": "again"})
    with_optimizer(model, "sgd")
