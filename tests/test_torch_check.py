"""The comparison of an exported forward pass with the module's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from onnx_models.torch import UncheckedWarning, decompositions, export
from torch_checks import QUIET

pytestmark = QUIET

X = torch.linspace(-2, 2, 12).reshape(4, 3)


class Outputs(torch.nn.Module):  # type: ignore[misc]
    """A linear layer and functions of its result."""

    def __init__(self, **functions: Any) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)
        self.functions = functions

    def forward(self, x: Any) -> dict[str, Any]:
        y = self.norm(self.linear(x))
        return {name: function(y) for name, function in self.functions.items()}


def total(outputs: dict[str, Any]) -> Any:
    return sum(y.square().sum() for y in outputs.values() if y.is_floating_point())


def test_a_wrong_translation_is_named_by_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(decompositions.DECOMPOSITIONS, torch.ops.aten.sinc.default, torch.sin)
    module = Outputs(wrong=torch.sinc).double()
    with pytest.raises(
        ValueError, match=r"output 'output_wrong' .* differs .* by up to [\d.]+, the bound is [\d.]+e-1\d"
    ):
        export(module, (X.double(),), loss=total)
    export(module, (X.double(),), loss=total, check=False)


def test_what_rounding_explains_and_random_numbers_pass() -> None:
    module = Outputs(
        random=lambda y: y * torch.rand(3),
        chaotic=lambda y: (1e6 * y).sin(),
    )
    state, drawn = {name: value.clone() for name, value in module.state_dict().items()}, torch.get_rng_state()
    export(module, (X,), loss=total)
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), drawn)


def test_a_module_with_another_result_at_each_call_is_refused() -> None:
    calls: list[int] = []

    def counting(y: Any) -> Any:
        calls.append(1)
        return y + len(calls)

    with pytest.raises(ValueError, match="output 'output_counted' of the module differs from call to call"):
        export(Outputs(counted=counting), (X,), loss=total)


def test_a_type_without_kernels_is_exported_with_a_warning() -> None:
    module = torch.nn.Conv1d(4, 2, 1, dtype=torch.bfloat16)
    with pytest.warns(UncheckedWarning, match="was not compared with the module's: .*Conv"):
        export(module, (X[None].mT[:, [0, 1, 2, 0]].bfloat16(),), loss=lambda y: y.sum(), opset_version=22)
