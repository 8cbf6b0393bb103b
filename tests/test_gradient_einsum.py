"""The gradient rule of Einsum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
import pytest

from gradient_checks import check
from gradient_nodes import node_model, not_of_old, uniform
from onnx_models.gradient import gradient
from pairs import pairwise

EQUATIONS: list[Any] = [
    # One operand: turned, summed, its diagonal, its trace.
    ("ij->ji", [(2, 3)]),
    ("ij->i", [(2, 3)]),
    ("ij->", [(2, 3)]),
    ("ij", [(2, 3)]),
    ("ba", [(2, 3)]),
    ("ii->i", [(3, 3)]),
    ("ii", [(3, 3)]),
    ("iij->j", [(3, 3, 2)]),
    ("iji->ij", [(3, 2, 3)]),
    ("iii->i", [(3, 3, 3)]),
    ("ijji->j", [(2, 3, 3, 2)]),
    ("...ii->...i", [(2, 3, 3)]),
    ("...->...", [(2, 3)]),
    ("...i->...", [(2, 3, 4)]),
    ("...i", [(2, 3)]),
    # Two and more.
    ("i,i", [(3,), (3,)]),
    ("i,j", [(3,), (2,)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    (" i j , j k -> i k ", [(2, 3), (3, 4)]),
    ("aB,Bc->ca", [(2, 3), (3, 4)]),
    ("ij,ij->i", [(2, 3), (2, 3)]),
    ("ij,jk->k", [(2, 3), (3, 4)]),
    ("ii,ij->j", [(3, 3), (3, 2)]),
    ("ij,kl->il", [(2, 3), (4, 2)]),
    ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]),
    ("...ij,...jk->...ik", [(2, 2, 3), (2, 3, 4)]),
    ("...ij,...jk", [(2, 1, 2, 3), (2, 3, 3, 2)]),
    ("...ij,jk->...ik", [(2, 2, 3), (3, 4)]),
    ("...i,...i->...", [(2, 1, 3), (1, 4, 3)]),
    ("i...,i...->...i", [(3, 2), (3, 1)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
    ("i,ij,j->", [(2,), (2, 3), (3,)]),
    (",ij->ij", [(), (2, 3)]),
    (",->", [(), ()]),
    ("i,i,i->i", [(3,), (3,), (3,)]),
    pytest.param("ij,jk->ik", [(0, 3), (3, 2)], marks=not_of_old),
]


@pairwise({"equation, shapes": EQUATIONS, "opened": [False, True]})
def test_einsum(equation: str, shapes: Sequence[tuple[int, ...]], opened: bool) -> None:
    feeds = uniform({f"x{i}": shape for i, shape in enumerate(shapes)})
    made = node_model("Einsum", feeds, {"equation": equation}, opened=opened)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    check(made, feeds, list(feeds))
    check(made, feeds, [list(feeds)[-1]])


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
