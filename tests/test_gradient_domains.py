# SPDX-License-Identifier: MIT
"""Gradients through ai.onnx.ml and fused nodes, where inference finds no rank, and for symbolic shape inference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.tools import symbolic_shape_infer as symbolic

from gradient_checks import Array, check, of_sum, parsed, run, with_loss
from onnx_models import convert
from onnx_models.gradient import ZeroGradientWarning, gradient, vjp
from onnx_models.tools.types import infer_shapes

HEADER = '<ir_version: 10, opset_import: ["" : 18, "ai.onnx.ml" : 3, "com.microsoft" : 1, "mmcv" : 1]>'


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
        (
            "y = mmcv.MMCVRoiAlign(x, x)",
            r"onnx_models.convert \(the command convert\) puts an operator with a gradient",
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


MODELS: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "convolutions": (
        """g (float[n,4,16,20] x) => (float loss) { a = Conv<pads=[1,1,1,1]>(x, k) b = Relu(a)
            c = Conv<group=4, strides=[2,2]>(b, d) p = MaxPool<kernel_shape=[2,2]>(c) r = GlobalAveragePool(p)
            loss = ReduceMean<keepdims=0>(r) }""",
        {"k": (4, 4, 3, 3), "d": (4, 1, 3, 3)},
    ),
    "a Loop": (
        """g (float[t,n,4] x, float[n,4] h) => (float loss) {
            s = Shape<end=1>(x) m = Squeeze(s) yes = Constant<value = bool {1}>()
            f, y = Loop(m, yes, h) <body = b (int64 i, bool go, float[p,q] u) => (bool on, float[p,q] v, float[p,q] z) {
                on = Identity(go) xi = Gather<axis=0>(x, i) a = MatMul(u, k) e = Add(a, xi) v = Tanh(e) z = Identity(v) }>
            loss = ReduceMean<keepdims=0>(y) }""",
        {"k": (4, 4)},
    ),
    "Resize": (
        """g (float[n,3,h,w] x) => (float loss) {
            s = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>() y = Resize<mode="linear">(x, , s) c = Conv(y, k)
            loss = ReduceMean<keepdims=0>(c) }""",
        {"k": (2, 3, 3, 3)},
    ),
}


def built(name: str) -> tuple[onnx.ModelProto, list[str]]:
    text, weights = MODELS[name]
    model = onnx.parser.parse_model(HEADER + text)
    ones = (onnx.numpy_helper.from_array(np.ones(shape, np.float32), weight) for weight, shape in weights.items())
    model.graph.initializer.extend(ones)
    return model, list(weights)


@pytest.mark.parametrize("name", MODELS)
def test_it_finds_the_shapes_of_all_tensors(name: str) -> None:
    model, weights = built(name)
    for one in (model, gradient(model, "loss", weights)):
        found = symbolic.SymbolicShapeInference.infer_shapes(one)  # raises if one is missing
        assert [value.name for value in found.graph.output] == [value.name for value in one.graph.output]


SPECTRUM = """g (float[{shape}] waveforms, float[9, 4] w) => (float[n, t, 4] features) <int64[1] last = {{-1}}> {{
    step = Constant<value = int64 {{8}}>() length = Constant<value = int64 {{16}}>()
    framed = Unsqueeze(waveforms, last) image = STFT(framed, step, , length)
    power = ReduceSumSquare<keepdims = 0>(image, last) features = MatMul(power, w) }}"""


def test_the_rank_of_stft_is_known_with_open_lengths() -> None:
    rng = np.random.default_rng(0)
    feeds = {"waveforms": rng.normal(size=(2, 40)).astype(np.float32), "w": rng.normal(size=(9, 4)).astype(np.float32)}
    feeds["features_cotangent"] = rng.normal(size=(2, 4, 4)).astype(np.float32)
    found: list[np.ndarray[Any, Any]] = []
    for shape in ("n, samples", "2, 40"):
        model = onnx.parser.parse_model(HEADER + SPECTRUM.format(shape=shape))
        session = onnxruntime.InferenceSession(vjp(model, ["features"], ["waveforms"]).SerializeToString())
        found += session.run(["waveforms_grad"], feeds)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-5)


def test_the_shape_of_stft_has_the_batch_and_two_parts() -> None:
    made = infer_shapes(onnx.parser.parse_model(HEADER + SPECTRUM.format(shape="n, samples")))
    (image,) = (value.type.tensor_type for value in made.graph.value_info if value.name == "image")
    assert image.elem_type == onnx.TensorProto.FLOAT
    assert [dim.dim_param or dim.dim_value for dim in image.shape.dim] == ["n", 0, 0, 2]


@pytest.mark.parametrize("lengths", ["n, 2", "?, 2", "-1, 2"])
def test_a_length_without_a_name_costs_no_node(lengths: str) -> None:
    text = "g (float[{}] x) => (float[x_0, 2] h, float loss) {{ h = Tanh(x) y = Add(x, h) loss = ReduceSum<keepdims=0>(y) }}"
    model, named = (onnx.parser.parse_model(HEADER + text.format(one)) for one in (lengths.replace("-1", "?"), "n, 2"))
    if "-1" in lengths:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    found, wanted = (gradient(one, "loss", ["x"]).graph for one in (model, named))
    assert [node.op_type for node in found.node] == [node.op_type for node in wanted.node]


def test_lengths_without_a_name_have_other_names_in_the_gradient_of_a_gradient() -> None:
    text = "g (float[n] x, int64[3] k) => (float y) { a, b, c = Split<axis = 0>(x, k) y = Mul(b, b) }"
    made = vjp(parsed(HEADER + text), ["y"], {"x": "dx"})
    session = onnxruntime.InferenceSession(vjp(made, ["dx"], ["x"]).SerializeToString())
    feeds = {"x": np.arange(5, dtype="f"), "y_cotangent": np.ones(3, "f"), "dx_cotangent": np.ones(5, "f")}
    found = session.run(["x_grad"], feeds | {"k": np.array([1, 3, 1])})
    np.testing.assert_array_equal(found[0], [0, 2, 2, 2, 0])
