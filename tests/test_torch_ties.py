"""Parameters with equal values, which PyTorch's exporter merges, stay apart in what `onnx_models.torch.export` returns."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from onnx_models import with_optimizer
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
