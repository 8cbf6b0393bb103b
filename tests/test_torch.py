# SPDX-License-Identifier: MIT
"""PyTorch modules exported with their gradients, against PyTorch's own; and the comparison of the forward passes."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch.nn import functional

import torchvision_operators  # noqa: F401 - torchvision's operators, compiled or not
from onnx_models.torch import UncheckedWarning, decompositions, export, translation_table
from ortops.torch import PSRoIAlign, RoIAlignRotated, ms_deform_attn, roi_align
from torch_checks import QUIET, assert_close, run, session

pytestmark = QUIET


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def random_rois(count: int, images: int, height: int, width: int) -> Any:
    """RoIs [K, 5] as torchvision takes them, some of them partly off a map of this size."""
    corners = torch.rand(count, 2, 2) * torch.tensor([width * 1.1, height * 1.1])
    low, high = corners.amin(1), corners.amax(1)
    return torch.cat([torch.randint(0, images, (count, 1)).float(), low, high], 1)


def check(
    model: onnx.ModelProto, module: Any, loss: Any, args: Mapping[str, Any], targets: Mapping[str, Any]
) -> dict[str, Any]:
    """Loss and gradients of parameters and floating-point arguments are PyTorch's; return what the model has computed."""
    outputs = run(model, {**args, **targets})
    inputs = {name: value.detach().clone() for name, value in args.items()}
    tensors = dict(module.named_parameters())
    for name, value in inputs.items():
        if f"{name}_grad" in outputs:
            tensors[name] = value.requires_grad_()
    expected = loss(module(*inputs.values()), *targets.values())
    expected.backward()
    assert_close(outputs["loss"], expected, "loss")
    gradients = {f"{name}_grad": tensor.grad for name, tensor in tensors.items() if f"{name}_grad" in outputs}
    assert gradients
    for name, gradient in gradients.items():
        assert_close(outputs[name], gradient, name)
    module.zero_grad()
    return outputs


class Head(torch.nn.Module):  # type: ignore[misc]
    """Convolution, RoiAlign, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.linear = torch.nn.Linear(6 * 4 * 3, 5)

    def forward(self, x: Any, rois: Any) -> Any:
        return self.linear(roi_align(torch.relu(self.conv(x)), rois, (4, 3), 0.5).flatten(1))


def squares(y: Any) -> Any:
    return y.square().sum()


def head_problem(images: int, height: int, width: int, rois: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments and targets of a Head."""
    args = {"x": torch.randn(images, 3, height, width), "rois": random_rois(rois, images, height, width)}
    return args, {"target": torch.randint(0, 5, (rois,))}


TRACED = (2, 21, 26, 7)


def test_a_head_with_roi_align_has_pytorchs_gradients_at_any_shape() -> None:
    module = Head()
    args, targets = head_problem(*TRACED)
    model = export(
        module,
        tuple(args.values()),
        loss=functional.cross_entropy,
        targets=tuple(targets.values()),
        wrt=["x", "rois", *dict(module.named_parameters())],
        dynamic_shapes={"x": {0: "N", 2: "H", 3: "W"}, "rois": {0: "R"}, "target": {0: "R"}},
    )
    assert [node.op_type for node in model.graph.node if "Roi" in node.op_type] == ["RoiAlign", "RoiAlignGrad"]
    for shape in (TRACED, (1, 9, 40, 1)):
        check(model, module, functional.cross_entropy, *head_problem(*shape))


class Recurrent(torch.nn.Module):  # type: ignore[misc]
    """Two recurrent layers and a classifier of the last state."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.linear = torch.nn.GRU(8, 12, num_layers=2, batch_first=True), torch.nn.Linear(12, 5)

    def forward(self, x: Any) -> Any:
        return self.linear(self.layers(x)[0][:, -1])


@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")  # of PyTorch, about its own layers
def test_recurrent_layers_of_open_batches_have_pytorchs_gradients() -> None:
    module, x, target = Recurrent(), torch.randn(6, 4, 8), torch.arange(6) % 5
    wrt = ["x", *dict(module.named_parameters())]
    shapes = {"x": {0: "N"}, "target": {0: "N"}}
    model = export(module, (x,), loss=functional.cross_entropy, targets=(target,), wrt=wrt, dynamic_shapes=shapes)
    for count in (6, 3):
        check(model, module, functional.cross_entropy, {"x": x[:count]}, {"target": target[:count]})


class Odd(torch.nn.Module):  # type: ignore[misc]
    """One parameter with two names, one that is not used, one that is frozen, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.unused = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
        self.frozen = torch.nn.Parameter(torch.ones(4), requires_grad=False)
        self.register_buffer("scale", torch.full((4,), 2.0))
        # Equal values that the exporter's optimizer would make one.
        self.left, self.right = torch.nn.Parameter(torch.ones(4)), torch.nn.Parameter(torch.ones(4))

    def forward(self, pair: Sequence[Any], factor: float) -> dict[str, Any]:
        t, other = pair
        y = self.second(torch.tanh(self.first(t) * self.scale)) * self.left + self.frozen * self.right
        return {"y": y.tanh(), "other": other * factor}


def odd_loss(outputs: dict[str, Any]) -> Any:
    return (outputs["y"].square().sum(1, keepdim=True) + outputs["other"]).sum().reshape(1, 1)


def test_names_are_pytorchs_and_every_parameter_has_its_own_gradient() -> None:
    module = Odd()
    pair = [torch.randn(3, 4), torch.randn(3, 1)]
    trainable = ["first.weight", "first.bias", "second.bias", "unused", "left", "right"]
    model = export(module, (pair, 0.5), loss=odd_loss)
    assert [value.name for value in model.graph.input] == ["pair_0", "pair_1"]
    names = ["output_y", "output_other", "loss"]
    assert [value.name for value in model.graph.output][:3] == names
    assert {value.name for value in model.graph.output} == {*names, *(f"{name}_grad" for name in trainable)}
    outputs = run(model, {"pair_0": pair[0], "pair_1": pair[1]})
    odd_loss(module(pair, 0.5)).sum().backward()
    for name in trainable:
        gradient = module.get_parameter(name).grad
        assert_close(outputs[f"{name}_grad"], torch.zeros(2).double() if gradient is None else gradient, name)
    assert not any(value.doc_string or value.metadata_props for value in (model.graph, *model.graph.node))


def test_buffers_frozen_parameters_and_inputs_can_be_named(tmp_path: Path) -> None:
    module, pair = Odd(), [torch.randn(3, 4).requires_grad_(), torch.randn(3, 1)]
    path = tmp_path / "odd.onnx"
    model = export(module, (pair, 0.5), loss=odd_loss, wrt=["scale", "pair_0", "frozen"], path=path)
    assert onnx.load(path) == model
    outputs = run(model, {"pair_0": pair[0], "pair_1": pair[1]})
    module.scale.requires_grad_()
    module.frozen.requires_grad_()
    odd_loss(module(pair, 0.5)).sum().backward()
    for name, tensor in (("scale", module.scale), ("pair_0", pair[0]), ("frozen", module.frozen)):
        assert_close(outputs[f"{name}_grad"], tensor.grad, name)


class Detached(torch.nn.Module):  # type: ignore[misc]
    """Every surrogate to end a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        with torch.no_grad():
            weights = torch.sigmoid(self.linear(y)) + y.exp()
        in_place = torch.tanh(y).detach_()
        return y.sin() * y.sigmoid().detach() * weights * in_place, y.detach()


def test_no_gradient_passes_what_is_detached() -> None:
    module, x = Detached(), torch.randn(3, 4)

    def loss(outputs: Any) -> Any:
        return (outputs[0] + outputs[1]).square().sum()

    with torch.no_grad():
        model = export(module, (x,), loss=loss, wrt=["x", "linear.weight"], opset_version=21)
    check(model, module, loss, {"x": x}, {})


class OfTorchvision(torch.nn.Module):  # type: ignore[misc]
    """torchvision's RoIAlign."""

    def forward(self, x: Any, rois: Any) -> Any:
        return torch.ops.torchvision.roi_align(x, rois, 0.5, 4, 3, 2, True)


def test_rois_of_torchvision_have_a_gradient_only_where_it_is_asked_for() -> None:
    args, _ = head_problem(*TRACED)
    outputs = {}
    for through_rois in (False, True):
        model = export(
            OfTorchvision(), tuple(args.values()), loss=squares, wrt=["rois", "x"], through_rois=through_rois
        )
        outputs[through_rois] = run(model, args)
    assert not outputs[False]["rois_grad"].any()
    np.testing.assert_array_equal(outputs[True]["x_grad"], outputs[False]["x_grad"])
    rois = args["rois"].requires_grad_()
    squares(roi_align(args["x"], rois, (4, 3), 0.5, 2, True)).backward()
    assert_close(outputs[True]["rois_grad"], rois.grad, "rois_grad")


@pytest.mark.parametrize("module", [PSRoIAlign((2, 3), 0.9, -1), RoIAlignRotated((2, 3), 0.9, clockwise=True)])
def test_a_layer_becomes_the_operator_of_its_name(module: Any) -> None:
    name, rois = type(module).__name__, random_rois(4, 2, 7, 8)
    if name == "RoIAlignRotated":
        rois = torch.cat([rois, torch.randn(4, 1)], 1)
    args = {"input": torch.randn(2, 12, 7, 8), "rois": rois}

    def loss(y: Any) -> Any:
        return y.square().sum()

    model = export(module, tuple(args.values()), loss=loss, wrt=["input", "rois"])
    assert [node.op_type for node in model.graph.node if name in node.op_type] == [name, f"{name}Grad"]
    assert {"input_grad", "rois_grad"} <= set(check(model, module, loss, args, {}))


class Attention(torch.nn.Module):  # type: ignore[misc]
    """Deformable attention over two levels."""

    def __init__(self, starts: Any) -> None:
        super().__init__()
        self.starts = starts

    def forward(self, value: Any, locations: Any, weights: Any) -> Any:
        return ms_deform_attn(value, torch.tensor([[3, 4], [2, 1]]), self.starts, locations, weights)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("starts", [None, torch.tensor([2, 0])], ids=["without starts", "with starts"])
@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "TorchScript"])
def test_both_exporters_of_pytorch_write_deformable_attention_as_one_node(dynamo: bool, starts: Any) -> None:
    args = torch.rand(2, 14, 2, 3), torch.rand(2, 5, 2, 2, 3, 2), torch.rand(2, 5, 2, 2, 3)
    module, file = Attention(starts).eval(), io.BytesIO()
    if dynamo:
        table = translation_table()
        torch.onnx.export(module, args, dynamo=True, verbose=False, custom_translation_table=table).save(file)
    else:
        torch.onnx.export(module, args, file, dynamo=False)
    model = onnx.load_from_string(file.getvalue())
    assert [node.op_type for node in model.graph.node if node.op_type != "Constant"] == ["MSDeformAttn"]
    names = [value.name for value in model.graph.input]
    (y,) = session(model).run(None, dict(zip(names, (arg.numpy() for arg in args), strict=True)))
    assert_close(y, module(*args), "y")


def test_attention_becomes_two_nodes_with_pytorchs_gradients() -> None:
    args = {
        "value": torch.rand(2, 14, 2, 3),
        "locations": torch.rand(2, 5, 2, 2, 3, 2),
        "weights": torch.rand(2, 5, 2, 2, 3),
    }
    module = Attention(torch.tensor([2, 0]))
    model = export(module, tuple(args.values()), loss=squares, wrt=list(args))
    assert [node.op_type for node in model.graph.node if "Attn" in node.op_type] == ["MSDeformAttn", "MSDeformAttnGrad"]
    check(model, module, squares, args, {})


class Unready(torch.nn.Module):  # type: ignore[misc]
    """With one kind of trouble for each method of export's errors."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: Any) -> Any:
        return self.norm(self.linear(x))


def total(y: Any) -> Any:
    return y.sum()


ERRORS: tuple[tuple[dict[str, Any], type[Exception], str], ...] = (
    ({"opset_version": 17}, ValueError, "opset_version = 17: must be 18 or later"),
    ({"args": torch.ones(3, 4)}, TypeError, "args is of type Tensor: must be a tuple or a list"),
    ({"loss": None}, ValueError, r"the loss has shape \(3, 4\): must have one element"),
    ({"loss": lambda y: y.sum().long()}, TypeError, "the loss is of type torch.int64: must be a floating-point tensor"),
    ({"loss": lambda y: float(y.shape[0])}, TypeError, "the loss is of type float: must be a floating-point tensor"),
    ({"loss": None, "targets": (torch.ones(1),)}, ValueError, "targets are given without a loss"),
    ({"wrt": ["linear.wait"]}, ValueError, "wrt has 'linear.wait': must be one of x, .*linear.weight"),
    ({"wrt": ["x", "x"]}, ValueError, "must be one or more different names"),
    ({"wrt": []}, ValueError, "must be one or more different names"),
    ({"wrt": ["norm.num_batches_tracked"]}, ValueError, "'norm.num_batches_tracked' of type torch.int64"),
    ({"dynamic_shapes": {"y": {0: "N"}}}, ValueError, "dynamic_shapes has 'y': must be one of x"),
    ({"loss": lambda y, x: (y * x).sum(), "targets": (torch.ones(1),)}, ValueError, "two inputs have the name 'x'"),
    # PyTorch's own errors.
    ({"loss": lambda y: torch.special.gammainc(y, y).sum()}, torch.onnx.errors.OnnxExporterError, "igamma"),
    ({"loss": lambda y: y.sum() if y.max() > 0 else y.max()}, RuntimeError, "data-dependent expression"),
)


@pytest.mark.parametrize(("arguments", "kind", "message"), ERRORS)
def test_errors(arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        export(**{"module": Unready().eval(), "args": (torch.randn(3, 4),), "loss": total, **arguments})


def test_the_error_of_a_module_without_parameters_names_a_remedy() -> None:
    class Square(torch.nn.Module):  # type: ignore[misc]
        def forward(self, places: Any, x: Any) -> Any:
            return x[places].square().sum()

    args = torch.tensor([0, 2]), torch.ones(3)
    with pytest.raises(ValueError, match=r"must have a parameter that requires a gradient; .* as in wrt=") as caught:
        export(Square(), args)
    model = export(Square(), args, wrt=ast.literal_eval(str(caught.value).rpartition("wrt=")[2]))
    assert run(model, {"places": args[0], "x": args[1]})["x_grad"].tolist() == [2, 0, 2]


class StraightThrough(torch.autograd.Function):  # type: ignore[misc]
    """Rounding with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:  # noqa: ARG004
        return x.round()

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:  # noqa: ARG004
        return dy


def test_a_gradient_that_would_be_lost_is_refused() -> None:
    with pytest.raises(ValueError, match="the module uses StraightThrough, a torch"):
        export(Unready().eval(), (torch.randn(3, 4),), loss=lambda y: StraightThrough.apply(y).sum())
    assert StraightThrough.apply(torch.ones(1)) == 1


def test_the_packages_are_imported_when_they_are_named() -> None:
    code = """
import sys
import onnx_models, ortops
assert "torch" not in sys.modules
for missing in ("torch", "onnxscript"):
    sys.modules[missing] = None
    for package in (onnx_models, ortops):
        try:
            package.torch
        except ImportError as error:
            print(error)
    del sys.modules[missing]
print(onnx_models.torch.export.__name__, ortops.torch.roi_align.__name__, "torch" in sys.modules)
print(hasattr(onnx_models, "touch"), hasattr(ortops, "touch"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)  # noqa: S603
    *refused, imported, touched = done.stdout.splitlines()
    assert len(refused) == 3
    assert [line.partition("pip install ")[2] for line in refused] == ["torch onnxscript", "torch", "torch onnxscript"]
    assert (imported, touched) == ("export roi_align True", "False False")


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


def squares_of_floats(outputs: dict[str, Any]) -> Any:
    return sum(y.square().sum() for y in outputs.values() if y.is_floating_point())


def test_a_wrong_translation_is_named_by_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(decompositions.DECOMPOSITIONS, torch.ops.aten.sinc.default, torch.sin)
    module = Outputs(wrong=torch.sinc).double()
    with pytest.raises(
        ValueError, match=r"output 'output_wrong' .* differs .* by up to [\d.]+, the bound is [\d.]+e-1\d"
    ):
        export(module, (X.double(),), loss=squares_of_floats)
    export(module, (X.double(),), loss=squares_of_floats, check=False)


def test_what_rounding_explains_and_random_numbers_pass() -> None:
    module = Outputs(
        random=lambda y: y * torch.rand(3),
        chaotic=lambda y: (1e6 * y).sin(),
    )
    state, drawn = {name: value.clone() for name, value in module.state_dict().items()}, torch.get_rng_state()
    export(module, (X,), loss=squares_of_floats)
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), drawn)


def test_a_module_with_another_result_at_each_call_is_refused() -> None:
    calls: list[int] = []

    def counting(y: Any) -> Any:
        calls.append(1)
        return y + len(calls)

    with pytest.raises(ValueError, match="output 'output_counted' of the module differs from call to call"):
        export(Outputs(counted=counting), (X,), loss=squares_of_floats)


def test_a_type_without_kernels_is_exported_with_a_warning() -> None:
    module = torch.nn.Conv1d(4, 2, 1, dtype=torch.bfloat16)
    with pytest.warns(UncheckedWarning, match="was not compared with the module's: .*Conv"):
        export(module, (X[None].mT[:, [0, 1, 2, 0]].bfloat16(),), loss=lambda y: y.sum(), opset_version=22)
