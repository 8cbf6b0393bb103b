"""The rule of Einsum: the gradient of each operand is an Einsum of dY and the other operands."""

from __future__ import annotations

import string
from collections.abc import Collection, Sequence
from itertools import combinations

from onnx_models.gradient.broadcast import sum_to
from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.registry import Gradients, rule


@rule("Einsum")
def einsum(graph: Graph, node: Node, dy: str) -> Gradients:
    """Sums of products over labelled axes, with repeated labels (diagonals), an ellipsis, and labels of one operand only."""
    terms, output = _named(node, [graph.rank(name, node) if "..." in _equation(node) else None for name in node.inputs])
    _check_lengths(graph, node, terms, set(_equation(node)))
    return [_by_operand(graph, node, dy, terms, output, i) if node.wants(i) else None for i in range(len(node.inputs))]


def _equation(node: Node) -> str:
    return str(node.attribute("equation")).replace(" ", "")


def _named(node: Node, ranks: Sequence[int | None]) -> tuple[list[str], str]:
    """The labels of all axes of the operands and of the output, one letter each, with ellipses replaced by letters.

    Args:
        node: the Einsum.
        ranks: ranks of the operands; only needed if the equation has an ellipsis.

    Raises:
        ValueError: an operand has fewer axes than labels, or there are more axes than letters.
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


def _check_lengths(graph: Graph, node: Node, terms: Sequence[str], letters: Collection[str]) -> None:
    """Refuse axes of one label and different lengths, which shape inference accepts."""
    known: dict[str, int] = {}
    for name, term in zip(node.inputs, terms, strict=True):
        for letter, length in zip(term, graph.lengths(name) or [], strict=False):
            if letter in letters and isinstance(length, int) and known.setdefault(letter, length) != length:
                raise ValueError(
                    f"{node}: axis {letter!r} of {name!r} has length {length}: must be {known[letter]}, as elsewhere"
                )


def _by_operand(graph: Graph, node: Node, dy: str, terms: Sequence[str], output: str, i: int) -> str:
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
    elif not _same_lengths(graph, x, product):
        # An axis of an ellipsis may have length 1 and be broadcast, in this operand or in another one.
        product = graph.op("Expand", product, graph.shape(x))
    return sum_to(graph, product, x, product)


def _ones(graph: Graph, name: str, term: str, labels: str) -> dict[str, int]:
    """The axes of an ellipsis that are known to have length 1 in an operand, by letter: they may be broadcast.

    An Einsum with letters for these would not be accepted in turn, as shape inference takes any of the lengths.
    """
    pairs = enumerate(zip(term, graph.lengths(name) or [], strict=False))
    return {letter: axis for axis, (letter, length) in pairs if length == 1 and letter not in labels}


def _without_ones(graph: Graph, name: str, term: str, labels: str) -> tuple[str, str]:
    """The letters and the name of an operand without such axes."""
    ones = _ones(graph, name, term, labels)
    if not ones:
        return term, name
    kept = "".join(letter for letter in term if letter not in ones)
    return kept, graph.op("Squeeze", name, graph.ints(ones.values()))


def _same_lengths(graph: Graph, a: str, b: str) -> bool:
    lengths = graph.lengths(a)
    return lengths is not None and None not in lengths and lengths == graph.lengths(b)


def broadcast_back(graph: Graph, x: str, product: str, kept: str, term: str) -> str:
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


def _places(graph: Graph, x: str, axis: int, rank: int) -> str:
    """The indices along an axis, as a tensor that broadcasts to the shape of x."""
    numbers = graph.counted(graph.op("Squeeze", graph.shape(x, axis, axis + 1)))
    return graph.op("Unsqueeze", numbers, graph.ints(range(1, rank - axis)))
