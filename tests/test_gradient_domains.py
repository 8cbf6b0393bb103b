"""Gradients through operators of ai.onnx.ml, through ONNX Runtime's fused nodes, and where shape inference finds no rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from gradient_checks import Array, check, of_sum, parsed, run, with_loss
from onnx_models import convert
from onnx_models.gradient import ZeroGradientWarning, gradient

HEADER = '<ir_version: 10, opset_import: ["" : 18, "ai.onnx.ml" : 3, "com.microsoft" : 1]>'


def weights(**shapes: tuple[int, ...]) -> list[onnx.TensorProto]:
    rng = np.random.default_rng(3)
    return [
        onnx.numpy_helper.from_array(rng.uniform(-1, 1, shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]


def with_weights(text: str, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    made = parsed(f"{HEADER} {text}")
    made.graph.initializer.extend(weights(**shapes))
    return made


def drawn(*shape: int) -> Array:
    return np.random.default_rng(5).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("imputed", ["[0.0]", "[0.0, 0.0]"])
def test_a_value_that_is_imputed_has_no_gradient_whatever_its_derivative(imputed: str) -> None:
    replace = f"ai.onnx.ml.Imputer<imputed_value_floats = {imputed}, replaced_value_float = "
    model = parsed(f"""{HEADER} powers (float[n, 2] x) => (float y) <float half = {{0.5}}> {{
        p = Pow(x, half) q = {replace} inf>(p) y = {replace} nan>(q) }}""")
    found = of_sum(model, {"x": np.array([[1, 4], [-1, 0]], np.float32)}, ["x"])["x"]
    np.testing.assert_allclose(found, [[0.5, 0.25], [0, np.inf]])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "y = com.microsoft.Attention<num_heads = 1>(x, w, b)",
            "optimizer writes such nodes; take the model before its",
        ),
        ("z, y = com.microsoft.SkipLayerNormalization(x, x, w)", "no gradient by its output 'y'"),
        ("l, y = ai.onnx.ml.SVMClassifier(x)", "SVMClassifier.* its scores are votes"),
        ('y = ai.onnx.ml.Normalizer<norm = "L3">(x)', r"\(Normalizer\): norm = 'L3': must be one of MAX, L1, L2"),
        ("y = ai.onnx.ml.LinearRegressor<targets = 1000000000000, coefficients = [1.0]>(x)", r"\(LinearRegressor\): "),
        ("y = ai.onnx.ml.Imputer(x)", r"node of 'y' \(Imputer\): "),
        (
            "y = ai.onnx.ml.SVMRegressor<one_class = 1, coefficients = [1.0], rho = [0.0]>(x)",
            "one_class = 1: must be 0",
        ),
        (
            'l, y = ai.onnx.ml.LinearClassifier<coefficients = [1.0], intercepts = [0.0], post_transform = "PROBIT">(x)',
            "post_transform = 'PROBIT': must have several scores",
        ),
    ],
)
def test_what_has_no_gradient_is_named_with_the_reason(lines: str, message: str) -> None:
    model = with_weights(
        f"g (float[n, 4] x) => (float loss) {{ {lines} loss = ReduceSum<keepdims = 0>(y) }}", w=(4,), b=(4,)
    )
    with pytest.raises(ValueError, match=message):
        gradient(model, "loss", ["x"])


def test_trees_have_gradients_of_0_with_the_reason() -> None:
    tree = onnx.helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml")
    model = with_weights("g (float[n, 4] x) => (float loss) { loss = ReduceSum<keepdims = 0>(y) }")
    model.graph.node.insert(0, tree)
    with pytest.warns(ZeroGradientWarning, match=r"\(TreeEnsembleRegressor\): it is constant between its steps"):
        gradient(model, "loss", ["x"])


LOST = "g (float[n, 4] x, int64[k] shape) => (float y) { r = Reshape(x, shape) "


def test_a_weight_behind_a_tensor_of_unknown_rank_has_a_gradient() -> None:
    model = with_weights(f"{LOST} t = Tanh(r) y = MatMul(t, w) }}", w=(4, 3))
    for shape in ([2, 3, 4], [6, 4]):
        check(model, {"x": drawn(6, 4), "shape": np.array(shape)}, ["x", "w"])


def test_the_remedy_for_an_unknown_rank_helps() -> None:
    model = with_weights(f"{LOST} t = Tanh(r) y = InstanceNormalization(t, w, b) }}", w=(2,), b=(2,))
    feeds = {"x": drawn(6, 4), "shape": np.array([3, 2, 4])}
    says = r"the rank of 't' must be known.* It stops at node of 'r' \(Reshape\); declare the shape of 'r' in the value_info"
    with pytest.raises(ValueError, match=says):
        check(model, feeds, ["x"])
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, ["a", "b", "c"]))
    check(model, feeds, ["x", "w"])


BRANCHES = """y = If(yes) <then_branch = t () => (float[a, b] z) { z = MatMul(x, w) },
    else_branch = e () => (float[c, d] u) { u = Tanh(x) }>"""


@pytest.mark.parametrize("lines", ["y = MatMul(x, w)", BRANCHES])
def test_a_sparse_initializer_is_a_dense_tensor(lines: str) -> None:
    model = parsed(f"{HEADER} g (float[n, 2] x, bool yes) => (float y) {{ {lines} }}")
    values = onnx.numpy_helper.from_array(np.array([3, 4], np.float32), "w")
    places = onnx.numpy_helper.from_array(np.array([1, 6]), "places")
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, places, [2, 4]))
    dense = onnx.ModelProto()
    dense.CopyFrom(model)
    del dense.graph.sparse_initializer[:]
    matrix = np.array([[0, 3, 0, 0], [0, 0, 4, 0]], np.float32)
    dense.graph.initializer.append(onnx.numpy_helper.from_array(matrix, "w"))
    feeds: dict[str, Any] = {"x": drawn(3, 2), "yes": np.array(True)}
    first, second = (
        run(gradient(with_loss(one, {"y": drawn(3, 4)}), "loss", ["x", "w"]), feeds) for one in (model, dense)
    )
    for name in ("x_grad", "w_grad"):
        np.testing.assert_array_equal(first[name], second[name])


def test_a_node_without_a_gradient_is_no_obstacle_elsewhere() -> None:
    one_class = "y = ai.onnx.ml.SVMRegressor<one_class = 1, coefficients = [1.0], rho = [0.0]>(x)"
    model = with_weights(f"g (float[n, 4] x) => (float[n, 1] y) {{ {one_class} }}")
    assert [node.op_type for node in convert(model).graph.node] == ["SVMRegressor"]
