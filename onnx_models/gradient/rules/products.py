# SPDX-License-Identifier: MIT
"""Rules of matrix products and of Einsum."""

from __future__ import annotations

import string
from collections.abc import Collection, Sequence
from itertools import combinations

import numpy as np
import onnx

from onnx_models.gradient.graph import GradientGraph, Node, sum_to
from onnx_models.gradient.registry import Gradients, rule

_MAX_DET_ROWS = 32
"""The most rows of a matrix for Det: its gradient needs memory for rows^4 elements, here a million."""


@rule("MatMul")
def matmul(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """NumPy's matmul: a vector is a matrix of one row or column, and leading axes broadcast."""
    a, b = node.inputs
    if graph.rank(b, node) <= 2:
        return _matmul_by_matrix(graph, node, dy)
    return _matmul_of_many(graph, node, dy, graph.rank(a, node) == 1)


def _matmul_by_matrix(graph: GradientGraph, node: Node, dy: str) -> Gradients:
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
        producer = graph.producer(b)
        if not is_vector and producer is not None and (producer.domain, producer.op_type) == ("", "Transpose"):
            # B may be the weight of PyTorch's Linear: the rule of Transpose removes this one again, which saves a copy.
            db = graph.op("Transpose", graph.op("Gemm", rows, left, transA=1), perm=[1, 0])
        else:
            db = graph.op("Gemm", left, rows, transA=1)
            db = graph.reshaped(db, b) if is_vector else db
    return [da, db]


def _matmul_of_many(graph: GradientGraph, node: Node, dy: str, is_vector: bool) -> Gradients:
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


def _product(graph: GradientGraph, left: str, right: str) -> str:
    """Products of stacked matrices, 0 if the inner length is 0.

    For double and an inner length of 0, ONNX Runtime (1.31) clears only the first matrix, not the others.
    """
    product = graph.op("MatMul", left, right)
    terms = (graph.lengths(left) or [None])[-1]
    if graph.element_type(left) != onnx.TensorProto.DOUBLE or (isinstance(terms, int) and terms > 0):
        return product
    return graph.masked(graph.op("Greater", graph.shape(left, -1), graph.ints([0])), product, left)


def _transposed(graph: GradientGraph, name: str, rank: int) -> str:
    return graph.op("Transpose", name, perm=[*range(rank - 2), rank - 1, rank - 2])


def _summed(graph: GradientGraph, node: Node, gradient: str, source: str) -> str:
    """The gradient of a factor: summed over the leading axes along which the factor was broadcast."""
    before, after = graph.lengths(source), graph.lengths(node.outputs[0])
    if before and after and None not in before[:-2] and len(before) > 1 and before[:-2] == after[:-2]:
        return gradient
    return sum_to(graph, gradient, source, gradient)


@rule("Gemm")
def gemm(graph: GradientGraph, node: Node, dy: str) -> Gradients:
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
def determinant(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """Determinants: dy times the cofactors, which are determinants with one row replaced by a unit vector.

    This is right for singular matrices too, where PyTorch gives 0 for some, and takes n^2 determinants.
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


@rule("Einsum")
def einsum(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """Sums of products over labelled axes, with repeated labels (diagonals), an ellipsis, and labels of one operand only."""
    terms, output = _named(node, [graph.rank(name, node) if "..." in _equation(node) else None for name in node.inputs])
    _check_lengths(graph, node, terms, set(_equation(node)))
    return [_by_operand(graph, node, dy, terms, output, i) if node.wants(i) else None for i in range(len(node.inputs))]


def _equation(node: Node) -> str:
    return str(node.attribute("equation")).replace(" ", "")


def _named(node: Node, ranks: Sequence[int | None]) -> tuple[list[str], str]:
    """The labels of all axes of the operands and of the output, one letter each, with ellipses replaced by letters.

    The ranks of the operands are only needed if the equation has an ellipsis.
    """
    left, arrow, output = _equation(node).partition("->")
    terms = left.split(",")
    if len(terms) != len(node.inputs):
        raise ValueError(
            f"{node}: equation = {left + arrow + output!r} has {len(terms)} operands: must have {len(ranks)}"
        )
    unnamed = [
        0 if rank is None else rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)
    ]
    unnamed = [count if "..." in term else 0 for count, term in zip(unnamed, terms, strict=True)]
    free = [letter for letter in string.ascii_letters if letter not in left]
    if min(unnamed) < 0 or max(unnamed) > len(free):
        raise ValueError(
            f"{node}: equation = {left + arrow + output!r} must agree with operands of ranks {list(ranks)}"
        )
    # The axes of ellipses are aligned at the last one, as in broadcasting.
    whole = "".join(free[: max(unnamed)])
    terms = [term.replace("...", whole[len(whole) - n :]) for term, n in zip(terms, unnamed, strict=True)]
    if not arrow:
        named = left.replace("...", "").replace(",", "")
        output = "..." + "".join(sorted(name for name in set(named) if named.count(name) == 1))
    return terms, output.replace("...", whole)


def _check_lengths(graph: GradientGraph, node: Node, terms: Sequence[str], letters: Collection[str]) -> None:
    """Refuse axes of one label and different lengths, which shape inference accepts."""
    known: dict[str, int] = {}
    for name, term in zip(node.inputs, terms, strict=True):
        for letter, length in zip(term, graph.lengths(name) or [], strict=False):
            if letter in letters and isinstance(length, int) and known.setdefault(letter, length) != length:
                raise ValueError(
                    f"{node}: axis {letter!r} of {name!r} has length {length}: must be {known[letter]}, as elsewhere"
                )


def _by_operand(graph: GradientGraph, node: Node, dy: str, terms: Sequence[str], output: str, i: int) -> str:
    x, term = node.inputs[i], terms[i]
    labels = _equation(node)
    others = [_without_ones(graph, name, terms[j], labels) for j, name in enumerate(node.inputs) if j != i]
    # ONNX Runtime's Einsum is not given a dY of rank 0; it is multiplied afterwards.
    operands = [(output, dy), *others] if output or not others else others
    names = {letter for names, _ in operands for letter in names}.difference(_ones(graph, x, term, labels))
    kept = "".join(letter for letter in dict.fromkeys(term) if letter in names)
    equation = ",".join(names for names, _ in operands) + "->" + kept
    product = operands[0][1]
    if equation != f"{kept}->{kept}":
        product = graph.op("Einsum", *(name for _, name in operands), equation=equation)
    if operands is others:
        product = graph.op("Mul", product, dy)
    if kept != term:
        product = broadcast_back(graph, x, product, kept, term)
    elif (lengths := graph.lengths(x)) is None or None in lengths or lengths != graph.lengths(product):
        # An axis of an ellipsis may have length 1 and be broadcast, in this operand or in another one.
        product = graph.op("Expand", product, graph.shape(x))
    return sum_to(graph, product, x, product)


def _ones(graph: GradientGraph, name: str, term: str, labels: str) -> dict[str, int]:
    """The axes of an ellipsis that are known to have length 1 in an operand, by letter: they may be broadcast.

    An Einsum with letters for these would not be accepted in turn, as shape inference takes any of the lengths.
    """
    pairs = enumerate(zip(term, graph.lengths(name) or [], strict=False))
    return {letter: axis for axis, (letter, length) in pairs if length == 1 and letter not in labels}


def _without_ones(graph: GradientGraph, name: str, term: str, labels: str) -> tuple[str, str]:
    """The letters and the name of an operand without such axes."""
    ones = _ones(graph, name, term, labels)
    if not ones:
        return term, name
    kept = "".join(letter for letter in term if letter not in ones)
    return kept, graph.op("Squeeze", name, graph.ints(ones.values()))


def broadcast_back(graph: GradientGraph, x: str, product: str, kept: str, term: str) -> str:
    """A gradient in the shape of x: repeated along labels of x only, and placed on the diagonal of repeated labels."""
    missing, left = [], list(kept)
    for axis, letter in enumerate(term):
        if left and left[0] == letter:
            left.pop(0)
        else:
            missing.append(axis)
    whole = graph.op("Expand", graph.op("Unsqueeze", product, graph.ints(missing)), graph.shape(x))
    for one, other in combinations(range(len(term)), 2):
        if term[one] == term[other] and term[one] not in term[one + 1 : other]:
            places = (_places(graph, x, axis, len(term)) for axis in (one, other))
            whole = graph.masked(graph.op("Equal", *places), whole, x)
    return whole


def _places(graph: GradientGraph, x: str, axis: int, rank: int) -> str:
    """The indices along an axis, as a tensor that broadcasts to the shape of x."""
    numbers = graph.counted(graph.op("Squeeze", graph.shape(x, axis, axis + 1)))
    return graph.op("Unsqueeze", numbers, graph.ints(range(1, rank - axis)))
