"""Gradient rules of matrix products and determinants."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import ortops
from gradient_checks import of_sum, parsed
from onnx_models.gradient import gradient


def _shape(rank: int, tensor: str) -> str:
    """Of open lengths; brackets around nothing stand for any rank."""
    return f"[{','.join(f'{tensor}{i}' for i in range(rank))}]"


def test_a_matrix_product_needs_ranks() -> None:
    made = parsed(
        """<ir_version: 10, opset_import: ["" : 18]>
        g (double[M,K] a, double[N] b, int64[R] shape) => (double loss) {
            turned = Reshape(b, shape)
            product = MatMul(a, turned)
            loss = ReduceSum <keepdims = 0> (product)
        }"""
    )
    made.graph.node[1].name = "the product"
    with pytest.raises(ValueError, match=r"node 'the product' \(MatMul\): the rank of 'turned' must be known"):
        gradient(made, "loss", ["a"])


def test_determinants_of_singular_matrices_have_their_cofactors() -> None:
    x = np.array([[[1, 2, 3], [2, 4, 6], [1, 0, 1]], [[0, 0, 0], [0, 2, 1], [0, 1, 3]], [[1, 1, 1]] * 3], np.float32)
    text = """<ir_version: 10, opset_import: ["" : 18]> g (float[N, 3, 3] x) => (float y) { y = Det(x) }"""
    expected: list[list[list[float]]] = [
        [[4, 4, -4], [-2, -2, 2], [0, 0, 0]],
        [[5, 0, 0], [0, 0, 0], [0, 0, 0]],
        [[0, 0, 0], [0, 0, 0], [0, 0, 0]],
    ]
    np.testing.assert_allclose(of_sum(text, {"x": x}, ["x"])["x"], expected, atol=1e-5)


@pytest.mark.parametrize(("lengths", "message"), [("N, N", "an unknown number of"), ("33, 33", "33 rows")])
def test_determinants_of_large_matrices_are_refused(lengths: str, message: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
        g (float[{lengths}] x) => (float loss) {{ loss = Det(x) }}"""
    with pytest.raises(ValueError, match=rf"\(Det\): its matrices have {message}.*: must be 32 or less"):
        gradient(onnx.parser.parse_model(text), "loss", ["x"])


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
