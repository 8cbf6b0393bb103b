# SPDX-License-Identifier: MIT
"""Gradients of elementwise operators, as a table with an expression for each input.

At a kink the derivative is the one from the left, but Abs and HardSigmoid have 0 there, and HardSwish 1 at 3, as in
PyTorch. A norm is a root of a sum of powers, as exported for PyTorch's vector_norm, std and similar functions: it has no
derivative at 0, and PyTorch (2.13) defines it as 0. The product of the derivatives of the root, which is infinite, and of
the powers, which is 0, would be NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import onnx

from onnx_models.gradient.graph import Expr, GradientGraph, Node, sum_to
from onnx_models.gradient.registry import Gradients, rule

_ROUNDING = 1e-6
"""The relative error of an exponent such as 1/3 in float32."""


def is_norm(graph: GradientGraph, name: str, power: float) -> bool:
    """Whether a tensor to this power is a norm: a sum or mean of powers, perhaps times a number of elements."""
    node = graph.producer(name)
    if node is None:
        return False
    if node.op_type in ("Mul", "Div"):
        a, b = node.input
        of_quotient = _is_count(graph, b) and is_norm(graph, a, power)
        return of_quotient or (node.op_type == "Mul" and _is_count(graph, a) and is_norm(graph, b, power))
    if node.op_type == "ReduceSumSquare":
        return power == 0.5
    return node.op_type in ("ReduceSum", "ReduceMean") and _is_power(graph, node.input[0], power)


def _is_power(graph: GradientGraph, name: str, power: float) -> bool:
    """Whether a tensor is another one to the power 1/power > 1, and never negative."""
    node = graph.producer(name)
    if node is None or not 0 < power < 1:
        return False
    if node.op_type == "Mul":
        return power == 0.5 and node.input[0] == node.input[1]
    if node.op_type != "Pow":
        return False
    exponent = constant_number(graph, node.input[1])
    if exponent is None or abs(exponent * power - 1) >= _ROUNDING:
        return False
    base = graph.producer(node.input[0])
    return exponent % 2 != 1 or (base is not None and base.op_type == "Abs")


def constant_number(graph: GradientGraph, name: str) -> float | None:
    """The value of a constant of one element, possibly after casts; None for any other tensor."""
    node = graph.producer(name)
    if node is not None and node.op_type in ("Cast", "CastLike"):
        return constant_number(graph, node.input[0])
    value = graph.constant(name)
    return float(value.item()) if value is not None and value.size == 1 and value.dtype.kind in "fiu" else None


def _is_count(graph: GradientGraph, name: str) -> bool:
    """Whether a tensor is computed from numbers of elements and constants only."""
    if constant_number(graph, name) is not None:
        return True
    node = graph.producer(name)
    if node is None:
        return False
    if node.op_type in ("Cast", "CastLike"):
        return graph.element_type(node.input[0]) in (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
    return node.op_type in ("Sub", "Add", "Max") and all(_is_count(graph, name) for name in node.input)


@dataclass(frozen=True)
class Terms:
    """The variables in a node's gradient expressions: g, the gradient of its output, attributes and tensors."""

    node: Node
    g: Expr

    def of(self, name: str) -> Expr:
        """A tensor; numbers in expressions have the type of the first input."""
        return Expr(self.g.graph, name, self.node.inputs[0])

    def __call__(self, attribute: str, default: Any) -> Any:
        """The value of an attribute."""
        return self.node.attribute(attribute, default)

    @property
    def x(self) -> Expr:
        """The first input."""
        return self.of(self.node.inputs[0])

    @property
    def b(self) -> Expr:
        """The second input."""
        return self.of(self.node.inputs[1])

    @property
    def y(self) -> Expr:
        """The output."""
        return self.of(self.node.outputs[0])

    @property
    def exponent(self) -> Expr:
        """The second input in the type of the first one."""
        return self.b if self.has_own_type else self.b.op("CastLike", self.x)

    @property
    def has_own_type(self) -> bool:
        """Whether the second input is known to have the type of the first one."""
        kinds = [self.g.graph.element_type(name) for name in self.node.inputs[:2]]
        return kinds[0] is not None and kinds[0] == kinds[1]


Formula = Callable[[Terms], Expr]


def _sqrt(n: Terms) -> Expr:
    """The derivative at 0 is infinite, or 0 if y is a norm (`is_norm`)."""
    infinite = 0.5 / n.y
    is_flat_at_0 = is_norm(n.g.graph, n.node.inputs[0], 0.5)
    return n.g * (n.x.of(0.0).where(n.y.equals(0.0), infinite) if is_flat_at_0 else infinite)


def _gelu(n: Terms) -> Expr:
    """The product of x and the normal distribution function, or its approximation by tanh."""
    x = n.x
    if n("approximate", "none") == "none":
        below = 0.5 * (1 + (x * math.sqrt(0.5)).op("Erf"))
        return n.g * (below + x * (1 / math.sqrt(2 * math.pi) * (-0.5 * (x * x)).op("Exp")))
    scale, cubic = math.sqrt(2 / math.pi), 0.044715
    square = x * x
    bend = (scale * x * (1 + cubic * square)).op("Tanh")
    return n.g * (0.5 * (1 + bend) + 0.5 * x * (1 - bend * bend) * (scale * (1 + 3 * cubic * square)))


def _selu(n: Terms) -> Expr:
    gamma: float = n("gamma", 1.05070102214813232421875)
    alpha: float = n("alpha", 1.67326319217681884765625)
    return n.g * n.x.of(gamma).where(n.x > 0.0, gamma * alpha * n.x.op("Exp"))


def _swish(n: Terms) -> Expr:
    alpha: float = n("alpha", 1.0)
    gate = (alpha * n.x).op("Sigmoid")
    return n.g * (gate + alpha * n.y * (1 - gate))


def _mish(n: Terms) -> Expr:
    gate = n.x.op("Softplus").op("Tanh")
    return n.g * (gate + n.x * (1 - gate * gate) * n.x.op("Sigmoid"))


def _power_by_base(n: Terms) -> Expr:
    """0 if the exponent is 0, and infinite if x = 0 and the exponent is between 0 and 1, unless y is a norm (`is_norm`)."""
    constant = constant_number(n.g.graph, n.node.inputs[1])
    is_flat_at_0 = constant is not None and is_norm(n.g.graph, n.node.inputs[0], constant)
    flat = (n.y if is_flat_at_0 else n.exponent).equals(0.0)
    return n.x.of(0.0).where(flat, n.g * n.exponent * n.x.op("Pow", n.exponent - 1.0))


def _power_by_exponent(n: Terms) -> Expr:
    """0 if x = 0 and the exponent is not negative: y is 0 or 1 there, and the logarithm infinite."""
    flat = n.x.equals(0.0) & (n.exponent >= 0.0)
    by_exponent = n.x.of(0.0).where(flat, n.g * n.y * n.x.op("Log"))
    return by_exponent if n.has_own_type else by_exponent.op("CastLike", n.b)


GRADIENTS: Mapping[str, tuple[Formula, ...]] = {
    "Abs": (lambda n: n.g * n.x.op("Sign"),),
    "Acos": (lambda n: -n.g / (1 - n.x * n.x).op("Sqrt"),),
    "Acosh": (lambda n: n.g / (n.x * n.x - 1).op("Sqrt"),),
    "Add": (lambda n: n.g,),
    "Asin": (lambda n: n.g / (1 - n.x * n.x).op("Sqrt"),),
    "Asinh": (lambda n: n.g / (n.x * n.x + 1).op("Sqrt"),),
    "Atan": (lambda n: n.g / (1 + n.x * n.x),),
    "Atanh": (lambda n: n.g / (1 - n.x * n.x),),
    "Celu": (lambda n: n.g * n.x.of(1.0).where(n.x > 0.0, (n.x / n("alpha", 1.0)).op("Exp")),),
    "Cos": (lambda n: -n.g * n.x.op("Sin"),),
    "Cosh": (lambda n: n.g * n.x.op("Sinh"),),
    "Div": (lambda n: n.g / n.b, lambda n: -(n.g / n.b * n.y)),
    "Elu": (lambda n: n.g * n.x.of(1.0).where(n.x > 0.0, n("alpha", 1.0) * n.x.op("Exp")),),
    "Erf": (lambda n: n.g * (2 / math.sqrt(math.pi) * (-(n.x * n.x)).op("Exp")),),
    "Exp": (lambda n: n.g * n.y,),
    "Gelu": (_gelu,),
    "HardSigmoid": (lambda n: (n.g * n("alpha", 0.2)).where((n.y > 0.0) & (n.y < 1.0), 0.0),),
    "HardSwish": (lambda n: n.g * (n.x / 3.0 + 0.5).where(n.x > -3.0, 0.0).where(n.x < 3.0, 1.0),),
    "LeakyRelu": (lambda n: n.g * n.x.of(1.0).where(n.x > 0.0, n("alpha", 0.01)),),
    "Log": (lambda n: n.g / n.x,),
    "Mean": (lambda n: n.g / len(n.node.inputs),),
    "Mish": (_mish,),
    # Where the remainder jumps, the quotient is taken as computed there, as in PyTorch. (x - y)/b is whole up to rounding.
    "Mod": (lambda n: n.g, lambda n: -(n.g * ((n.x - n.y) / n.b).op("Round"))),
    "Mul": (lambda n: n.g * n.b, lambda n: n.g * n.x),
    "Neg": (lambda n: -n.g,),
    "PRelu": (lambda n: n.g.where(n.x > 0.0, n.g * n.b), lambda n: n.x.of(0.0).where(n.x > 0.0, n.g * n.x)),
    "Pow": (_power_by_base, _power_by_exponent),
    "Reciprocal": (lambda n: -n.g * (n.y * n.y),),
    "Relu": (lambda n: n.x.of(0.0).where(n.x <= 0.0, n.g),),  # 1 where x is NaN, as in PyTorch
    "Selu": (_selu,),
    "Sigmoid": (lambda n: n.g * (n.y * (1 - n.y)),),
    "Sin": (lambda n: n.g * n.x.op("Cos"),),
    "Sinh": (lambda n: n.g * n.x.op("Cosh"),),
    "Softplus": (lambda n: n.g * n.x.op("Sigmoid"),),
    "Softsign": (lambda n: n.g / ((1 + abs(n.x)) * (1 + abs(n.x))),),
    "Sqrt": (_sqrt,),
    "Sub": (lambda n: n.g, lambda n: -n.g),
    "Sum": (lambda n: n.g,),
    "Swish": (_swish,),
    "Tan": (lambda n: n.g * (1 + n.y * n.y),),
    "Tanh": (lambda n: n.g * (1 - n.y * n.y),),
    "ThresholdedRelu": (lambda n: n.g.where(n.x > n("alpha", 1.0), 0.0),),
}  # fmt: skip
"""Expressions by operator and input; the last one is for all further inputs. y = f(x, b), and g is the gradient of y."""


def _by_formulas(formulas: tuple[Formula, ...], graph: GradientGraph, node: Node, dy: str) -> Gradients:
    terms = Terms(node, Expr(graph, dy, node.inputs[0]))
    parts = [
        formulas[min(i, len(formulas) - 1)](terms).name if node.wants(i) else None for i in range(len(node.inputs))
    ]
    return _summed(graph, node, dy, parts)


def _summed(graph: GradientGraph, node: Node, dy: str, parts: list[str | None]) -> Gradients:
    """Gradients in the shape of the output, masked as dy is (`Masks.remasked`), each summed to the shape of its input."""
    ends = zip(parts, node.inputs, strict=True)
    masked = [None if part is None else graph.masks.remasked(part, dy, name) for part, name in ends]
    if len(masked) == 1:
        return masked
    ends = zip(masked, node.inputs, strict=True)
    return [None if part is None else sum_to(graph, part, name, node.outputs[0]) for part, name in ends]


for _operator, _formulas in GRADIENTS.items():
    rule(_operator)(partial(_by_formulas, _formulas))


@rule("Max", "Min")
def extreme(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """The maximum or minimum of any number of tensors; the first of equal ones gets the whole gradient.

    If the result is NaN all inputs get it, as in PyTorch.
    """
    y, rest = node.outputs[0], dy
    passed_over = "Less" if node.proto.op_type == "Max" else "Greater"
    parts: list[str | None] = []
    for i, x in enumerate(node.inputs):
        # Comparisons with NaN are false, so "not less" also selects NaN, which "equal" would not.
        among = graph.op("Not", graph.op(passed_over, x, y)) if node.wants(i) else ""
        parts.append(graph.masked(among, rest, x) if among else None)
        if any(node.wanted[i + 1 :]):
            rest = graph.masked(graph.op("Not", graph.op("Equal", x, y)), rest, x)
    return _summed(graph, node, dy, parts)


@rule("Clip")
def clip(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """min(max(x, low), high); if x equals a bound, x gets the gradient and the bound gets 0."""
    x, low, high = (node.input(i) for i in range(3))
    lifted = graph.op("Max", x, low) if low else x
    parts: list[str | None] = [dy, None, None]
    if high:
        above = graph.op("Greater", lifted, high)
        parts = [graph.masked(graph.op("Not", above), dy, x), None, graph.masked(above, dy, x)]
    if low:
        below = graph.op("Less", x, low)
        parts[:2] = [graph.masked(graph.op("Not", below), str(parts[0]), x), graph.masked(below, str(parts[0]), x)]
    wanted = [parts[i] if node.wants(i) else None for i in range(len(node.inputs))]
    return _summed(graph, node, dy, wanted)
