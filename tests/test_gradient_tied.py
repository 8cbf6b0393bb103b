# SPDX-License-Identifier: MIT
"""Parameters that an exporter merged because they were equal: what tells them from shared ones, and their separation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import onnx_models
from gradient_checks import run
from onnx_models.__main__ import main
from onnx_models.gradient import TiedParametersWarning, report
from onnx_models.gradient.tied import find_tied, separate

HEADER = '<ir_version: 10, opset_import: ["" : 21]>'


def model(body: str, initializers: str, inputs: str = "float[n, 4] x") -> onnx.ModelProto:
    text = f"{HEADER} g ({inputs}) => (float loss) <{initializers}> {{ {body} loss = ReduceSum<keepdims = 0>(y) }}"
    return onnx.parser.parse_model(text)


def filled(name: str, value: float, *lengths: int) -> str:
    count = int(np.prod(lengths))
    return f"float{list(lengths)} {name} = {{{', '.join([str(value)] * count)}}}"


def counted(name: str, *lengths: int) -> str:
    count = int(np.prod(lengths))
    return f"float{list(lengths)} {name} = {{{', '.join(str(i / count) for i in range(1, count + 1))}}}"


ONES, ZEROS = filled("one", 1, 4), filled("zero", 0, 4)
TWO = f"{counted('v', 4, 4)}, {counted('w', 4, 4)}"
NORM = "[norm] b = BatchNormalization(x, one, zero, zero, one) y = Mul(b, b)"
NORMS = """a = MatMul(x, v) [first] b = LayerNormalization(a, one, zero)
    c = MatMul(b, w) [second] d = LayerNormalization(c, one, zero) y = Mul(d, x)"""

MERGED: list[tuple[str, str, str, list[str]]] = [
    # nodes, initializers, the parameter, names after separation
    (NORM, f"{ONES}, {ZEROS}", "one", ["one"]),
    (NORM, f"{ONES}, {ZEROS}", "zero", ["zero"]),
    (NORMS, f"{ONES}, {ZEROS}, {TWO}", "one", ["one", "second.Scale"]),
    (NORMS, f"{ONES}, {ZEROS}, {TWO}", "zero", ["zero", "second.B"]),
    ("a = Gemm(x, v, zero) y = Gemm(a, w, zero)", f"{ZEROS}, {TWO}", "zero", ["zero", "y.C"]),
    ("a = Add(x, zero) b = Tanh(a) y = Mul(b, zero)", ZEROS, "zero", ["zero", "y.input_1"]),
    ("i = Identity(one) k = Identity(i) a = Mul(x, i) b = Tanh(a) y = Add(b, k)", ONES, "one", ["one", "y.input_1"]),
    ("a = PRelu(x, p) b = Sub(a, x) y = PRelu(b, p)", filled("p", 0.25, 1), "p", ["p", "y.slope"]),
    ("z = Constant<value_floats = [0.0, 0.0, 0.0, 0.0]>() a = Add(x, z) y = Mul(a, z)", ONES, "z", ["z", "y.input_1"]),
]

HEAD = """a = Conv(x, w, one) b = GroupNormalization<num_groups = 2>(a, one, zero) c = Relu(b)
    d = Conv(z, w, one) e = GroupNormalization<num_groups = 2>(d, one, zero) f = Relu(e)
    g = ReduceSum(c) h = ReduceSum(f) y = Add(g, h)"""
HEADS = "float[n, 3, 8, 8] x, float[n, 3, 4, 4] z"

SHARED: list[tuple[str, str, str, str]] = [
    # nodes, initializers, the parameter, inputs
    ("a = MatMul(x, w) t = Transpose(w) y = MatMul(a, t)", TWO, "w", "float[n, 4] x"),
    ("e = Gather(w, i) t = Transpose(w) y = MatMul(e, t)", TWO, "w", "int64[n] i"),
    (HEAD.replace("one)", "bias)"), f"{counted('w', 4, 3, 1, 1)}, {ZEROS.replace('zero', 'bias')}, {ONES}, {ZEROS}",
     "bias", HEADS),
    (HEAD.replace("one)", "bias)"), f"{counted('w', 4, 3, 1, 1)}, {ZEROS.replace('zero', 'bias')}, {ONES}, {ZEROS}",
     "zero", HEADS),
    ("a = Gemm(x, w, b) y = Gemm(a, w, b)", f"{TWO}, {filled('b', 0, 4)}", "b", "float[n, 4] x"),
    ("a = Add(x, b) c = Tanh(a) y = Mul(c, b)", counted("b", 4), "b", "float[n, 4] x"),
    ("a = PRelu(x, b) c = Tanh(a) y = Mul(c, b)", filled("b", 0.8271, 1), "b", "float[n, 4] x"),
]  # fmt: skip


def warned(call: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        call()
    assert all(warning.category is TiedParametersWarning and warning.filename == __file__ for warning in told)
    return [str(warning.message) for warning in told]


@pytest.mark.parametrize(("body", "initializers", "name", "learned"), MERGED)
def test_a_merged_parameter_is_named_and_separated(body: str, initializers: str, name: str, learned: list[str]) -> None:
    made = model(body, initializers)
    (said,) = warned(lambda: onnx_models.gradient(made, "loss", [name]))
    (line,) = report(made, "loss", [name]).tied
    assert said.endswith(f" gives each layer its own copy. {line}")
    assert line.startswith(f"'{name}' is ")
    untied = report(made, "loss", "parameters", untie=True)
    assert untied.tied == ()
    assert set(learned) <= set(untied.wrt)
    x = np.random.default_rng(0).uniform(1, 2, (3, 4)).astype(np.float32)
    with pytest.warns(TiedParametersWarning):
        before = run(onnx_models.gradient(made, "loss", [name]), {"x": x})
    known = {tensor.name for tensor in made.graph.initializer}
    separate(made.graph, find_tied(made.graph, [name], {}), {}, 21)
    copies = [name, *(tensor.name for tensor in made.graph.initializer if tensor.name not in known)]
    assert len(copies) > 1
    after = run(onnx_models.gradient(made, "loss", copies), {"x": x})
    assert after["loss"] == before["loss"]
    parts = np.array([after[f"{copy}_grad"] for copy in copies])
    np.testing.assert_allclose(parts.sum(axis=0), before[f"{name}_grad"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("body", "initializers", "name", "inputs"), SHARED)
def test_a_shared_parameter_is_left_alone(body: str, initializers: str, name: str, inputs: str) -> None:
    made = model(body, initializers, inputs)
    assert warned(lambda: onnx_models.gradient(made, "loss", [name])) == []
    assert onnx_models.gradient(made, "loss", [name], untie=True) == onnx_models.gradient(made, "loss", [name])


def test_a_shared_head_that_was_merged_with_another_layer_stays_shared() -> None:
    body = HEAD.replace("Conv(x, w, one)", "Conv(k, w, zero)").replace("(z, w, one)", "(z, w, zero)")
    body = f"j = Conv(x, o) [alone] k = InstanceNormalization(j, one, zero) {body}"
    weights = f"{counted('w', 4, 4, 1, 1)}, {counted('o', 4, 4, 1, 1)}, {ONES}, {ZEROS}"
    made = model(body, weights, "float[n, 4, 8, 8] x, float[n, 4, 4, 4] z")
    names = report(made, "loss", "parameters", untie=True).wrt
    assert sorted(names) == ["a.B", "b.bias", "b.scale", "o", "one", "w", "zero"]


@pytest.mark.parametrize(("scope", "count"), [("['', 'norm', 'layer_norm{}']", 0), ("['', 'norm{}', 'layer_norm']", 1)])
def test_the_modules_that_torch_writes_tell_calls_of_one_from_several(scope: str, count: int) -> None:
    made = model(NORMS, f"{ONES}, {ZEROS}, {TWO}")
    for i, node in enumerate(node for node in made.graph.node if node.op_type == "LayerNormalization"):
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scope.format(i))
    assert len(warned(lambda: onnx_models.gradient(made, "loss", ["zero"]))) == count


def test_values_in_another_file_count_if_they_have_one_axis() -> None:
    made = model(
        "[n] k = BatchNormalization(x, one, zero, zero, one) a = MatMul(k, v) y = MatMul(a, v)",
        f"{ONES}, {ZEROS}, {TWO}",
    )
    for tensor in made.graph.initializer:
        tensor.ClearField("float_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=f"{tensor.name}.bin")
    (said,) = warned(lambda: onnx_models.gradient(made, "loss", "parameters"))
    assert "'one' is scale of node 'n'" in said
    assert "'v'" not in said
    untied = onnx_models.gradient(made, "loss", "parameters", untie=True)
    (copy,) = (tensor for tensor in untied.graph.initializer if tensor.name == "n.input_mean")
    assert (
        copy.external_data == next(tensor for tensor in made.graph.initializer if tensor.name == "zero").external_data
    )


FRESH = model(NORM, f"{ONES}, {ZEROS}")
CALLS: dict[str, Callable[..., onnx.ModelProto]] = {
    "gradient": lambda **more: onnx_models.gradient(FRESH, "loss", ["zero"], **more),
    "vjp": lambda **more: onnx_models.vjp(FRESH, ["y"], ["zero"], **more),
    "jvp": lambda **more: onnx_models.jvp(FRESH, ["y"], ["zero"], **more),
    "jacobian": lambda **more: onnx_models.jacobian(FRESH, ["y"], ["zero"], **more),
    "hessian": lambda **more: onnx_models.hessian(FRESH, "loss", ["zero"], **more),
    "a product": lambda **more: onnx_models.hessian(FRESH, "loss", ["zero"], vector=True, **more),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_derivative_warns_once_and_can_be_untied(name: str) -> None:
    told: list[str] = warned(lambda: check_caller(CALLS[name]))
    assert told == []
    with pytest.warns(TiedParametersWarning, match="'zero' is B of node 'norm' .*, input_mean of") as said:
        CALLS[name]()
    assert len(said) == 1


def check_caller(call: Callable[..., onnx.ModelProto]) -> None:
    call(untie=True)


def test_an_optimizer_warns_and_has_a_state_for_each_separated_parameter() -> None:
    made = model(NORMS, f"{ONES}, {ZEROS}, {TWO}")
    with pytest.warns(TiedParametersWarning):
        tied = onnx_models.gradient(made, "loss", "parameters")
    (said,) = warned(lambda: onnx_models.with_optimizer(tied, "sgd", momentum=0.5))
    assert "'zero' is B of node 'first' (LayerNormalization), B of node 'second' (LayerNormalization)" in said
    untied = onnx_models.gradient(made, "loss", "parameters", untie=True)
    step = onnx_models.with_optimizer(untied, "sgd", momentum=0.5)
    assert {"zero_next", "zero_momentum_next", "second.B_next", "second.B_momentum_next"} <= {
        value.name for value in step.graph.output
    }


def test_the_command_says_what_is_tied_and_unties(tmp_path: Path) -> None:
    path, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    onnx.save(FRESH, path)
    arguments = ["gradient", str(path), "--wrt", "parameters"]
    shown = CliRunner().invoke(main, [*arguments, "--dry-run"]).output
    assert "tied: 'zero' is B of node 'norm' (BatchNormalization), input_mean of node 'norm'" in shown
    assert "--untie gives each layer its own copy\n" in shown
    assert "tied" not in CliRunner().invoke(main, [*arguments, "--dry-run", "--untie"]).output
    assert (
        "warning: one tensor stands for several parameters"
        in CliRunner().invoke(main, [*arguments, "--out", str(out)]).output
    )
    assert CliRunner().invoke(main, [*arguments, "--untie", "--out", str(out)]).output == f"2 gradients added: {out}\n"
    assert "norm.input_mean" in {tensor.name for tensor in onnx.load(out).graph.initializer}
