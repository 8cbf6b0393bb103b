"""The gradient rule of Einsum."""

from __future__ import annotations

import onnx
import pytest

from gradient_checks import check
from gradient_nodes import node_model, uniform
from onnx_models.gradient import gradient


def test_an_operand_that_einsum_has_twice_has_both_gradients() -> None:
    feeds = uniform({"x": (3, 3)})
    check(node_model("Einsum", feeds, {"equation": "ij,jk->ik"}, opened=True, inputs=["x", "x"]), feeds, ["x"])


def test_the_gradient_of_einsum_has_a_gradient() -> None:
    feeds = uniform({"x": (3, 3), "z": (3, 2)})
    made = node_model("Einsum", feeds, {"equation": "ii,ij->j"}, opened=True)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    made.graph.node.append(onnx.helper.make_node("ReduceSumSquare", ["y"], ["energy"], keepdims=0))
    first = gradient(made, "energy", {"x": "by_x", "z": "by_z"})
    del first.graph.output[:1]
    check(first, feeds, ["x", "z"])


def test_axes_of_one_name_and_two_lengths_are_refused() -> None:
    feeds = uniform({"x": (1, 3), "z": (2, 3)})
    made = node_model("Einsum", feeds, {"equation": "ij,ij->ij"}, opened=False)
    made.graph.node.append(onnx.helper.make_node("ReduceSum", ["y"], ["loss"], keepdims=0))
    with pytest.raises(ValueError, match="axis 'i' of 'z' has length 2: must be 1"):
        gradient(made, "loss", ["x"])


@pytest.mark.parametrize(
    ("equation", "message"),
    [("ij,jk", "has 2 operands: must have 1"), ("...ijk->i", r"must agree with operands of ranks \[2\]")],
)
def test_an_equation_that_does_not_fit_is_refused(equation: str, message: str) -> None:
    feeds = uniform({"x": (3, 3)})
    made = node_model("Einsum", feeds, {"equation": equation}, opened=True)
    made.graph.node.append(onnx.helper.make_node("ReduceSum", ["y"], ["loss"], keepdims=0))
    with pytest.raises(ValueError, match=message):
        gradient(made, "loss", ["x"])
