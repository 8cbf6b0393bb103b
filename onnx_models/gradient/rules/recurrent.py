"""Rules of recurrent layers: LSTM, GRU and RNN.

The output Y of a layer holds its states after each step, so that a few large matrix products recompute all gates from Y and
the inputs. The cell state of an LSTM is not an output for each step; a Scan of a multiplication and an addition recomputes
it. Except for the product with R, a step is elementwise: reverse mode with a gradient of ones gives the derivatives of all
steps at once. The Scan from the last step to the first then only multiplies the gradient by these derivatives and by R. The
gradients of W, R and B are single large matrix products after it.

Steps beyond the end of a sequence keep the states and give outputs of 0. The final states of a sequence without steps are 0,
as in ONNX Runtime. In shapes, T is the number of steps, N of sequences, D of directions, I of inputs, H the size of a
state, and g*H that of all gates.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnx_models.gradient.graph import Expr, Graph, Node
from onnx_models.gradient.rules.registry import Gradients, Incoming, Zero, multi_output_rule
from onnx_models.gradient.subgraph import Subgraph, slice_type, tensor_type

_LENGTHS = Zero("it only determines how many steps a sequence has")

_X, _W, _R, _B, _SEQUENCE_LENS, _INITIAL_H, _INITIAL_C, _P = range(8)
"""Indices of the inputs; GRU and RNN have none from _INITIAL_C on."""

_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}

_PARAMETERS: dict[str, tuple[float | None, ...]] = {
    "affine": (None, None),
    "elu": (1.0,),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01,),
    "relu": (),
    "scaledtanh": (None, None),
    "sigmoid": (),
    "softplus": (),
    "softsign": (),
    "tanh": (),
    "thresholdedrelu": (None,),
}
"""The defaults of alpha and beta; None if the specification gives none or ONNX Runtime has another."""


@dataclass(frozen=True)
class _Activation:
    """An activation function. name: in lower case. parameters: alpha and beta, if it has them."""

    name: str
    parameters: Sequence[float]

    def of(self, x: Expr) -> Expr:
        """The function applied to each element."""
        if self.name == "affine":
            return self.parameters[0] * x + self.parameters[1]
        if self.name == "scaledtanh":
            return self.parameters[0] * (self.parameters[1] * x).op("Tanh")
        operators = ("Elu", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")
        operator = {name.lower(): name for name in (*operators, "ThresholdedRelu")}[self.name]
        attributes: dict[str, Any] = dict(zip(("alpha", "beta"), self.parameters, strict=False))
        return x.op(operator, **attributes)


def _activations(node: Node, directions: int) -> list[list[_Activation]]:
    """The activation functions of each direction, in the order of the specification."""
    operator = node.proto.op_type
    count = len(_DEFAULTS[operator])
    names = node.attribute("activations") or directions * list(_DEFAULTS[operator])
    names = [name.decode() if isinstance(name, bytes) else name for name in names]
    if len(names) != directions * count:
        raise ValueError(f"{node}: activations = {names}: must be {directions * count} names")
    given = [iter(node.attribute(f"activation_{which}") or ()) for which in ("alpha", "beta")]
    found = []
    for name in names:
        if name.lower() not in _PARAMETERS:
            raise ValueError(
                f"{node}: activations = {names}: each must be one of {sorted(_PARAMETERS)}, in upper or lower case"
            )
        defaults = _PARAMETERS[name.lower()]
        values = [next(numbers, default) for numbers, default in zip(given, defaults, strict=False)]
        parameters = [value for value in values if value is not None]
        if len(parameters) < len(values):
            raise ValueError(
                f"{node}: the activation {name} needs activation_alpha and activation_beta without default"
            )
        found.append(_Activation(name.lower(), parameters))
    return [found[i * count : (i + 1) * count] for i in range(directions)]


@dataclass
class _Layer:
    """One direction of a layer, over all steps.

    node: the layer. x: [T, N, I]. w, r: [g*H, I] and [g*H, H]. b: the biases of W and of R, each [g*H], or none.
    p: the peephole weights of i, o and f, each [H], or none. y: the outputs [T, N, H]. starts: the initial states [N, H].
    mask, next_mask: [T, N, 1], whether a sequence has this step and the one after it in memory; None if all have all steps.
    backwards: whether the layer visits the last step first. by_y: the gradient of y, or None. by_ends: the gradients of the
    final states [N, H]. activations: the activation functions.
    """

    graph: Graph
    node: Node
    x: str
    w: str
    r: str
    b: Sequence[str]
    p: Sequence[str]
    y: str
    starts: Sequence[str]
    mask: str | None
    next_mask: str | None
    backwards: bool
    by_y: str | None
    by_ends: Sequence[str]
    activations: Sequence[_Activation]

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> Expr:
        """Add a node, and return its output."""
        return Expr(self.graph, self.graph.op(op_type, *inputs, **attributes), self.x)

    def term(self, name: str) -> Expr:
        """The expression of a tensor."""
        return Expr(self.graph, name, self.x)

    def rows(self, name: str) -> str:
        """The matrix [T*N, ...] of a tensor [T, N, ...]."""
        return self.graph.op("Flatten", name, axis=2)

    def steps(self, rows: str) -> Expr:
        """The tensor [T, N, ...] of a matrix [T*N, ...]."""
        shape = self.graph.op("Concat", self.graph.shape(self.y, 0, 2), self.graph.ints([-1]), axis=0)
        return self.op("Reshape", rows, shape)

    def act(self, i: int, x: Expr) -> Expr:
        """Activation i of x, which is clipped first."""
        limit = self.node.attribute("clip")
        return self.activations[i].of(x if limit is None else x.op("Clip", -limit, limit))

    def before(self, states: str, start: str) -> str:
        """The states before each step [T, N, H], from those after each step [T, N, H] and the initial one [N, H]."""
        graph = self.graph
        first, zero = graph.op("Unsqueeze", start, graph.ints([0])), graph.ints([0])
        if not self.backwards:
            kept = graph.op("Slice", states, zero, graph.ints([-1]), zero)
            return graph.op("Concat", first, kept, axis=0)
        kept = graph.op("Slice", states, graph.ints([1]), graph.ints([np.iinfo(np.int64).max]), zero)
        shifted = graph.op("Concat", kept, first, axis=0)
        return shifted if self.next_mask is None else graph.op("Where", self.next_mask, shifted, start)

    def where_done(self, x: Expr, other: float) -> Expr:
        """x, with another number at steps beyond the end of a sequence."""
        return x if self.mask is None else x.where(self.term(self.mask), other)

    def parts(self, x: Expr, count: int) -> list[Expr]:
        """Equal parts of the last axis, each in the shape of y."""
        return [self.like_y(part) for part in _split(x, count)]

    def like_y(self, x: Expr) -> Expr:
        """Declare that a tensor has the shape of y, so that rules need not sum over axes that might be broadcast."""
        kind = self.graph.type_of(self.y)
        if kind is not None:
            self.graph.known.types[x.name] = kind
        return x

    def derivatives(self, nodes: Sequence[onnx.NodeProto], y: Expr, xs: Sequence[Expr]) -> list[Expr]:
        """The derivatives of y with respect to each x; y is an elementwise function of these, all of the same shape."""
        self.graph.infer_added(nodes)
        ones = self.op("Expand", self.graph.number(1.0, self.x), self.graph.shape(self.y))
        found = self.node.reverse(self.graph, nodes, {y.name: ones.name}, [x.name for x in xs])
        return [self.term(found.get(x.name) or self.graph.zeros(self.y)) for x in xs]

    def scan(self, starts: Sequence[str], sequences: Sequence[str], step: _Step, *, is_gradient: bool) -> list[str]:
        """The final states, then the outputs of all steps; a gradient visits the steps in the opposite order."""
        body = Subgraph(self.graph, self.node, onnx.GraphProto(name="step"))
        states = [body.new_input("h", self.graph.type_of(name)) for name in starts]
        slices = [body.new_input("x", slice_type(self.graph, name, 0)) for name in sequences]
        terms = ([Expr(body.graph, name, self.x) for name in names] for names in (states, slices))
        after, made = step(*terms)
        direction = int(self.backwards != is_gradient)
        return self.graph.ops(
            "Scan",
            *starts,
            *sequences,
            outputs=len(after) + len(made),
            body=body.build([*states, *slices], [term.name for term in (*after, *made)]),
            num_scan_inputs=len(sequences),
            scan_input_directions=[direction] * len(sequences),
            scan_output_directions=[direction] * len(made) or None,
        )

    def backward(self, derivatives: Sequence[Expr], step: _Step) -> list[str]:
        """The Scan in reverse order: the gradients of the initial states, then the outputs of all steps.

        Args:
            derivatives: tensors [T, N, ...], whose slices `step` is given.
            step: from the gradients of the states after a step, and the slices, to those of the states before it.
        """
        masks = [] if self.mask is None else [self.mask]
        by_y = [] if self.by_y is None else [self.where_done(self.term(self.by_y), 0.0).name]

        def whole(after: Sequence[Expr], given: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
            by_h, *others = after
            if by_y:
                by_h, given = by_h + given[0], given[1:]
            before, made = step([by_h, *others], given[: len(derivatives)])
            if masks:
                before[0] = before[0].where(given[-1], by_h)
            return before, made

        sequences = [*by_y, *(derivative.name for derivative in derivatives), *masks]
        return self.scan(self.by_ends, sequences, whole, is_gradient=True)


_Step = Callable[[Sequence[Expr], Sequence[Expr]], tuple[list[Expr], list[Expr]]]
"""From the states before a step and its slices to the states after it and its outputs."""


@dataclass
class _Found:
    """Gradients of one direction.

    by_gates: of the part of the gates (before clip and activation) that comes from X and W, [T, N, g*H]. by_recurrent: of
    the part that comes from the states and R. r: of R [g*H, H]. starts: of the initial states [N, H]. p: of the peephole
    weights [H].
    """

    by_gates: str
    by_recurrent: str
    r: str
    starts: Sequence[str]
    p: Sequence[str] = ()


def _concat(terms: Sequence[Expr], axis: int = -1) -> Expr:
    return terms[0].op("Concat", *terms[1:], axis=axis)


def _split(term: Expr, count: int, axis: int = -1) -> list[Expr]:
    """Equal parts."""
    parts = term.graph.ops("Split", term.name, outputs=count, axis=axis, num_outputs=count)
    return [Expr(term.graph, part, term.kind) for part in parts]


def _rnn(layer: _Layer) -> _Found:
    """The gradients of h = f(x W' + h R' + b)."""
    graph = layer.graph
    h = layer.rows(layer.before(layer.y, layer.starts[0]))
    gates = layer.like_y(layer.steps(_gates(layer, h)))
    start = len(graph.added)
    after = layer.act(0, gates)
    (derivative,) = layer.derivatives(graph.added[start:], after, [gates])

    def step(after: Sequence[Expr], derivatives: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
        by_gates = after[0] * derivatives[0]
        return [by_gates.op("MatMul", Expr(by_gates.graph, layer.r, layer.x))], [by_gates]

    by_h, by_gates = layer.backward([layer.where_done(derivative, 0.0)], step)
    return _Found(by_gates, by_gates, graph.op("Gemm", layer.rows(by_gates), h, transA=1), [by_h])


def _gates(layer: _Layer, h: str) -> str:
    """All gates [T*N, g*H] before clip and activation, given the states [T*N, H]."""
    bias = [layer.graph.op("Add", *layer.b)] if layer.b else []
    from_x = layer.graph.op("Gemm", layer.rows(layer.x), layer.w, *bias, transB=1)
    return layer.graph.op("Gemm", h, layer.r, from_x, transB=1)


def _lstm(layer: _Layer) -> _Found:
    """The gradients of C = f*C + i*c and h = o*g(C), with gates i, o, f and c of x, h and peepholes."""
    graph = layer.graph
    h = layer.rows(layer.before(layer.y, layer.starts[0]))
    i, o, f, c = layer.parts(layer.steps(_gates(layer, h)), 4)
    is_coupled = bool(layer.node.attribute("input_forget", 0))

    def opened(x: Expr, place: int, state: Expr) -> Expr:
        """A gate before clip and activation, peephole included."""
        return x + state * Expr(x.graph, layer.p[place], x.kind) if layer.p else x

    def shares(i: Expr, f: Expr, c: Expr, state: Expr) -> tuple[Expr, Expr]:
        """The factor of the cell state (f), and what is added to it (i*c)."""
        added = layer.act(0, opened(i, 0, state))
        kept = 1 - added if is_coupled else layer.act(0, opened(f, 2, state))
        return kept, added * layer.act(1, c)

    def cell(states: Sequence[Expr], slices: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
        (state,) = states
        kept, added = shares(slices[0], slices[1], slices[2], state) if layer.p else slices[:2]
        after = kept * state + added
        if layer.p and layer.mask:
            after = after.where(slices[3], state)
        return [after], [after]

    start = len(graph.added)
    if layer.p:
        masks = [layer.mask] if layer.mask else []
        _, states = layer.scan([layer.starts[1]], [i.name, f.name, c.name, *masks], cell, is_gradient=False)
        before = layer.like_y(layer.term(layer.before(states, layer.starts[1])))
        start = len(graph.added)
        kept, added = shares(i, f, c, before)
        nodes = graph.added[start:]
    else:
        kept, added = shares(i, f, c, c)
        nodes = graph.added[start:]
        slices = [layer.where_done(kept, 1.0).name, layer.where_done(added, 0.0).name]
        _, states = layer.scan([layer.starts[1]], slices, cell, is_gradient=False)
        before = layer.like_y(layer.term(layer.before(states, layer.starts[1])))
    start = len(graph.added)
    after = kept * before + added
    by_i, by_f, by_c, by_before = layer.derivatives([*nodes, *graph.added[start:]], after, [i, f, c, before])
    start, state = len(graph.added), layer.like_y(layer.term(states))
    y = layer.act(0, opened(o, 1, state)) * layer.activations[2].of(state)
    by_o, by_state = layer.derivatives(graph.added[start:], y, [o, state])

    def step(after: Sequence[Expr], derivatives: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
        by_h, by_cell = after
        by_cell = by_cell + by_h * derivatives[1]
        by_gates = _concat([by_cell, by_h, by_cell, by_cell]) * derivatives[0]
        return [by_gates.op("MatMul", Expr(by_h.graph, layer.r, layer.x)), by_cell * derivatives[2]], [by_gates]

    by_gates = layer.where_done(_concat([by_i, by_o, by_f, by_c]), 0.0)
    derivatives = [by_gates, layer.where_done(by_state, 0.0), layer.where_done(by_before, 1.0)]
    *starts, gates = layer.backward(derivatives, step)
    by_p = []
    if layer.p:
        parts = _split(layer.term(gates), 4)[:3]
        terms = [part * seen for part, seen in zip(parts, (before, state, before), strict=True)]
        by_p = [graph.op("ReduceSum", term.name, graph.ints([0, 1]), keepdims=0) for term in terms]
    return _Found(gates, gates, graph.op("Gemm", layer.rows(gates), h, transA=1), starts, by_p)


def _gru(layer: _Layer) -> _Found:
    """The gradients of h = (1 - z)*n + z*h, with gates z, r and n of x and h; n depends on r*(h R') or (r*h) R'."""
    before = layer.like_y(layer.term(layer.before(layer.y, layer.starts[0])))
    from_x = layer.graph.op("Gemm", layer.rows(layer.x), layer.w, *layer.b[:1], transB=1)
    if layer.node.attribute("linear_before_reset", 0):
        return _gru_reset_after(layer, before, from_x)
    return _gru_reset_before(layer, before, from_x)


def _mixed(layer: _Layer, z: Expr, n: Expr, before: Expr) -> Expr:
    share = layer.act(0, z)
    return (1 - share) * layer.act(1, n) + share * before


def _gru_reset_after(layer: _Layer, before: Expr, from_x: str) -> _Found:
    graph, h = layer.graph, layer.rows(before.name)
    from_h = graph.op("Gemm", h, layer.r, *layer.b[1:], transB=1)
    z, r, n = layer.parts(layer.steps(from_x), 3)
    z_of_h, r_of_h, n_of_h = layer.parts(layer.steps(from_h), 3)
    start = len(graph.added)
    y = _mixed(layer, z + z_of_h, n + layer.act(0, r + r_of_h) * n_of_h, before)
    by_z, by_r, by_n, by_n_of_h, by_before = layer.derivatives(graph.added[start:], y, [z, r, n, n_of_h, before])

    def step(after: Sequence[Expr], derivatives: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
        (by_h,) = after
        by_gates = _concat([by_h, by_h, by_h]) * derivatives[0]
        return [by_gates.op("MatMul", Expr(by_h.graph, layer.r, layer.x)) + by_h * derivatives[1]], [by_gates, by_h]

    by_gates = layer.where_done(_concat([by_z, by_r, by_n_of_h]), 0.0)
    start_h, recurrent, by_y = layer.backward([by_gates, by_before], step)
    by_n = layer.where_done(by_n, 0.0) * layer.term(by_y)
    gates = _concat([*_split(layer.term(recurrent), 3)[:2], by_n])
    return _Found(gates.name, recurrent, graph.op("Gemm", layer.rows(recurrent), h, transA=1), [start_h])


def _gru_reset_before(layer: _Layer, before: Expr, from_x: str) -> _Found:
    graph, h = layer.graph, layer.rows(before.name)
    z_and_r, of_n = _two_of_three(layer.term(layer.r), 0)
    biases = [part.name for part in _two_of_three(layer.term(layer.b[1]), 0)] if layer.b else []
    x_of_two, x_of_n = _two_of_three(layer.steps(from_x), 2)
    of_h = layer.steps(graph.op("Gemm", h, z_and_r.name, *biases[:1], transB=1))
    z, r = layer.parts(x_of_two + of_h, 2)
    start = len(graph.added)
    kept = layer.act(0, r) * before
    by_r, kept_by_before = layer.derivatives(graph.added[start:], kept, [r, before])
    n = x_of_n + layer.steps(graph.op("Gemm", layer.rows(kept.name), of_n.name, *biases[1:], transB=1))
    layer.like_y(n)
    start = len(graph.added)
    y = _mixed(layer, z, n, before)
    by_z, by_n, by_before = layer.derivatives(graph.added[start:], y, [z, n, before])

    def step(after: Sequence[Expr], derivatives: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
        (by_h,) = after
        by_z, by_r, by_n, kept_by_before, by_before = derivatives
        two, one = (Expr(by_h.graph, part.name, layer.x) for part in (z_and_r, of_n))
        for_n = by_h * by_n
        by_kept = for_n.op("MatMul", one)
        for_two = _concat([by_h * by_z, by_kept * by_r])
        total = for_two.op("MatMul", two) + by_kept * kept_by_before + by_h * by_before
        return [total], [_concat([for_two, for_n])]

    done = [layer.where_done(derivative, 0.0) for derivative in (by_z, by_r, by_n, kept_by_before, by_before)]
    start_h, gates = layer.backward(done, step)
    for_two, for_n = _two_of_three(layer.term(gates), 2)
    products = [
        layer.op("Gemm", layer.rows(rows.name), factor, transA=1)
        for rows, factor in ((for_two, h), (for_n, layer.rows(kept.name)))
    ]
    return _Found(gates, gates, _concat(products, 0).name, [start_h])


def _two_of_three(term: Expr, axis: int) -> list[Expr]:
    """The first two of three equal parts together, and the third."""
    z, r, n = _split(term, 3, axis)
    return [_concat([z, r], axis), n]


_RULES = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


@multi_output_rule("LSTM", "GRU", "RNN")
def recurrent(graph: Graph, node: Node, incoming: Incoming) -> Gradients:
    """A layer that is forward, reverse or bidirectional."""
    direction, is_batch_first = node.attribute("direction", "forward"), bool(node.attribute("layout", 0))
    if direction not in ("forward", "reverse", "bidirectional"):
        raise ValueError(f"{node}: direction = {direction!r}: must be forward, reverse or bidirectional")
    count = 2 if direction == "bidirectional" else 1
    activations = _activations(node, count)
    _set_ranks(graph, node)

    def transposed(name: str, perm: Sequence[int]) -> str:
        return graph.op("Transpose", name, perm=list(perm)) if is_batch_first else name

    def by_direction(name: str, axis: int = 0) -> list[str]:
        """The part of a tensor that belongs to each direction."""
        parts = graph.ops("Split", name, outputs=2, axis=axis, num_outputs=2) if count == 2 else [name]
        return [graph.op("Squeeze", part, graph.ints([axis])) for part in parts]

    def halves(name: str, parts: int) -> list[list[str]]:
        """For each direction, the equal parts that its row of a matrix consists of."""
        if not name:
            return [[]] * count
        return [graph.ops("Split", one, outputs=parts, axis=0, num_outputs=parts) for one in by_direction(name)]

    y = transposed(_all_states(graph, node), (1, 2, 0, 3))
    by_y = None if incoming[0] is None else transposed(incoming[0], (1, 2, 0, 3))
    ys, by_ys = by_direction(y, 1), by_direction(by_y, 1) if by_y else [None] * count
    x, mask, next_mask = transposed(node.inputs[_X], (1, 0, 2)), None, None
    lengths = node.input(_SEQUENCE_LENS)
    if lengths:
        mask, next_mask = _masks(graph, x, lengths)
        x = graph.op("Where", mask, x, graph.number(0.0, x))  # the padding may be NaN
    places = (_INITIAL_H, _INITIAL_C) if node.proto.op_type == "LSTM" else (_INITIAL_H,)
    nothing = [graph.op("Expand", graph.number(0.0, x), graph.shape(ys[0], 1, 3))] * count
    starts = [by_direction(transposed(name, (1, 0, 2))) if (name := node.input(place)) else nothing for place in places]
    ends = []
    for gradient in [*incoming[1:], None, None][: len(places)]:
        parts = nothing if gradient is None else by_direction(transposed(gradient, (1, 0, 2)))
        if lengths and gradient is not None:
            some = graph.op("Unsqueeze", graph.op("Cast", lengths, to=onnx.TensorProto.BOOL), graph.ints([1]))
            parts = [graph.masked(some, part, x) for part in parts]
        ends.append(parts)
    biases, peepholes = halves(node.input(_B), 2), halves(node.input(_P), 3)
    ws, rs = by_direction(node.inputs[_W]), by_direction(node.inputs[_R])
    layers = [
        _Layer(
            graph, node, x, ws[d], rs[d], biases[d], peepholes[d], ys[d], [start[d] for start in starts], mask, next_mask,
            d == 1 or direction == "reverse", by_ys[d], [end[d] for end in ends], activations[d],
        )
        for d in range(count)
    ]  # fmt: skip
    found = [_RULES[node.proto.op_type](layer) for layer in layers]
    return _assembled(graph, node, layers, found, transposed)


def _set_ranks(graph: Graph, node: Node) -> None:
    """Set the ranks that the specification gives, if inference does not find them."""
    for names, ranks in ((node.inputs, (3, 3, 3, 2, 1, 3, 3, 2)), (node.outputs, (4, 3, 3))):
        for name, rank in zip(names, ranks, strict=False):
            kind = tensor_type(graph.element_type(name), [None] * rank) if name else None
            if kind is not None and graph.lengths(name) is None:
                graph.known.types[name] = kind


def _assembled(
    graph: Graph,
    node: Node,
    layers: Sequence[_Layer],
    found: Sequence[_Found],
    transposed: Callable[[str, Sequence[int]], str],
) -> Gradients:
    """The gradients of the inputs, from those of the directions."""

    def together(parts: Iterable[str]) -> str:
        made = [graph.op("Unsqueeze", part, graph.ints([0])) for part in parts]
        return made[0] if len(made) == 1 else graph.op("Concat", *made, axis=0)

    def summed(gates: str) -> str:
        return graph.op("ReduceSum", gates, graph.ints([0, 1]), keepdims=0)

    pairs = list(zip(layers, found, strict=True))
    rows = [layer.rows(one.by_gates) for layer, one in pairs]
    x = layers[0].rows(layers[0].x)
    by_x = [graph.op("Gemm", gates, layer.w) for gates, layer in zip(rows, layers, strict=True)]
    whole = by_x[0] if len(by_x) == 1 else graph.op("Sum", *by_x)
    gradients: dict[int, str | Zero] = {
        _X: transposed(layers[0].steps(whole).name, (1, 0, 2)),
        _W: together(graph.op("Gemm", gates, x, transA=1) for gates in rows),
        _R: together(one.r for one in found),
        _SEQUENCE_LENS: _LENGTHS,
    }
    if node.wants(_B):
        gradients[_B] = together(
            graph.op("Concat", summed(one.by_gates), summed(one.by_recurrent), axis=0) for one in found
        )
    for place, start in ((_INITIAL_H, 0), (_INITIAL_C, 1)):
        if node.wants(place):
            gradients[place] = transposed(together(one.starts[start] for one in found), (1, 0, 2))
    if node.wants(_P):
        gradients[_P] = together(graph.op("Concat", *one.p, axis=0) for one in found)
    return [gradients.get(place) for place in range(len(node.inputs))]


def _all_states(graph: Graph, node: Node) -> str:
    """The name of the output Y; a node that omits it is replaced by one that has it."""
    if node.output(0):
        return node.output(0)
    other = copy.deepcopy(node.proto)
    other.output[0] = graph.name("Y")
    graph.replace(node.proto, [other])
    return str(other.output[0])


def _masks(graph: Graph, x: str, lengths: str) -> tuple[str, str]:
    """Whether a sequence has each step, and the one after it in memory, [T, N, 1]; from x [T, N, I] and lengths [N]."""
    steps = graph.op("Squeeze", graph.shape(x, 0, 1), graph.ints([0]))
    places = graph.op("Unsqueeze", graph.counted(steps), graph.ints([1]))
    ends = graph.op("Cast", lengths, to=onnx.TensorProto.INT64)
    first, second = (
        graph.op("Unsqueeze", graph.op("Less", place, ends), graph.ints([2]))
        for place in (places, graph.op("Add", places, graph.integer(1)))
    )
    return first, second
