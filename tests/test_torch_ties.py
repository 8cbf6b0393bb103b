"""Parameters with equal values, which PyTorch's exporter merges: kept apart by `onnx_models.torch.export`, or untied."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import onnx_models
from onnx_models import with_optimizer
from onnx_models.gradient.tied import TiedParametersWarning
from onnx_models.torch import export
from torch_checks import QUIET, assert_close, run, session

pytestmark = QUIET


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


def test_equal_parameters_are_trained_apart() -> None:
    module, x = problem()
    step = session(with_optimizer(export(module, (x,)), "sgd"))
    names = [value.name for value in step.get_outputs()]
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02)
    state: dict[str, Any] = {}
    for _ in range(3):
        values = step.run(names, {"x": x.numpy(), "learning_rate": torch.tensor(0.02).numpy(), **state})
        found = dict(zip(names, values, strict=True))
        state = {name.removesuffix("_next"): value for name, value in found.items() if name.endswith("_next")}
        optimizer.zero_grad()
        loss = module(x)
        loss.backward()
        optimizer.step()
        assert_close(found["loss"], loss, "loss")
    for name, parameter in module.named_parameters():
        assert_close(state[name], parameter, name)


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
