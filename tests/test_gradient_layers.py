"""Gradients of products, convolutions, normalizations and losses: what takes more than a row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import ortops
from gradient_checks import Array, check, of_sum, parsed, run, with_loss
from gradient_nodes import IS_OLD, node_model, uniform
from onnx_models.gradient import gradient


def _shape(rank: int, tensor: str) -> str:
    """Of open lengths; brackets around nothing stand for any rank."""
    return f"[{','.join(f'{tensor}{i}' for i in range(rank))}]"


def test_the_gradient_by_a_transposed_weight_is_not_transposed() -> None:
    made = parsed(
        """<ir_version: 10, opset_import: ["" : 18]>
        g (float[N,4] a, float[5,4] w) => (float loss) {
            turned = Transpose <perm = [1, 0]> (w)
            y = MatMul(a, turned)
            loss = ReduceSum <keepdims = 0> (y)
        }"""
    )
    nodes = gradient(made, "loss", ["w"]).graph.node
    assert [node.output[0] for node in nodes if node.op_type == "Transpose"] == ["turned"]


@pytest.mark.parametrize(("a", "b"), [((0, 4), (2, 4, 3)), ((2, 3, 4), (2, 4, 0))])
def test_products_of_many_matrices_without_rows_or_columns_have_gradients_of_0(
    a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
        g (double{_shape(len(a), "a")} a, double{_shape(len(b), "b")} b) => (double loss)
        {{ y = MatMul(a, b) loss = ReduceSum<keepdims = 0> (y) }}"""
    session = ortops.InferenceSession(gradient(parsed(text), "loss", ["a", "b"]).SerializeToString())
    full = [np.full([length or 5 for length in shape], np.nan) for shape in (a, b)]
    for _ in range(5):
        # What a run leaves in memory must not be taken for a gradient.
        session.run(["a_grad", "b_grad"], dict(zip("ab", full, strict=True)))
        for found in session.run(["a_grad", "b_grad"], {"a": np.ones(a), "b": np.ones(b)}):
            assert not np.asarray(found).any()


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


@pytest.mark.parametrize("operator", ["LayerNormalization", "GroupNormalization", "MeanVarianceNormalization"])
def test_half_precision_is_computed_in_float(operator: str) -> None:
    count = 8 if operator == "LayerNormalization" else 6
    by_operator: dict[str, dict[str, Any]] = {
        "GroupNormalization": {"num_groups": 2},
        "MeanVarianceNormalization": {"axes": [2]},
    }
    attributes = by_operator.get(operator, {})
    feeds = uniform({"x": (2, 6, 8), "scale": (count,), "b": (count,)}, np.float16, 0.5, 2)
    if operator == "MeanVarianceNormalization":
        feeds = {"x": feeds["x"]}
    cotangent = np.random.default_rng(2).uniform(-1, 1, (2, 6, 8)).astype(np.float32)
    found = []
    for dtype in (np.float16, np.float32):
        typed = {name: value.astype(dtype) for name, value in feeds.items()}
        made = node_model(operator, typed, attributes, opened=True, opset=21)
        made.graph.node.append(onnx.helper.make_node("Cast", ["y"], ["wide"], to=onnx.TensorProto.FLOAT))
        by = run(gradient(with_loss(made, {"wide": cotangent}), "loss", list(feeds)), typed)
        assert all(by[f"{name}_grad"].dtype == dtype for name in feeds)
        found.append([by[f"{name}_grad"].astype(np.float64) for name in feeds])
    for half, single in zip(*found, strict=True):
        np.testing.assert_allclose(half, single, rtol=4e-3, atol=4e-3)


STEP, TOLERANCE = 1.0, 1e-5


def tensors(**shapes: Sequence[int]) -> dict[str, Array]:
    return uniform(shapes, np.float32)


@pytest.mark.parametrize(
    ("operator", "x", "w", "attributes"),
    [
        ("Conv", (2, 3, 7, 10), (4, 3, 3, 2), {"strides": [2, 3], "dilations": [1, 2], "pads": [1, 2, 0, 3]}),
        ("Conv", (2, 6, 5, 5), (2, 3, 3, 3), {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ("Conv", (2, 3, 9), (3, 1, 11), {"group": 3, "pads": [5, 6]}),
        ("ConvTranspose", (2, 3, 4, 5), (3, 4, 4, 3), {"output_shape": [7, 9], "strides": [2, 2]}),
    ],
)
def test_a_kernel_that_is_constant(
    operator: str, x: Sequence[int], w: Sequence[int], attributes: dict[str, Any]
) -> None:
    """A session can turn it round beforehand."""
    feeds = tensors(x=x)
    for opened in (False, True):
        made = node_model(operator, feeds, attributes, opened=opened, constants=tensors(w=w))
        check(made, feeds, ["x"], step=STEP, tolerance=TOLERANCE)


@pytest.mark.parametrize(
    ("lengths", "kernel", "attributes", "group"),
    [
        ([7], [3], {}, 1),
        ([5, 6], [1, 1], {}, 1),
        ([5, 6], [3, 3], {"strides": [2, 2], "pads": [1, 0, 0, 1]}, 2),
        ([6, 7], [4, 3], {"dilations": [1, 2]}, 4),
        ([3, 4, 5], [2, 1, 2], {}, 4),
    ],
)
@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
def test_without_samples_the_gradient_by_the_kernel_is_zero(
    operator: str, lengths: Sequence[int], kernel: Sequence[int], attributes: dict[str, Any], group: int
) -> None:
    feeds = tensors(x=(0, 4, *lengths), w=(4, 4 // group, *kernel), b=(4,))
    made = node_model(operator, feeds, {"group": group, **attributes}, opened=True)
    if not IS_OLD:  # which sums the products of the cotangent wrong, of which there are none
        check(made, feeds, list(feeds), step=STEP, tolerance=TOLERANCE)
    made.graph.node.append(onnx.helper.make_node("ReduceSum", ["y"], ["loss"], keepdims=0))
    session = ortops.InferenceSession(gradient(made, "loss", ["w", "b"]).SerializeToString())
    for _ in range(3):
        # What a run leaves in memory must not be taken for a gradient.
        session.run(["w_grad", "b_grad"], {**feeds, "x": np.full((3, 4, *lengths), np.nan, np.float32)})
        for found in session.run(["w_grad", "b_grad"], feeds):
            assert not np.asarray(found).any()


@pytest.mark.parametrize("operator", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_what_is_ignored_has_no_gradient_even_if_it_is_all_and_infinite(operator: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
        g (double[n, 2] x, int64[n] t, double[2] w) => (double y) {{
          y = {operator} <reduction = "REDUCTION", ignore_index = -1> (x, t, w) }}"""
    feeds = {"x": np.array([[-np.inf, 0.0], [1.0, 1.0]]), "t": np.array([-1, 1]), "w": np.array([2.0, 3.0])}
    for reduction in ("none", "sum", "mean"):
        found = of_sum(text.replace("REDUCTION", reduction), feeds, ["x", "w"])
        assert all(np.isfinite(value).all() for value in found.values())
        np.testing.assert_array_equal(found["x"][0], 0)
    none = of_sum(text.replace("REDUCTION", "mean"), {**feeds, "t": np.array([-1, -1])}, ["x"])
    np.testing.assert_array_equal(none["x"], 0)
