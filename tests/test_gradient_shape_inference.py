"""ONNX Runtime's symbolic shape inference accepts models with gradients if it accepts the model without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.tools import symbolic_shape_infer as symbolic

from gradient_checks import parsed
from onnx_models.gradient import gradient, vjp
from onnx_models.tools.types import infer_shapes

HEADER = '<ir_version: 10, opset_import: ["" : 18]>\n'

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
