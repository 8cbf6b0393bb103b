"""Gradients of LSTM, GRU and RNN against finite differences, in double, of formulas that agree with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from gradient_checks import Array, check, of_sum, run, with_loss
from gradient_nodes import inputs_of
from onnx_models.gradient import gradient
from recurrent_formulas import Function, layer

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
PLACES = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
STEPS, SEQUENCES, WIDTH, SIZE = 4, 3, 2, 3


def feeds_of(
    operator: str, directions: int = 1, lengths: Sequence[int] = (), without: Sequence[str] = ()
) -> dict[str, Array]:
    """Random inputs, float32, all that the operator has but for some."""
    rng, rows = np.random.default_rng(3), GATES[operator] * SIZE
    shapes: dict[str, Sequence[int]] = {
        "X": (STEPS, SEQUENCES, WIDTH),
        "W": (directions, rows, WIDTH),
        "R": (directions, rows, SIZE),
        "B": (directions, 2 * rows),
        "initial_h": (directions, SEQUENCES, SIZE),
    }
    if operator == "LSTM":
        shapes |= {"initial_c": (directions, SEQUENCES, SIZE), "P": (directions, 3 * SIZE)}
    feeds = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    if lengths:
        feeds["sequence_lens"] = np.array(lengths, np.int32)
    return {name: feeds[name] for name in PLACES if name in feeds and name not in without}


def model_of(
    operator: str, feeds: Mapping[str, Array], attributes: Mapping[str, Any], outputs: Sequence[str], *, opened: bool
) -> onnx.ModelProto:
    """A model of one node; an output "" is left out."""
    names = [name if name in feeds else "" for name in PLACES[: 8 if operator == "LSTM" else 6]]
    node = onnx.helper.make_node(operator, names, outputs, name="it", hidden_size=SIZE, **attributes)
    values = inputs_of(feeds, opened=opened)
    kinds = [onnx.helper.make_tensor_value_info(n, 1, [None] * (4 if n == "Y" else 3)) for n in outputs if n]
    graph = onnx.helper.make_graph([node], "g", values, kinds)
    return onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 18)])


def check_layer(
    operator: str,
    attributes: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = (),
    *,
    lengths: Sequence[int] = (),
    without: Sequence[str] = (),
    functions: Sequence[Function] = (),
    opened: bool = True,
) -> None:
    """Assert that the node does what the formulas say, and that its gradients are the derivatives of the formulas."""
    attributes = dict(attributes or {})
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    feeds = feeds_of(operator, directions, lengths, without)
    outputs = outputs or ["Y", "Y_h", "Y_c"][: 3 if operator == "LSTM" else 2]
    known = functions or [(name.lower(), 0.0, 0.0) for name in DEFAULTS[operator] * directions]
    count = len(DEFAULTS[operator])
    by_direction = [known[d * count : (d + 1) * count] for d in range(directions)]
    options = {name: value for name, value in attributes.items() if not name.startswith("activation")}
    made = model_of(operator, feeds, attributes, outputs, opened=opened)
    rng = np.random.default_rng(0)
    doubles = {name: value.astype(np.float64) for name, value in feeds.items()}
    expected = layer(operator, doubles, by_direction, **options)
    cotangents = {n: np.asarray(rng.uniform(-1, 1, expected[n].shape), np.float32) for n in outputs if n}
    wrt = [name for name in feeds if name != "sequence_lens"]
    found = run(gradient(with_loss(made, cotangents), "loss", wrt), feeds)
    plain = run(made, feeds)
    for name in filter(None, outputs):
        np.testing.assert_array_equal(found[name], plain[name], err_msg="an output of the model itself has changed")
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=2e-6)

    def loss(name: str, value: Array) -> float:
        ends = layer(operator, {**doubles, name: value}, by_direction, **options)
        return float(sum((ends[n] * cotangent).sum() for n, cotangent in cotangents.items()))

    step = 1e-6
    for name in wrt:
        along = rng.uniform(-1, 1, feeds[name].shape)
        difference = (loss(name, doubles[name] + step * along) - loss(name, doubles[name] - step * along)) / (2 * step)
        terms = found[f"{name}_grad"] * along
        assert terms.sum() == pytest.approx(difference, rel=0, abs=1e-4 * np.abs(terms).sum() + 1e-5), name


@pytest.mark.parametrize("opened", [True, False], ids=["open", "fixed"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("operator", GATES)
def test_directions(operator: str, direction: str, opened: bool) -> None:
    check_layer(operator, {"direction": direction}, opened=opened)


@pytest.mark.parametrize("operator", GATES)
def test_inputs_of_unknown_rank_have_the_same_gradients(operator: str) -> None:
    feeds = feeds_of(operator, lengths=(2, 4, 3))
    found = []
    for opened in (False, True):
        values = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), None if opened else value.shape
            )
            for name, value in feeds.items()
        ]
        y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
        inputs = [name if name in feeds else "" for name in PLACES[: 8 if operator == "LSTM" else 6]]
        node = onnx.helper.make_node(operator, inputs, ["y"], hidden_size=SIZE)
        graph = onnx.helper.make_graph([node], "g", values, [y])
        made = onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 18)])
        wrt = [name for name in feeds if name != "sequence_lens"]
        found.append(of_sum(made, feeds, wrt))
    for name, by_it in found[0].items():
        np.testing.assert_allclose(found[1][name], by_it, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("operator", GATES)
def test_sequences_of_other_lengths_and_none(operator: str, direction: str) -> None:
    check_layer(operator, {"direction": direction}, lengths=(2, 0, 4))


@pytest.mark.parametrize(
    "outputs", [("Y",), ("", "Y_h"), ("", "", "Y_c"), ("Y", "", "Y_c")], ids=lambda names: "_".join(filter(None, names))
)
def test_some_outputs(outputs: Sequence[str]) -> None:
    check_layer("LSTM", None, outputs)


@pytest.mark.parametrize(
    "without", [("B",), ("P",), ("initial_h", "initial_c"), ("B", "initial_h", "initial_c", "P")], ids="_".join
)
@pytest.mark.parametrize("operator", GATES)
def test_absent_inputs(operator: str, without: Sequence[str]) -> None:
    check_layer(operator, without=without, lengths=(4, 3, 1))


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("LSTM", {"clip": 0.4}),
        ("LSTM", {"input_forget": 1}),
        ("GRU", {"clip": 0.4}),
        ("GRU", {"linear_before_reset": 1}),
        ("GRU", {"linear_before_reset": 1, "clip": 0.4, "direction": "bidirectional"}),
        ("RNN", {"clip": 0.4}),
    ],
    ids=str,
)
def test_options(operator: str, attributes: Mapping[str, Any]) -> None:
    check_layer(operator, attributes)


@pytest.mark.parametrize(
    ("name", "alpha", "beta"),
    [
        ("Affine", 0.7, 0.2),
        ("Elu", 0.6, None),
        ("HardSigmoid", 0.3, 0.4),
        ("LeakyRelu", 0.2, None),
        ("Relu", None, None),
        ("ScaledTanh", 0.8, 1.2),
        ("Softplus", None, None),
        ("Softsign", None, None),
        ("ThresholdedRelu", 0.1, None),
    ],
)
@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
def test_activations(operator: str, name: str, alpha: float | None, beta: float | None) -> None:
    """The one that makes the new state is another; those before and after it take no alpha or beta."""
    place = {"LSTM": 1, "GRU": 1, "RNN": 0}[operator]
    names = [name if i == place else one for i, one in enumerate(DEFAULTS[operator])]
    given = {"activation_alpha": alpha, "activation_beta": beta}
    attributes = {"activations": names} | {key: [value] for key, value in given.items() if value is not None}
    check_layer(operator, attributes, functions=[(one.lower(), alpha or 0.0, beta or 0.0) for one in names])


def test_activations_in_any_case_take_alpha_and_beta_in_their_order() -> None:
    names = ["hardSigmoid", "SCALEDTANH", "leakyrelu"] * 2
    alphas, betas = [0.3, 0.9, 0.2, 0.25, 0.8, 0.1], [0.45, 1.1, 0.55, 0.7]
    numbers = [iter(betas), iter(alphas)]
    functions = [(n.lower(), next(numbers[1]), 0.0 if n == "leakyrelu" else next(numbers[0])) for n in names]
    attributes = {"activations": names, "activation_alpha": alphas, "activation_beta": betas}
    check_layer("LSTM", {**attributes, "direction": "bidirectional"}, functions=functions)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"activations": ["Tanh", "Tanh"]}, r"activations = \['Tanh', 'Tanh'\]: must be 1"),
        ({"activations": ["Cosh"]}, r"activations = \['Cosh'\]: each must be one of"),
        ({"activations": ["Affine"], "activation_alpha": [1.0]}, "the activation Affine needs activation_alpha"),
        ({"activations": ["ThresholdedRelu"]}, "the activation ThresholdedRelu needs activation_alpha"),
        ({"direction": "both"}, "direction = 'both': must be"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, dict) else "",
)
def test_what_has_no_gradient(attributes: Mapping[str, Any], words: str) -> None:
    made = model_of("RNN", feeds_of("RNN"), attributes, ["Y"], opened=False)
    made.graph.node.append(onnx.helper.make_node("ReduceSum", ["Y"], ["loss"], keepdims=0))
    with pytest.raises(ValueError, match=words):
        gradient(made, "loss", ["X"])


@pytest.mark.parametrize("operator", GATES)
def test_what_stands_beyond_the_end_of_a_sequence_is_not_read(operator: str) -> None:
    feeds = feeds_of(operator, lengths=(2, 3, 4))
    feeds["X"][3, 0] = np.nan
    made = model_of(operator, feeds, {}, ["Y"], opened=True)
    ones = {"Y": np.ones((STEPS, 1, SEQUENCES, SIZE), np.float32)}
    wrt = [name for name in feeds if name != "sequence_lens"]
    found = run(gradient(with_loss(made, ones), "loss", wrt), feeds)
    for name in wrt:
        assert np.isfinite(found[f"{name}_grad"]).all(), name
    assert not found["X_grad"][3, 0].any()


@pytest.mark.parametrize("operator", GATES)
def test_batches_that_come_first(operator: str) -> None:
    """ONNX Runtime runs no such layers: what they give, from another layer, is given to the gradient."""
    feeds = feeds_of(operator, lengths=(2, 4, 3))
    wrt = [name for name in feeds if name != "sequence_lens"]
    found: dict[str, Array] = {}
    for layout in (0, 1):
        given = {name: value.swapaxes(0, 1) if layout and name[0] in "Xi" else value for name, value in feeds.items()}
        made = model_of(operator, given, {"layout": layout}, ["Y", "Y_h"], opened=True)
        rng = np.random.default_rng(0)
        shapes = {"Y": (STEPS, 1, SEQUENCES, SIZE), "Y_h": (1, SEQUENCES, SIZE)}
        weights = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}
        if layout:
            weights = {"Y": weights["Y"].transpose(2, 0, 1, 3), "Y_h": weights["Y_h"].swapaxes(0, 1)}
        differentiated = gradient(with_loss(made, weights), "loss", wrt)
        if layout:
            node = next(node for node in differentiated.graph.node if node.name == "it")
            differentiated.graph.node.remove(node)
            differentiated.graph.input.extend(differentiated.graph.output[:2])
            given |= {"Y": found["Y"].transpose(2, 0, 1, 3), "Y_h": found["Y_h"].swapaxes(0, 1)}
            del differentiated.graph.output[:2]
        results = run(differentiated, given)
        for name in wrt if layout else ():
            by_it = results[f"{name}_grad"]
            by_it = by_it.swapaxes(0, 1) if name[0] in "Xi" else by_it
            np.testing.assert_allclose(by_it, found[f"{name}_grad"], rtol=1e-5, atol=1e-6, err_msg=name)
        found = results


@pytest.mark.parametrize("operator", GATES)
def test_a_second_derivative(operator: str) -> None:
    feeds = feeds_of(operator, lengths=(2, 3, 4))
    wrt = [name for name in feeds if name != "sequence_lens"]
    made = model_of(operator, feeds, {"direction": "reverse"}, ["Y"], opened=True)
    made.graph.node.append(onnx.helper.make_node("ReduceSumSquare", ["Y"], ["square"], keepdims=0))
    once = gradient(made, "square", {name: f"{name}_once" for name in wrt})
    check(once, feeds, wrt, outputs=[f"{name}_once" for name in wrt], step=1e-2, tolerance=2e-3)
