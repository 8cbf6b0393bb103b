"""Gradients of LSTM, GRU and RNN: outputs that are absent, padding, batches that come first, and refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from gradient_checks import Array, check, run, with_loss
from gradient_nodes import inputs_of
from onnx_models.gradient import gradient

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
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


@pytest.mark.parametrize(
    "outputs", [("Y",), ("", "Y_h"), ("", "", "Y_c"), ("Y", "", "Y_c")], ids=lambda names: "_".join(filter(None, names))
)
def test_some_outputs(outputs: Sequence[str]) -> None:
    feeds = feeds_of("LSTM")
    check(model_of("LSTM", feeds, {}, outputs, opened=True), feeds, list(feeds))


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


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_padding_of_any_length_leaves_gradients_as_they_are(direction: str) -> None:
    """States that grew in the padding would be infinite after so many steps."""
    feeds = feeds_of("RNN", lengths=(2, 4, 3)) | {"R": np.full((1, SIZE, SIZE), 9, np.float32)}
    longer = feeds | {"X": np.concatenate([feeds["X"], np.ones((90, SEQUENCES, WIDTH), np.float32)])}
    wrt = [name for name in feeds if name != "sequence_lens"]
    found = []
    for given in (feeds, longer):
        made = model_of("RNN", given, {"activations": ["Relu"], "direction": direction}, ["", "Y_h"], opened=True)
        ones = {"Y_h": np.ones((1, SEQUENCES, SIZE), np.float32)}
        found.append(run(gradient(with_loss(made, ones), "loss", wrt), given))
    for name in wrt:
        short, long = (one[f"{name}_grad"] for one in found)
        np.testing.assert_array_equal(long[:STEPS] if name == "X" else long, short, err_msg=name)


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
