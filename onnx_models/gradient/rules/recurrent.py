# SPDX-License-Identifier: MIT
"""Recurrent layers, LSTM, GRU and RNN: each is decomposed into a Scan over the steps, which is differentiated.

The products of all inputs with W, and the biases, are computed before the Scan. Beyond the end of a sequence states and
outputs are 0; its final states are picked from those of all steps, 0 without a step, as in ONNX Runtime. In shapes, T is the
number of steps, N the number of sequences, I the number of inputs, H the size of a state, and G*H the size of some gates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx

from onnx_models.gradient.graph import Expr, GradientGraph, Node
from onnx_models.gradient.registry import decomposition
from onnx_models.gradient.subgraph import Subgraph, slice_type, tensor_type

_X, _W, _R, _B, _SEQUENCE_LENS, _INITIAL_H, _INITIAL_C, _P = range(8)
"""Indices of the inputs; GRU and RNN have none from _INITIAL_C on."""

_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}

_GATES = {"LSTM": 3, "GRU": 2, "RNN": 0}
"""The number of gates in each kind of layer. They come first in W, R and B, the candidate for the new state last."""

Activation = Callable[[Expr], Expr]

_ACTIVATIONS: dict[str, tuple[Callable[..., Expr], tuple[float | None, ...]]] = {
    "affine": (lambda x, alpha, beta: alpha * x + beta, (None, None)),
    "elu": (lambda x, alpha: x.op("Elu", alpha=alpha), (1.0,)),
    "hardsigmoid": (lambda x, alpha, beta: x.op("HardSigmoid", alpha=alpha, beta=beta), (0.2, 0.5)),
    "leakyrelu": (lambda x, alpha: x.op("LeakyRelu", alpha=alpha), (0.01,)),
    "relu": (lambda x: x.op("Relu"), ()),
    "scaledtanh": (lambda x, alpha, beta: alpha * (beta * x).op("Tanh"), (None, None)),
    "sigmoid": (lambda x: x.op("Sigmoid"), ()),
    "softplus": (lambda x: x.op("Softplus"), ()),
    "softsign": (lambda x: x.op("Softsign"), ()),
    "tanh": (lambda x: x.op("Tanh"), ()),
    "thresholdedrelu": (lambda x, alpha: x.op("ThresholdedRelu", alpha=alpha), (None,)),
}
"""The functions, and the defaults of alpha and beta; None if the specification gives none or ONNX Runtime has another."""


def _with_numbers(function: Callable[..., Expr], numbers: Sequence[float | None]) -> Activation:
    return lambda x: function(x, *numbers)


def _activations(node: Node, directions: int) -> list[list[Activation]]:
    """The activation functions of each direction, in the order of the specification."""
    defaults = _DEFAULTS[node.proto.op_type]
    names = node.attribute("activations") or directions * list(defaults)
    names = [name.decode() if isinstance(name, bytes) else name for name in names]
    if len(names) != directions * len(defaults):
        raise ValueError(f"{node}: activations = {names}: must be {directions * len(defaults)} names")
    numbers = [iter(node.attribute(f"activation_{which}") or ()) for which in ("alpha", "beta")]
    activations: list[Activation] = []
    for name in names:
        if name.lower() not in _ACTIVATIONS:
            raise ValueError(
                f"{node}: activations = {names}: each must be one of {sorted(_ACTIVATIONS)}, in upper or lower case"
            )
        function, otherwise = _ACTIVATIONS[name.lower()]
        values = [next(value, default) for value, default in zip(numbers, otherwise, strict=False)]
        if None in values:
            raise ValueError(
                f"{node}: the activation {name} needs activation_alpha and activation_beta without default"
            )
        activations.append(_with_numbers(function, values))
    return [activations[i * len(defaults) : (i + 1) * len(defaults)] for i in range(directions)]


@dataclass(frozen=True)
class _Cell:
    """One step of one direction; the names are those of tensors outside of the Scan.

    node: the layer. activations: of the gates, of the candidate, and of the output of an LSTM. r: the parts of R for the
    gates [G*H, H] and for the candidate [H, H]; an RNN has the latter alone. reset_bias: the part of B that a GRU with
    linear_before_reset adds to its product with R, [H], or none. p: the peephole weights of i, o and f, each [H], or none.
    """

    node: Node
    activations: Sequence[Activation]
    r: Sequence[str]
    reset_bias: Sequence[str]
    p: Sequence[str]

    def act(self, i: int, x: Expr) -> Expr:
        """Activation i of x, which is clipped first."""
        limit = self.node.attribute("clip")
        return self.activations[i](x if limit is None else x.op("Clip", -limit, limit))

    def product(self, h: Expr, place: int, *added: Expr) -> Expr:
        """The product of h with the transpose of a part of R, plus `added` if given."""
        return h.op("Gemm", Expr(h.graph, self.r[place], h.kind), *added, transB=1)

    def peephole(self, x: Expr, place: int, state: Expr) -> Expr:
        """A gate that also sees the cell state of an LSTM."""
        return self.act(0, x + state * Expr(x.graph, self.p[place], x.kind))


def _lstm(cell: _Cell, xs: Sequence[Expr], states: Sequence[Expr]) -> list[Expr]:
    """The new h = o*g(C) and C = f*C + i*c, with gates i, o, f and the candidate c."""
    h, state = states
    gates, candidate = cell.product(h, 0, xs[0]), cell.act(1, cell.product(h, 1, xs[1]))
    i, o, f = _split(gates if cell.p else cell.act(0, gates), 3)
    if cell.p:
        i, f = cell.peephole(i, 0, state), cell.peephole(f, 2, state)
    after = (1 - i if cell.node.attribute("input_forget", 0) else f) * state + i * candidate
    if cell.p:
        o = cell.peephole(o, 1, after)
    return [o * cell.activations[2](after), after]


def _gru(cell: _Cell, xs: Sequence[Expr], states: Sequence[Expr]) -> list[Expr]:
    """The new h = (1 - z)*n + z*h, with gates z and r; the candidate n depends on r*(h R') or (r*h) R'."""
    (h,) = states
    z, r = _split(cell.act(0, cell.product(h, 0, xs[0])), 2)
    if cell.node.attribute("linear_before_reset", 0):
        bias = [Expr(h.graph, name, h.kind) for name in cell.reset_bias]
        n = cell.act(1, xs[1] + r * cell.product(h, 1, *bias))
    else:
        n = cell.act(1, cell.product(r * h, 1, xs[1]))
    return [n + z * (h - n)]


def _rnn(cell: _Cell, xs: Sequence[Expr], states: Sequence[Expr]) -> list[Expr]:
    """The new h = f(x W' + h R' + b)."""
    return [cell.act(0, cell.product(states[0], 0, xs[0]))]


_CELLS = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}
"""Compute the states after a step from the products of the inputs with W, for gates and candidate, and the states."""


def _split(term: Expr, count: int) -> list[Expr]:
    parts = term.graph.ops("Split", term.name, outputs=count, axis=-1, num_outputs=count)
    return [Expr(term.graph, part, term.kind) for part in parts]


@decomposition("LSTM", "GRU", "RNN")
def recurrent(graph: GradientGraph, node: Node) -> Sequence[str]:
    """A layer that is forward, reverse or bidirectional."""
    direction, is_batch_first = node.attribute("direction", "forward"), bool(node.attribute("layout", 0))
    if direction not in ("forward", "reverse", "bidirectional"):
        raise ValueError(f"{node}: direction = {direction!r}: must be forward, reverse or bidirectional")
    count = 2 if direction == "bidirectional" else 1
    activations = _activations(node, count)
    _set_ranks(graph, node)

    def transposed(name: str, perm: Sequence[int]) -> str:
        return graph.op("Transpose", name, perm=list(perm)) if is_batch_first else name

    def by_direction(i: int, perm: Sequence[int] = ()) -> list[str]:
        """The part of an input that belongs to each direction; "" if it is omitted."""
        if not node.input(i):
            return [""] * count
        name = transposed(node.input(i), perm) if perm else node.input(i)
        parts = graph.ops("Split", name, outputs=2, axis=0, num_outputs=2) if count == 2 else [name]
        return [graph.op("Squeeze", part, graph.ints([0])) for part in parts]

    x = transposed(node.inputs[_X], (1, 0, 2))
    ends = _Ends.of(graph, x, node.input(_SEQUENCE_LENS)) if node.input(_SEQUENCE_LENS) else None
    if ends is not None:
        x = graph.masked(ends.mask, x, x)  # the padding may be NaN
    ws, rs, bs, ps = (by_direction(i) for i in (_W, _R, _B, _P))
    states = (_INITIAL_H, _INITIAL_C) if node.proto.op_type == "LSTM" else (_INITIAL_H,)
    starts = [by_direction(i, (1, 0, 2)) for i in states]
    scans = []
    for d in range(count):
        is_backwards = d == 1 or direction == "reverse"
        steps = ends.reversed(x) if ends is not None and is_backwards else x
        cell, xs = _cell(graph, node, steps, (ws[d], rs[d], bs[d], ps[d]), activations[d])
        nothing = graph.op("Expand", graph.number(0.0, x), graph.joined(graph.shape(x, 1, 2), graph.shape(rs[d], 1, 2)))
        scans.append(_scanned(graph, cell, xs, [start[d] or nothing for start in starts], ends, is_backwards))
    ys, *finals = zip(*scans, strict=True)
    outputs = [transposed(_joined(graph, ys, 1), (2, 0, 1, 3))]
    outputs += [transposed(_joined(graph, parts, 0), (1, 0, 2)) for parts in finals]
    return [output if name else "" for name, output in zip(node.outputs, outputs, strict=False)]


def _set_ranks(graph: GradientGraph, node: Node) -> None:
    """Set the ranks that the specification gives, if inference does not find them."""
    for names, ranks in ((node.inputs, (3, 3, 3, 2, 1, 3, 3, 2)), (node.outputs, (4, 3, 3))):
        for name, rank in zip(names, ranks, strict=False):
            kind = tensor_type(graph.element_type(name), [None] * rank) if name else None
            if kind is not None and graph.lengths(name) is None:
                graph.declare(name, kind)


@dataclass(frozen=True)
class _Ends:
    """The ends of sequences.

    lengths: name of the numbers of steps, int64 [N]. mask, last: names of whether a sequence has each step, and of whether
    it is the last one, [T, N, 1].
    """

    graph: GradientGraph
    lengths: str
    mask: str
    last: str

    @classmethod
    def of(cls, graph: GradientGraph, x: str, lengths: str) -> _Ends:
        """The ends of sequences of inputs [T, N, I]."""
        ends = graph.op("Cast", lengths, to=onnx.TensorProto.INT64)
        steps = graph.counted(graph.op("Squeeze", graph.shape(x, 0, 1), graph.ints([0])))
        places = graph.op("Sub", ends, graph.op("Unsqueeze", steps, graph.ints([1])))
        left = graph.op("Unsqueeze", places, graph.ints([2]))
        return cls(graph, ends, graph.op("Greater", left, graph.integer(0)), graph.op("Equal", left, graph.integer(1)))

    def reversed(self, x: str) -> str:
        """The steps of each sequence in reverse order, followed by its padding."""
        return self.graph.op("ReverseSequence", x, self.lengths, batch_axis=1, time_axis=0)

    def picked(self, states: str) -> str:
        """The states after the last step [N, H], from those after each step [T, N, H]."""
        graph = self.graph
        return graph.op("ReduceSum", graph.masked(self.last, states, states), graph.ints([0]), keepdims=0)


def _joined(graph: GradientGraph, parts: Sequence[str], axis: int) -> str:
    directions = [graph.op("Unsqueeze", part, graph.ints([axis])) for part in parts]
    return directions[0] if len(directions) == 1 else graph.op("Concat", *directions, axis=axis)


def _cell(
    graph: GradientGraph, node: Node, x: str, weights: Sequence[str], activations: Sequence[Activation]
) -> tuple[_Cell, list[str]]:
    """The cell of a direction, and the products of x [T, N, I] with W, biases included, for gates and candidate.

    The weights are W [G*H, I], R [G*H, H], B [2*G*H] or "", and P [3*H] or "".
    """
    w, r, b, p = weights
    gates = _GATES[node.proto.op_type]

    def equal(name: str, count: int) -> list[str]:
        return graph.ops("Split", name, outputs=count, axis=0, num_outputs=count) if count > 1 else [name]

    def parted(name: str) -> list[str]:
        """The parts for the gates and for the candidate."""
        *others, candidate = equal(name, gates + 1)
        return [graph.op("Concat", *others, axis=0), candidate] if others else [candidate]

    biases = [parted(part) for part in equal(b, 2)] if b else []
    reset_bias = [biases[1].pop()] if b and node.attribute("linear_before_reset", 0) else []
    rows, xs = graph.op("Flatten", x, axis=2), []
    for place, part in enumerate(parted(w)):
        terms = [parts[place] for parts in biases if place < len(parts)]
        bias = [terms[0] if len(terms) == 1 else graph.op("Add", *terms)] if terms else []
        product = graph.op("Gemm", rows, part, *bias, transB=1)
        xs.append(graph.in_shape(product, graph.shape(x, 0, 2), graph.shape(part, 0, 1)))
    return _Cell(node, activations, parted(r), reset_bias, equal(p, 3) if p else []), xs


def _scanned(
    graph: GradientGraph, cell: _Cell, xs: Sequence[str], starts: Sequence[str], ends: _Ends | None, is_backwards: bool
) -> list[str]:
    """The outputs of all steps [T, N, H], and the final states [N, H], from the initial ones.

    What the cell reads of each step, `xs` [T, N, G*H], is with `ends` in the order in which the steps are visited.
    """
    body = Subgraph(graph, cell.node, onnx.GraphProto(name="step"))
    sequences = list(xs) if ends is None else [*xs, graph.op("CastLike", ends.mask, xs[0])]
    states = [body.new_input("h", graph.type_of(name)) for name in starts]
    slices = [body.new_input("x", slice_type(graph, name, 0)) for name in sequences]
    before, inputs = ([Expr(body.graph, name, xs[0]) for name in names] for names in (states, slices))
    after = _CELLS[cell.node.proto.op_type](cell, inputs[: len(xs)], before)
    if ends is not None:
        # Faster than Where in both directions; 0 because states that nothing reads might grow without bound.
        after = [state * inputs[-1] for state in after]
    stacked = after[:1] if ends is None else after
    direction = int(is_backwards and ends is None)
    results = graph.ops(
        "Scan",
        *starts,
        *sequences,
        outputs=len(after) + len(stacked),
        body=body.build([*states, *slices], [state.name for state in (*after, *stacked)]),
        num_scan_inputs=len(sequences),
        scan_input_directions=[direction] * len(sequences),
        scan_output_directions=[direction] * len(stacked),
    )
    finals, stacks = results[: len(after)], results[len(after) :]
    if ends is None:
        return [stacks[0], *finals]
    return [ends.reversed(stacks[0]) if is_backwards else stacks[0], *map(ends.picked, stacks)]
