"""Gradient rules of matrix products and determinants."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import ortops
from gradient_checks import check, of_sum, parsed
from gradient_nodes import not_of_old
from onnx_models.gradient import gradient
from pairs import pairwise


def _shape(rank: int, tensor: str) -> str:
    """Of open lengths; brackets around nothing stand for any rank."""
    return f"[{','.join(f'{tensor}{i}' for i in range(rank))}]"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((3,), (3, 2)),
        ((2, 3), (3,)),
        ((2, 3), (3, 4)),
        ((1, 1), (1, 1)),
        ((2, 1), (1, 3)),
        ((5, 2, 3), (3,)),
        ((5, 2, 3), (3, 4)),
        ((2, 5, 2, 3), (3, 1)),
        ((3,), (5, 3, 2)),
        ((3,), (2, 5, 3, 1)),
        ((2, 3), (5, 3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((1, 2, 3), (5, 3, 4)),
        ((5, 2, 3), (1, 3, 4)),
        ((4, 1, 2, 3), (5, 3, 4)),
        ((3, 3, 3), (3, 3, 3)),
        ((1, 3, 3, 3), (3, 1, 3, 3)),
        pytest.param((0, 2, 3), (3, 4), marks=not_of_old),
        pytest.param((0, 2, 3), (1, 3, 4), marks=not_of_old),
        ((2, 0), (0, 4)),
    ],
)
@pytest.mark.parametrize("opened", [False, True])
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], opened: bool) -> None:
    shapes = [_shape(len(s), t) if opened else f"[{','.join(map(str, s))}]" for s, t in ((a, "a"), (b, "b"))]
    rng = np.random.default_rng(1)
    check(
        f"""<ir_version: 10, opset_import: ["" : 18]>
        g (float{shapes[0]} a, float{shapes[1]} b) => (float y) {{ y = MatMul(a, b) }}""",
        {"a": rng.uniform(-1, 1, a).astype(np.float32), "b": rng.uniform(-1, 1, b).astype(np.float32)},
        ["a", "b"],
        # ONNX Runtime 1.20 has no double kernel for a transposed factor of many matrices. A product is linear in each
        # factor, so that a large step does no harm in float.
        step=1,
        tolerance=1e-5,
    )


@pairwise(
    {
        "turned_a, turned_b": [(0, 0), (0, 1), (1, 0), (1, 1)],
        "c": [None, (), (1,), (4,), (2, 1), (1, 4), (2, 4)],
        "opened": [False, True],
    }
)
def test_gemm(turned_a: int, turned_b: int, c: tuple[int, ...] | None, opened: bool) -> None:
    a, b = ((3, 2) if turned_a else (2, 3)), ((4, 3) if turned_b else (3, 4))
    rng = np.random.default_rng(1)
    feeds = {"a": rng.uniform(-1, 1, a), "b": rng.uniform(-1, 1, b)}
    if c is not None:
        feeds["c"] = rng.uniform(-1, 1, c)
    inputs = []
    for name, value in feeds.items():
        shape = _shape(value.ndim, name) if opened else f"[{','.join(map(str, value.shape))}]"
        inputs.append(f"double{shape if value.ndim else ''} {name}")
    check(
        f"""<ir_version: 10, opset_import: ["" : 18]>
        g ({", ".join(inputs)}) => (double y) {{
            y = Gemm <alpha = 0.5, beta = -1.5, transA = {turned_a}, transB = {turned_b}> ({", ".join(feeds)})
        }}""",
        feeds,
        list(feeds),
    )


def test_the_defaults_of_gemm() -> None:
    rng = np.random.default_rng(1)
    feeds = {"a": rng.uniform(-1, 1, (2, 3)), "b": rng.uniform(-1, 1, (3, 4)), "c": rng.uniform(-1, 1, 4)}
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (double[M,K] a, double[K,N] b, double[N] c) => (double y) { y = Gemm(a, b, c) }"""
    check(text, feeds, ["a", "b", "c"])


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


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (2, 3, 3), (2, 1, 4, 4)])
def test_determinant(shape: tuple[int, ...], opened: bool) -> None:
    # ONNX Runtime's CPU has Det in float only.
    x = np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)
    lengths = [f"n{i}" if opened else n for i, n in enumerate(shape[:-1])] + [shape[-1]]
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
        g (float[{",".join(map(str, lengths))}] x) => (float y) {{ y = Det(x) }}"""
    check(text, {"x": x}, ["x"], step=2**-7, tolerance=1e-4)


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


@pytest.mark.parametrize("perm", ["perm = [1, 0]", "perm = [0, 1]"])
@pytest.mark.parametrize("shapes", ["[2,3,4] a, float[{}] w", "[N,M,K] a, float[A,B] w"])
def test_a_product_with_a_transposed_weight(perm: str, shapes: str) -> None:
    shape = (5, 4) if perm == "perm = [1, 0]" else (4, 5)
    rng = np.random.default_rng(1)
    feeds = {"a": rng.uniform(-1, 1, (2, 3, 4)).astype(np.float32), "w": rng.uniform(-1, 1, shape).astype(np.float32)}
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
    g (float{shapes.format(",".join(map(str, shape)))}) => (float y) {{
        turned = Transpose <{perm}> (w)
        y = MatMul(a, turned)
    }}"""
    check(text, feeds, ["a", "w"], step=1, tolerance=1e-5)


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
