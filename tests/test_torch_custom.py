# SPDX-License-Identifier: MIT
"""Operators of ``torch.library`` in exports, by translations of the user's own, and on to a host in C."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnxscript import opset18 as op
from onnxscript.values import Opset

import onnx_models
import ortops
from processes import python
from test_docs import ROOT, Shell, blocks, commands
from torch_checks import QUIET, assert_close

pytestmark = QUIET


@torch.library.custom_op("ortops_tests::swish", mutates_args=())  # type: ignore[untyped-decorator]
def swish(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * torch.sigmoid(factor * x)


@swish.register_fake  # type: ignore[untyped-decorator]
def _(x: Any, factor: float) -> Any:  # noqa: ARG001
    return torch.empty_like(x)


def keep(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG001
    ctx.x, ctx.factor = inputs


def backward(ctx: Any, dy: Any) -> Any:
    s = torch.sigmoid(ctx.factor * ctx.x)
    return dy * (s + ctx.factor * ctx.x * s * (1 - s)), None


swish.register_autograd(backward, setup_context=keep)
SWISH = torch.ops.ortops_tests.swish.default


class Network(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.last(torch.ops.ortops_tests.swish(self.first(x), 1.5))


LOSS, X, TARGET = torch.nn.functional.mse_loss, torch.rand(5, 3), torch.rand(5, 2)


def export(network: Any, **options: Any) -> Any:
    return onnx_models.torch.export(network, (X,), loss=LOSS, targets=(TARGET,), **options)


def assert_gradients(network: Any, session: Any) -> None:
    """A session gives the gradients that PyTorch gives, which has them from `backward`."""
    LOSS(network(X), TARGET).backward()
    parameters = dict(network.named_parameters())
    found = session.run([f"{name}_grad" for name in parameters], {"x": X.numpy(), "target": TARGET.numpy()})
    for (name, parameter), gradient in zip(parameters.items(), found, strict=True):
        assert_close(gradient, parameter.grad, name)


def test_a_translation_to_standard_operators_has_their_gradient() -> None:
    def translation(x: Any, factor: float) -> Any:
        return op.Mul(x, op.Sigmoid(op.Mul(x, op.Constant(value_float=factor))))

    network = Network()
    model = export(network, custom_translation_table={SWISH: translation})
    assert not any(node.domain for node in model.graph.node)
    assert_gradients(network, ortops.InferenceSession(model.SerializeToString()))


def test_a_translation_to_an_operator_in_python_has_the_gradient_that_it_names() -> None:
    @ortops.operator(domain="ortops_tests")
    def SwishGrad(  # noqa: N802
        dy: NDArray[np.float32], x: NDArray[np.float32], *, factor: float
    ) -> NDArray[np.float32]:
        s = 1 / (1 + np.exp(-factor * x))
        return np.asarray(dy * (s + factor * x * s * (1 - s)), np.float32)

    @ortops.operator(domain="ortops_tests", gradient=SwishGrad, shapes=lambda x, factor: x)  # noqa: ARG005
    def Swish(x: NDArray[np.float32], *, factor: float) -> NDArray[np.float32]:  # noqa: N802
        return np.asarray(x / (1 + np.exp(-factor * x)), np.float32)

    def translation(x: Any, factor: float) -> Any:
        return Opset("ortops_tests", 1).Swish(x, factor=factor)

    network, operators = Network(), [Swish, SwishGrad]
    model = export(network, custom_translation_table={SWISH: translation}, operators=operators)
    assert {node.op_type for node in model.graph.node if node.domain} == {"Swish", "SwishGrad"}
    assert_gradients(network, ortops.InferenceSession(model.SerializeToString(), operators=operators))


def test_errors_of_translations_name_the_operator() -> None:
    with pytest.raises(torch.onnx.errors.OnnxExporterError, match=r"No ONNX function found for .*ortops_tests\.swish"):
        export(Network())
    with pytest.raises(TypeError, match=r"has ortops_tests.swish: must be an overload, .* ortops_tests.swish.default"):
        export(Network(), custom_translation_table={torch.ops.ortops_tests.swish: op.Identity})
    with pytest.raises(ValueError, match=r"custom_translation_table has aten.detach.default: must not"):
        export(Network(), custom_translation_table={torch.ops.aten.detach.default: op.Identity})


@pytest.mark.skipif(sys.platform != "linux", reason="its commands are of Linux")
def test_a_host_in_c_gives_what_the_module_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    document = blocks(ROOT / "docs/from_pytorch_to_c.md")
    operator, network, *_ = (block.text for block in document if block.language == "python")
    (library, *_) = (command for block in document if block.language == "console" for command in commands(block.text))
    (tmp_path / "leaky_bias.py").write_text(operator, "utf-8")
    # In a process of its own: PyTorch has one operator of a name, and the document's test may have made it here, too.
    expected = ast.literal_eval(python(network, cwd=tmp_path, PYTHONPATH=str(ROOT)).splitlines()[-1])
    (node,) = (node for node in onnx.load(tmp_path / "model.onnx").graph.node if node.domain)
    assert (node.domain, node.op_type) == ("mine", "LeakyBias")
    assert Shell(tmp_path).run(library[0])[0] == 0
    source = ROOT / "examples/hosts/own_operator.c"
    compiler = ["cc", "-Wall", "-Wextra", "-Werror", str(source), "-o", "host", "-ldl"]
    subprocess.run(compiler, check=True)  # noqa: S603
    (runtime,) = Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    host = ["./host", str(runtime), "./libmine.so", "model.onnx"]
    output = subprocess.run(host, capture_output=True, text=True, check=True).stdout  # noqa: S603
    assert [[float(number) for number in line.split()] for line in output.splitlines()] == expected
