"""Rules of matrix products."""

from __future__ import annotations

import numpy as np
import onnx

from onnx_models.gradient.broadcast import sum_to
from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.registry import Gradients, rule

_MAX_DET_ROWS = 32
"""The most rows of a matrix for Det: its gradient needs memory for rows^4 elements, here a million."""


@rule("MatMul")
def matmul(graph: Graph, node: Node, dy: str) -> Gradients:
    """NumPy's matmul: a vector is a matrix of one row or column, and leading axes broadcast."""
    a, b = node.inputs
    if graph.rank(b, node) <= 2:
        return _matmul_by_matrix(graph, node, dy)
    return _matmul_of_many(graph, node, dy, graph.rank(a, node) == 1)


def _matmul_by_matrix(graph: Graph, node: Node, dy: str) -> Gradients:
    """All rows of the first factor, whose rank may be unknown, times one matrix: each gradient is one Gemm."""
    a, b = node.inputs
    da = db = None
    is_vector = graph.rank(b, node) == 1
    column = graph.ints([-1, 1])
    is_flat = not is_vector and len(graph.lengths(a) or ()) == 2
    rows = dy if is_flat else graph.op("Reshape", dy, column) if is_vector else graph.op("Flatten", dy, axis=-1)
    if node.wants(0):
        matrix = graph.op("Reshape", b, column) if is_vector else b
        da = graph.op("Gemm", rows, matrix, transB=1)
        da = da if is_flat else graph.reshaped(da, a)
    if node.wants(1):
        left = a if is_flat else graph.op("Flatten", a, axis=-1)
        if not is_vector and _is_transpose(graph, b):
            # The rule of Transpose removes this Transpose again, which saves copying a large weight.
            db = graph.op("Transpose", graph.op("Gemm", rows, left, transA=1), perm=[1, 0])
        else:
            db = graph.op("Gemm", left, rows, transA=1)
            db = graph.reshaped(db, b) if is_vector else db
    return [da, db]


def _is_transpose(graph: Graph, matrix: str) -> bool:
    """Whether a matrix is the transpose of a tensor, as the weight of PyTorch's Linear is."""
    producer = graph.producer(matrix)
    return producer is not None and producer.op_type == "Transpose" and producer.domain == ""


def _matmul_of_many(graph: Graph, node: Node, dy: str, is_vector: bool) -> Gradients:
    """A product of stacked matrices; the first factor may be a vector."""
    a, b = node.inputs
    rank_a, rank_b = (graph.rank(name, node) for name in node.inputs)
    rows, many = dy, a
    if is_vector:
        rows, many, rank_a = graph.op("Unsqueeze", dy, graph.ints([-2])), graph.op("Unsqueeze", a, graph.ints([0])), 2
    da = db = None
    if node.wants(0):
        da = _summed(graph, node, _product(graph, rows, _transposed(graph, b, rank_b)), a)
    if node.wants(1):
        db = _summed(graph, node, _product(graph, _transposed(graph, many, rank_a), rows), b)
    return [da, db]


def _product(graph: Graph, left: str, right: str) -> str:
    """Products of stacked matrices, 0 if the inner length is 0.

    For double and an inner length of 0, ONNX Runtime (1.31) clears only the first matrix, not the others.
    """
    made = graph.op("MatMul", left, right)
    terms = (graph.lengths(left) or [None])[-1]
    if graph.element_type(left) != onnx.TensorProto.DOUBLE or (isinstance(terms, int) and terms > 0):
        return made
    return graph.masked(graph.op("Greater", graph.shape(left, -1), graph.ints([0])), made, left)


def _transposed(graph: Graph, name: str, rank: int) -> str:
    """Matrices, transposed."""
    return graph.op("Transpose", name, perm=[*range(rank - 2), rank - 1, rank - 2])


def _summed(graph: Graph, node: Node, gradient: str, source: str) -> str:
    """The gradient of a factor: summed over the leading axes along which the factor was broadcast."""
    before, after = graph.lengths(source), graph.lengths(node.outputs[0])
    if before and after and None not in before[:-2] and len(before) > 1 and before[:-2] == after[:-2]:
        return gradient
    return sum_to(graph, gradient, source, gradient)


@rule("Gemm")
def gemm(graph: Graph, node: Node, dy: str) -> Gradients:
    """The sum alpha * A' B' + beta * C, where A' and B' are A and B or their transposes."""
    a, b, c = (node.input(i) for i in range(3))
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    trans_a, trans_b = (int(bool(node.attribute(name, 0))) for name in ("transA", "transB"))
    da = db = dc = None
    if node.wants(0):
        factors, trans = ((b, dy), (trans_b, 1)) if trans_a else ((dy, b), (0, 1 - trans_b))
        da = graph.op("Gemm", *factors, alpha=alpha, transA=trans[0], transB=trans[1])
    if node.wants(1):
        factors, trans = ((dy, a), (1, trans_a)) if trans_b else ((a, dy), (1 - trans_a, 0))
        db = graph.op("Gemm", *factors, alpha=alpha, transA=trans[0], transB=trans[1])
    if node.wants(2):
        dc = sum_to(graph, dy, c, node.outputs[0])
        dc = dc if beta == 1 else graph.op("Mul", dc, graph.number(beta, c))
    return [da, db, dc]


@rule("Det")
def determinant(graph: Graph, node: Node, dy: str) -> Gradients:
    """Determinants: dy times the cofactors, which are determinants with one row replaced by a unit vector.

    This is right for singular matrices too, where PyTorch gives 0 for some, and takes n^2 determinants.

    Raises:
        ValueError: the number of rows is unknown or too large.
    """
    x = node.input(0)
    rows = next((n for n in (graph.lengths(x) or [])[-2:] if isinstance(n, int)), None)
    if rows is None or rows > _MAX_DET_ROWS:
        raise ValueError(
            f"{node}: its matrices have {rows or 'an unknown number of'} rows: must be {_MAX_DET_ROWS} or less"
        )
    is_row = np.eye(rows, dtype=bool).reshape(rows, 1, rows, 1)
    units = graph.op("CastLike", graph.tensor(np.eye(rows, dtype=np.float32).reshape(1, rows, 1, rows)), x)
    cofactors = graph.op(
        "Det", graph.op("Where", graph.tensor(is_row), units, graph.op("Unsqueeze", x, graph.ints([-4, -3])))
    )
    return [graph.op("Mul", cofactors, graph.op("Unsqueeze", dy, graph.ints([-2, -1])))]
