# SPDX-License-Identifier: MIT
"""`python -m onnx_models check`: whether the gradients of a model of one's own are right."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray

import ortops
from onnx_models.__main__ import main
from onnx_models.gradient.rules import RULES
from onnx_models.gradient_check import GRADIENTS, Comparison, check

HEADER = '<ir_version: 10, opset_import: ["" : 21, "t" : 1, "ai.onnx.contrib" : 1]>'
RNG = np.random.default_rng(0)
X = RNG.uniform(0.2, 1, (2, 3)).astype(np.float32)
NET = """g (float[n, 3] x, int64[n] i) => (float[n, 2] y, float[n, 3] z, int64[2] s)
    <float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {0, 0}, float[3, 3] table = {1, 2, 3, 4, 5, 6, 7, 8, 9}> {
        k = Constant<value_floats = [0.25, 1.5]>()
        a = MatMul(x, w) c = Add(a, b) d = Mul(c, k) y = Tanh(d)
        e = Gather(table, i) z = Mul(e, x) s = Shape(x) }"""


@ortops.operator(domain="t")
def swish_grad(dy: NDArray[np.float32], x: NDArray[np.float32]) -> NDArray[np.float32]:
    s = 1 / (1 + np.exp(-x))
    return np.asarray(dy * s * (1 + x * (1 - s)), np.float32)


@ortops.operator(domain="t", gradient=swish_grad, shapes=lambda x: x)
def swish(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(x / (1 + np.exp(-x)), np.float32)


@ortops.operator(domain="t")
def almost_grad(dy: NDArray[np.float32], x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(1.02 * swish_grad(dy, x), np.float32)


@ortops.operator(domain="t", gradient=almost_grad, shapes=lambda x: x)
def almost(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return swish(x)  # type: ignore[no-any-return]


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{HEADER} {text}")


def outcomes(found: list[Comparison]) -> dict[tuple[str, str], str]:
    return {(comparison.output, comparison.wrt): comparison.outcome for comparison in found}


def test_right_gradients_of_all_outputs_by_inputs_and_weights_agree() -> None:
    feeds = {"x": X, "i": np.array([2, 0])}
    found = check(parsed(NET), feeds, second_order=True)
    pairs = {(y, x) for y in ("y", "z", GRADIENTS) for x in ("x", "w", "b", "table", "k")}
    zeros = {("y", "table"), ("z", "w"), ("z", "b"), ("z", "k")}  # which the output does not depend on
    assert outcomes(found) == dict.fromkeys(pairs, "agrees") | dict.fromkeys(zeros, "zero")
    assert {comparison.kind for comparison in found} == {"double"}
    assert max(comparison.difference for comparison in found) < 1e-7
    assert all(comparison.allowed < 1e-5 for comparison in found)
    assert any(comparison.analytic != 0 for comparison in found if comparison.output == GRADIENTS)
    chosen = check(parsed(NET), feeds, wrt=["k"], outputs=["y"], seed=1)
    assert outcomes(chosen) == {("y", "k"): "agrees"}
    assert chosen[0].analytic not in {comparison.analytic for comparison in found}


def test_a_loss_and_an_input_of_rank_0_are_compared() -> None:
    model = parsed(
        "g (float a, float[n, 3] x) => (float loss) { y = Mul(a, x) z = Sin(y) loss = ReduceSum<keepdims = 0>(z) }"
    )
    found = check(model, {"a": np.array(0.5, np.float32), "x": X}, second_order=True)
    assert outcomes(found) == {(y, x): "agrees" for y in ("loss", GRADIENTS) for x in ("a", "x")}
    assert all(comparison.analytic != 0 for comparison in found)


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes the rule of an operator wrong by a thousandth."""

    def change(operator: str) -> None:
        rule = RULES["", operator]

        def scaled(graph: Any, node: Any, incoming: Any) -> Any:
            (found, *others) = rule(graph, node, incoming)  # type: ignore[misc]
            return [graph.op("Mul", found, graph.number(1.001, found)), *others]

        monkeypatch.setitem(RULES, ("", operator), scaled)

    return change


def test_a_wrong_second_derivative_is_found(wrong: Callable[[str], None]) -> None:
    wrong("Cos")
    model = parsed("g (float[n, 3] x) => (float[n, 3] y, float[n, 3] z) { y = Sin(x) z = Mul(x, x) }")
    found = check(model, {"x": X}, second_order=True)
    assert outcomes(found) == {("y", "x"): "agrees", ("z", "x"): "agrees", (GRADIENTS, "x"): "wrong"}


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        # What ONNX has in float only gets casts around it.
        (
            """b = Constant<value = float[1, 2, 4] {0, 0, 2, 2, 5, 5, 8, 9}>() m = Constant<value_ints = [9]>()
            r = Reshape(x, t) k = NonMaxSuppression(b, r, m) i = Gather<axis = 1>(k, two) y = Gather<axis = 1>(x, i)""",
            "float[n, 2] x, int64[3] t, int64[1] two",
        ),
        # A function, and this project's operators.
        ("y = LayerNormalization(x, v, v)", "float[n, 3] x, float[3] v"),
        ("y = ai.onnx.contrib.DmlResample<scales = [1.0, 2.5]> (x)", "float[n, 3] x"),
    ],
)
def test_operators_that_are_compared_in_double(body: str, inputs: str) -> None:
    model = parsed(f"g ({inputs}) => (float y) {{ {body} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    x = X[:1, :2] if "NonMax" in body else X
    found = check(model, {"x": x, "v": X[0], "t": np.array([1, 1, 2]), "two": np.array([2])}, wrt=["x"])
    assert [(comparison.outcome, comparison.kind) for comparison in found] == [("agrees", "double")]


def test_kinks_are_told_from_wrong_gradients() -> None:
    model = parsed("g (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }")
    assert outcomes(check(model, {"x": np.zeros((2, 3), np.float32)})) == {("y", "x"): "kink"}
    assert outcomes(check(model, {"x": X})) == {("y", "x"): "agrees"}
    # Many units, of which some change sign within large steps.
    wide = RNG.normal(size=(64, 64)).astype(np.float32)
    assert outcomes(check(model, {"x": wide[:, :3]})) == {("y", "x"): "agrees"}


def test_an_operator_of_a_user_is_checked() -> None:
    text = "g (float[n, 3] x) => (float[n, 3] y) { y = t.NAME(x) }"
    right = check(parsed(text.replace("NAME", "swish")), {"x": X}, operators=[swish, swish_grad])
    assert [(comparison.outcome, comparison.kind) for comparison in right] == [("agrees", "float")]
    wrong = check(parsed(text.replace("NAME", "almost")), {"x": X}, operators=[almost, almost_grad])
    assert [comparison.outcome for comparison in wrong] == ["wrong"]
    assert wrong[0].difference > 2 * wrong[0].allowed


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"wrt": ["tabel"]}, r"wrt has 'tabel' \(table\?\): must be an input, an initializer or a Constant"),
        ({"wrt": ["i"]}, "wrt has 'i': must be an input, an initializer or a Constant of a floating-point type"),
        ({"outputs": ["s"]}, "outputs has 's': must be an output of a floating-point type"),
        ({"feeds": {"i": np.zeros(2, np.int64)}}, "(Required inputs|feeds lack)"),
        ({"feeds": {"x": X, "i": np.array([7, 0])}}, "the model does not run: .*indices element out of data bounds"),
    ],
)
def test_what_cannot_be_compared_is_named(changed: dict[str, Any], message: str) -> None:
    arguments = {"feeds": {"x": X, "i": np.zeros(2, np.int64)}, **changed}
    with pytest.raises(ValueError, match=message):
        check(parsed(NET), **arguments)


def test_a_model_that_draws_random_numbers_is_refused() -> None:
    model = parsed("g (float[n, 3] x) => (float[n, 3] y) { r = RandomUniformLike(x) y = Mul(r, x) }")
    with pytest.raises(ValueError, match="two runs of the model with the same inputs differ"):
        check(model, {"x": X})


# The command.


def call(model: onnx.ModelProto, folder: Path, *options: object, external: bool = False) -> Result:
    onnx.save(model, folder / "model.onnx", save_as_external_data=external, location="weights.bin", size_threshold=0)
    return CliRunner().invoke(main, ["check", str(folder / "model.onnx"), *map(str, options)])


@pytest.mark.parametrize("external", [False, True])
def test_the_command_prints_a_table(tmp_path: Path, external: bool) -> None:
    done = call(parsed(NET), tmp_path, "--dim", "n=2", "--output", "y", external=external)
    lines = done.output.splitlines()
    assert lines[0].split() == ["output", "wrt", "analytic", "numeric", "relative", "difference", "allowed"]
    agree = [line.split()[1] for line in lines if line.endswith("agrees")]
    assert agree == ["x", "w", "b", "k"] or external
    assert lines[-2:] == [
        f"{len(agree)} gradients agree, 1 zero, computed in double",
        "zero: both derivatives are 0 at these inputs; --inputs can give others",
    ]
    assert done.exit_code == 0


def test_the_command_takes_values_of_inputs(tmp_path: Path) -> None:
    np.savez(tmp_path / "feeds.npz", x=X.astype(np.float64), i=np.array([2, 1]))
    done = call(parsed(NET), tmp_path, "--inputs", tmp_path / "feeds.npz", "--wrt", "table", "--second-order")
    assert (done.exit_code, done.output.count("agrees"), done.output.count("zero\n")) == (0, 2, 2)
    np.savez(tmp_path / "feeds.npz", i=np.array([2, 1]))  # which gives x its length
    assert call(parsed(NET), tmp_path, "--inputs", tmp_path / "feeds.npz", "--wrt", "x").exit_code == 0
    seeds = {call(parsed(NET), tmp_path, "--dim", "n=2", "--seed", seed).output for seed in (1, 1, 2)}
    assert len(seeds) == 2


def test_the_command_imports_operators(tmp_path: Path) -> None:
    model = parsed("g (float[2, 3] x) => (float[2, 3] y) { y = t.almost(x) }")
    given = [f"--operators={__name__}:{name}" for name in ("almost", "almost_grad")]
    assert __name__ in sys.modules
    done = call(model, tmp_path, *given)
    assert (done.exit_code, done.output.splitlines()[-1]) == (1, "0 gradients agree, 1 wrong, computed in float")
    done = call(model, tmp_path)
    assert done.exit_code == 2
    assert "operators=[almost]. Nothing is known of node of 'y' (almost)" in done.output
    for name, message in (
        ("nothing", "must be MODULE:NAME"),
        (f"{__name__}:X", "must be an operator made by ortops.operator"),
    ):
        done = call(model, tmp_path, "--operators", name)
        assert done.exit_code == 2
        assert message in done.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "input 'x': the length of axis 0 is open: must be given by --dim n=LENGTH"),
        (["--dim", "m=2"], "--dim m: must be the name of an axis of an input"),
        (["--dim", "n"], "--dim n: must be NAME=LENGTH"),
        (["--dim", "n=2", "--wrt", "tabel"], "wrt has 'tabel' (table?): must be an input"),
        (["--inputs", __file__], "must be a file written by numpy.savez"),
    ],
)
def test_the_command_ends_with_2_if_nothing_was_compared(tmp_path: Path, options: list[str], message: str) -> None:
    done = call(parsed(NET), tmp_path, *options)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


@pytest.mark.parametrize(("value", "outcome"), [(0, "1 at a kink"), (-1, "1 zero")])
def test_a_kink_or_a_zero_everywhere_is_no_success(tmp_path: Path, value: float, outcome: str) -> None:
    np.savez(tmp_path / "feeds.npz", x=np.full((2, 3), value, np.float32))
    model = parsed("g (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }")
    done = call(model, tmp_path, "--inputs", tmp_path / "feeds.npz")
    assert done.exit_code == 2
    assert f"0 gradients agree, {outcome}" in done.output


def test_names_of_inputs_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "feeds.npz", xs=X)
    done = call(parsed(NET), tmp_path, "--inputs", tmp_path / "feeds.npz")
    assert done.exit_code == 2
    assert "--inputs has 'xs'" in done.output


def test_many_rows_are_cut_short_with_the_wrong_ones_first(tmp_path: Path, wrong: Callable[[str], None]) -> None:
    wrong("Sin")
    body = " ".join(f"y{i} = {'Sin' if i == 35 else 'Exp'}(x)" for i in range(40))
    outputs = ", ".join(f"float[2] y{i}" for i in range(40))
    done = call(parsed(f"g (float[2] x) => ({outputs}) {{ {body} }}"), tmp_path)
    lines = done.output.splitlines()
    assert len(lines) == 32
    assert lines[1].split()[:2] == ["y35", "x"]


def test_no_gradient_is_judged_by_an_output_of_nan() -> None:
    model = parsed("""g (float[2, 3] x, bool[2, 3] mask) => (float[2, 3] y) <float low = {-inf}, float zero = {0}> {
        bias = Where(mask, zero, low) kept = Add(x, bias) y = Softmax(kept) }""")
    found = check(model, {"x": X, "mask": np.array([[False] * 3, [True] * 3])})
    assert outcomes(found) == {("y", "x"): "kink"}


@pytest.mark.parametrize(
    "text",
    [
        (
            "float[8, 3] x, bool[8, 3] mask) => (float[8, 3] y) <float low = {-inf}, float o = {0}> { "
            "b = Where(mask, o, low) k = Add(x, b) y = Softmax(k) }"
        ),
        "float[9] x, bool[9] mask) => (float[9] y) <float low = {nan}> { k = Sin(x) y = Where(mask, low, k) }",
        "float[9] x) => (float[9] y) { y = Log(x) }",
        "float[9] x, float[9] z) => (float[9] y) { a = Acosh(x) y = Mul(a, z) }",
        "float[9] x, int64 n) => (float[9] y) { c = CastLike(n, x) y = Div(x, c) }",
    ],
)
def test_the_command_draws_other_inputs_if_an_output_is_not_finite(text: str, tmp_path: Path) -> None:
    done = call(parsed(f"g ({text}"), tmp_path)
    assert (done.exit_code, done.stderr) == (0, "")
    assert " agree" in done.output


@pytest.mark.parametrize(
    "text",
    [
        "float[3, 4] r, int64[3] i) => (float[3, 2, 2, 2] y) { y = RoiAlign <spatial_scale = 0.25, SIZE> (x, r, i) }",
        "float[3, 5] r) => (float[3, 2, 2, 2] y) { y = MaxRoiPool <spatial_scale = 0.25, pooled_shape = [2, 2]> (x, r) }",
        (
            "int64 n, bool c) => (float[1, 2, 8, 9] y) { p = Loop(n, c, x) <body = b (int64 i, bool d, "
            "float[1, 2, 8, 9] a) => (bool e, float[1, 2, 8, 9] q) { e = Identity(d) q = Mul(a, a) }> y = Sub(p, x) }"
        ),
    ],
)
def test_the_command_draws_rois_on_the_map_and_iterations(text: str, tmp_path: Path) -> None:
    text = text.replace("SIZE", "output_height = 2, output_width = 2")
    wrt = ["--wrt", "x", *["--wrt", "r"] * ("RoiAlign" in text)]
    done = call(parsed(f"g (float[1, 2, 8, 9] x, {text}"), tmp_path, *wrt)
    assert (done.exit_code, "zero" in done.output, done.stderr) == (0, False, "")


def test_the_command_says_which_output_is_never_finite(tmp_path: Path) -> None:
    model = parsed("g (float[4] x) => (float[4] y, float[4] z) { r = Abs(x) n = Neg(r) y = Sqrt(n) z = Exp(x) }")
    done = call(model, tmp_path)
    assert done.stderr.startswith(
        "y has 4 numbers that are NaN or infinite, whatever is drawn for x: --inputs can give"
    )
    assert done.output.splitlines()[-1] == "0 gradients agree, 2 at a kink, computed in double"
