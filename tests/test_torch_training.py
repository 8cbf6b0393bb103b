# SPDX-License-Identifier: MIT
"""Modules in training mode: batch statistics and dropout; and modules that are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from torch.nn import functional

import ortops
from onnx_models import with_optimizer
from onnx_models.torch import export
from onnx_models.training import Optimizer
from torch_checks import QUIET, assert_close, run, session

pytestmark = QUIET


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class Residual(torch.nn.Module):  # type: ignore[misc]
    """A small ResNet, with batch normalization of different momenta."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(6)
        self.conv = torch.nn.Conv2d(6, 6, 3, padding=1, bias=False)
        self.other_norm = torch.nn.BatchNorm2d(6, momentum=0.6)
        self.head = torch.nn.Linear(6, 4)
        self.last = torch.nn.BatchNorm1d(4, affine=False, momentum=0.3)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.stem(x)))
        y = torch.relu(y + self.other_norm(self.conv(y)))
        return self.last(self.head(y.mean((2, 3))))


def test_a_residual_net_trains_as_in_pytorch() -> None:
    module = Residual().train()
    shapes = {"x": {0: "N"}, "target": {0: "N"}}
    problem = (torch.randn(5, 3, 6, 7), torch.arange(5) % 4)
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    model = export(
        module,
        problem[:1],
        loss=functional.cross_entropy,
        targets=problem[1:],
        dynamic_shapes=shapes,
        parameters_as_inputs=True,
    )
    for name, buffer in module.named_buffers():
        assert torch.equal(buffer, before[name]), name
    state = {name: tensor.detach().clone() for name, tensor in [*module.named_parameters(), *module.named_buffers()]}
    for images in (4, 6, 3):
        x, target = torch.randn(images, 3, 6, 7), torch.randint(0, 4, (images,))
        outputs = run(model, {"x": x, "target": target, **state})
        module.zero_grad()
        loss = functional.cross_entropy(module(x), target)
        loss.backward()
        assert_close(outputs["loss"], loss, "loss")
        for name, parameter in module.named_parameters():
            parameter.data -= 0.1 * parameter.grad
            state[name] -= 0.1 * torch.from_numpy(outputs[f"{name}_grad"])
            np.testing.assert_allclose(state[name], parameter.detach(), rtol=1e-4, atol=1e-5, err_msg=name)
        for name, buffer in module.named_buffers():
            state[name] = torch.from_numpy(outputs[f"{name}_updated"])
            assert_close(outputs[f"{name}_updated"], buffer, name)


class Norms(torch.nn.Module):  # type: ignore[misc]
    """Buffers changed by layers of other ranks, by name, in place and in a weight's own computation."""

    def __init__(self) -> None:
        super().__init__()
        self.volume = torch.nn.BatchNorm3d(2)
        self.line = torch.nn.BatchNorm1d(2, momentum=0.5)
        self.fixed = torch.nn.BatchNorm1d(2).eval()
        self.linear = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(4, 4))
        self.mean: Any
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Any) -> Any:
        y = self.linear(self.fixed(self.line(self.volume(x).flatten(2))).unflatten(2, x.shape[2:]))
        self.mean = 0.5 * self.mean + y.detach().mean((0, 1, 2, 3))
        self.calls += 1
        return y * self.mean


def test_every_buffer_that_a_module_changes_is_an_output() -> None:
    module = Norms().train()
    module.fixed.eval()
    x = torch.randn(3, 2, 2, 3, 4)
    model = export(
        module, (x,), loss=lambda y: (y - 1).square().sum(), wrt=["x", "linear.parametrizations.weight.original"]
    )
    before = dict(module.named_buffers())
    expected = {name: tensor.clone() for name, tensor in before.items()}
    x.requires_grad_()
    outputs = run(model, {"x": x})
    (module(x) - 1).square().sum().backward()
    assert_close(outputs["x_grad"], x.grad, "x_grad")
    assert_close(
        outputs["linear.parametrizations.weight.original_grad"],
        module.linear.parametrizations.weight.original.grad,
        "weight",
    )
    changed = {name for name, buffer in module.named_buffers() if not torch.equal(buffer, expected[name])}
    assert changed == {name.removesuffix("_updated") for name in outputs if name.endswith("_updated")}
    for name, buffer in module.named_buffers():
        if name in changed:
            np.testing.assert_allclose(outputs[f"{name}_updated"], buffer, rtol=1e-5, atol=1e-6, err_msg=name)


class Twice(torch.nn.Module):  # type: ignore[misc]
    """Layers that are each applied to the same input two times."""

    def __init__(self, *layers: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, *x: Any) -> list[tuple[Any, Any]]:
        return [(layer(tensor), layer(tensor)) for layer, tensor in zip(self.layers, x, strict=True)]


def weighted(outputs: Sequence[Sequence[Any]]) -> Any:
    return sum(first.sum() + 2 * second.sum() for first, second in outputs)


def both(outputs: Mapping[str, Any], i: int) -> tuple[Any, Any]:
    return outputs[f"output_{i}_0"], outputs[f"output_{i}_1"]


LAYERS = (
    # layer, shape, the share of zeros, and how many elements are dropped together
    (torch.nn.Dropout(0.25), (50, 40), 0.25, 1),
    (torch.nn.Dropout(1.0), (50, 40), 1.0, 1),
    (torch.nn.Dropout2d(0.25), (20, 100, 2, 3), 0.25, 6),
    (lambda x: torch.bernoulli(torch.full(x.shape, 0.75)) * x, (50, 40), 0.25, 1),
)


def test_forward_and_gradient_of_dropout_have_one_mask() -> None:
    module = Twice(*(layer for layer, *_ in LAYERS)).train()
    x = {f"x_{i}": torch.rand(shape) + 1 for i, (_, shape, *_) in enumerate(LAYERS)}
    model = export(module, tuple(x.values()), loss=weighted, wrt=list(x))
    runner, names = session(model), [output.name for output in model.graph.output]
    feeds = {name: value.numpy() for name, value in x.items()}
    first, second = (dict(zip(names, runner.run(names, feeds), strict=True)) for _ in range(2))
    for i, (_, _, share, together) in enumerate(LAYERS):
        for outputs in (first, second):
            total = both(outputs, i)[0] + 2 * both(outputs, i)[1]
            np.testing.assert_allclose(outputs[f"x_{i}_grad"] * x[f"x_{i}"].numpy(), total, rtol=1e-5)
            for output in both(outputs, i):
                groups = (output == 0).reshape(-1, together)
                assert (groups.all(1) == groups.any(1)).all()
                assert groups.mean() == pytest.approx(share, abs=0.06)
        if share < 1:
            assert (both(first, i)[0] != both(first, i)[1]).any()
            assert (both(first, i)[0] != both(second, i)[0]).any()


def test_attention_drops_weights_as_well() -> None:
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, batch_first=True).train()
    model = export(layer, (torch.randn(2, 3, 4),), loss=lambda y: y.square().sum())
    assert sum(node.op_type.startswith("Random") for node in model.graph.node) == 4


def ignore(*_: Any) -> None:
    pass


def hook_output(layer: Any, args: Any, output: Any) -> None:  # noqa: ARG001
    output.register_hook(ignore)


HOOKS: tuple[tuple[Callable[[Any, Any], Any], str], ...] = (
    (lambda _, layer: layer.weight.register_hook(ignore), "tensor 'module.0.weight' has a backward hook"),
    (lambda _, layer: layer.register_full_backward_hook(ignore), "module 'module.0' has a backward hook"),
    (lambda _, layer: layer.register_full_backward_pre_hook(ignore), "module 'module.0' has a backward hook"),
    (lambda _, layer: layer.register_forward_hook(hook_output), "the module calls Tensor.register_hook"),
    (lambda x, _: x.register_hook(ignore), "tensor 'input' has a backward hook"),
    (
        lambda *_: torch.nn.modules.module.register_module_full_backward_hook(ignore),
        "all modules have a global backward hook",
    ),
)


@pytest.mark.parametrize(("hook", "message"), HOOKS)
def test_hooks_of_the_gradient_are_refused(hook: Callable[[Any, Any], Any], message: str) -> None:
    layer, x = torch.nn.Linear(4, 4), torch.randn(3, 4, requires_grad=True)
    handle = hook(x, layer)
    try:
        with pytest.raises(ValueError, match=message):
            export(torch.nn.Sequential(layer), (x,), loss=lambda y: y.sum())
    finally:
        handle.remove()


def test_other_changes_are_refused() -> None:
    norm = torch.nn.InstanceNorm2d(3, affine=True, track_running_stats=True).train()
    with pytest.raises(ValueError, match="an InstanceNorm has track_running_stats in training mode"):
        export(norm, (torch.randn(2, 3, 4, 5),), loss=lambda y: y.sum())

    class Loss(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, y: Any) -> Any:
            self.calls += 1
            return y.sum()

    with pytest.raises(ValueError, match=r"the loss changes its buffer 'loss.calls'"):
        export(torch.nn.Linear(4, 4), (torch.randn(3, 4),), loss=Loss())


def test_a_module_too_large_for_a_model_is_refused_before_it_is_traced() -> None:
    linear = torch.nn.Linear(4, 4)
    # Memory that nothing has written to is not taken.
    linear.weight = torch.nn.Parameter(torch.empty(2**29, 1))
    with pytest.raises(ValueError, match="has 2147483664 bytes of parameters and buffers: must be less than 2 GiB"):
        export(linear, (torch.randn(3, 1),), loss=lambda y: y.sum())


def test_what_pieces_need_is_not_left_in_the_model() -> None:
    model: onnx.ModelProto = export(
        torch.nn.Linear(3, 3), (torch.randn(2, 3),), loss=lambda y: functional.logsigmoid(y).sum()
    )
    read = {name for node in model.graph.node for name in node.input} | {value.name for value in model.graph.output}
    assert [node.name for node in model.graph.node if read.isdisjoint(node.output)] == []


SETTINGS: tuple[tuple[Optimizer, dict[str, Any]], ...] = (
    ("sgd", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("adam", {"betas": (0.8, 0.95), "weight_decay": 0.1}),
    ("adamw", {"eps": 1e-6}),
)
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


@pytest.mark.parametrize(
    ("kind", "master_weights"),
    [(torch.float32, False), *((kind, master) for kind in (torch.float16, torch.bfloat16) for master in (False, True))],
)
@pytest.mark.parametrize(("optimizer", "settings"), SETTINGS)
def test_steps_are_those_of_pytorchs_optimizers_on_copies_in_float(
    optimizer: Optimizer, settings: dict[str, Any], kind: Any, master_weights: bool
) -> None:
    dtype = {torch.float32: np.dtype(np.float32), torch.float16: np.dtype(np.float16)}.get(kind, ml_dtypes.bfloat16)
    name = str(kind).removeprefix("torch.").removesuffix("32")
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        net ({name}[3, 4] g, float[4] sum) => ({name}[3, 4] w_grad, float[4] b_grad) {{
            w_grad = Identity (g) b_grad = Identity (sum) }}""")
    copies = {"w": torch.nn.Parameter(torch.randn(3, 4).to(kind).float()), "b": torch.nn.Parameter(torch.zeros(4))}
    for parameter, value in copies.items():
        array = value.detach().numpy().astype(dtype)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, parameter))
    step = with_optimizer(model, optimizer, ["w", "b"], clip=3e-3, master_weights=master_weights, **settings)
    runner, names = session(step), [output.name for output in step.graph.output]
    theirs = OPTIMIZERS[optimizer](copies.values(), lr=0.02, **settings)
    schedule = torch.optim.lr_scheduler.ExponentialLR(theirs, 0.9)
    state: dict[str, Any] = {}
    for _ in range(8):
        gradients = {"g": torch.randn(3, 4).to(kind) / 2048, "sum": torch.randn(4) / 4096}
        feeds = {
            "g": gradients["g"].float().numpy().astype(dtype),
            "sum": gradients["sum"].numpy(),
            "learning_rate": np.array(schedule.get_last_lr()[0], np.float32),
        }
        values = state | {name: ortops.to_ort(array) for name, array in feeds.items()}
        outputs = dict(zip(names, runner.run_with_ort_values(names, values), strict=True))
        state = {name.removesuffix("_next"): value for name, value in outputs.items() if name.endswith("_next")}
        for parameter, gradient in zip(copies.values(), gradients.values(), strict=True):
            parameter.grad = gradient.float()
        torch.nn.utils.clip_grad_norm_(copies.values(), 3e-3)
        theirs.step()
        schedule.step()
        for parameter, copied in copies.items():
            weights = {name: ortops.from_ort(value) for name, value in state.items() if name.startswith(parameter)}
            rounded = copied.detach().to(kind).float()
            rtol = 1e-5 if kind == torch.float32 else 0  # both round to the same number
            np.testing.assert_allclose(weights[parameter].astype(np.float32), rounded, rtol=rtol, atol=rtol / 100)
            if master_weights:
                np.testing.assert_allclose(weights[f"{parameter}_master"], copied.detach(), rtol=1e-5, atol=1e-7)
            elif kind != torch.float32:
                copied.data = rounded
            for slot, value in theirs.state[copied].items():
                if slot != "step":
                    slot_value = weights[f"{parameter}_{slot.removesuffix('_buffer')}"]
                    np.testing.assert_allclose(slot_value, value, rtol=1e-4, atol=1e-9)
