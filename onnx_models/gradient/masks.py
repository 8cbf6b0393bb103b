"""Masks of gradients that are 0 because a Where of the model did not select the tensor."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping

import numpy as np
import onnx

from onnx_models.gradient.tensors import Tensors


class Masks:
    """By tensor name, the conditions of Where: the tensor is 0 where one of them is false.

    A derivative may be infinite or NaN where Where did not select its input, such as that of log(x) in
    Where(x > 0, log(x), 0); 0 times it would be NaN. A gradient that only happens to be 0 is not masked: an infinite
    derivative shows. Relu, Clip and others do not mask either, as in PyTorch: a mask costs about as much as a product.

    Args:
        graph: the graph to add nodes to.
        known: the masks of tensors of the enclosing graph.
    """

    def __init__(self, graph: Tensors, known: MutableMapping[str, tuple[str, ...]] | None = None) -> None:
        self._graph, self._masks = graph, ChainMap({}, {} if known is None else known)

    def inner(self, graph: Tensors) -> Masks:
        """The masks in a subgraph: it sees those that are known here, and adds to its own."""
        return Masks(graph, self._masks)

    def selected(self, condition: str, name: str, like: str) -> str:
        """The gradient of an input of Where: `name` where the condition holds, else zeros of the element type of `like`."""
        made = self._graph.op("Where", condition, name, self._graph.number(0.0, like))
        self._masks[made] = (*self._masks.get(name, ()), condition)
        return made

    def remasked(self, name: str, gradient: str, like: str) -> str:
        """Mask a tensor that is computed elementwise from a gradient like the gradient itself."""
        for condition in self._masks.get(gradient, ()):
            if condition not in self._masks.get(name, ()):
                name = self.selected(condition, name, like)
        return name

    def without_nan(self, name: str, gradient: str, like: str) -> str:
        """The tensor, with 0 in place of NaN wherever a Where that masks the gradient did not select it."""
        graph = self._graph
        for condition in self._masks.get(gradient, ()):
            kept = graph.op("Or", condition, graph.op("Not", graph.op("IsNaN", name)))
            name = graph.op("Where", kept, name, graph.number(0.0, like))
        return name

    def keep(self, node: onnx.NodeProto) -> None:
        """Remember the masks of a new tensor that is 0 wherever its inputs are masked."""
        if not self._masks:
            return
        terms = list(node.input)
        if node.op_type in ("Cast", "CastLike", "Neg"):
            del terms[1:]
        elif node.op_type == "Mul":
            factor = self._graph.constant(terms.pop())
            if factor is None or not np.isfinite(factor.astype(np.float64)).all():
                return
        elif node.op_type == "Where":
            terms = [name for name in terms[1:] if (value := self._graph.constant(name)) is None or value.any()]
        elif node.op_type not in ("Add", "Sum"):
            return
        first, *others = [self._masks.get(name, ()) for name in terms] or [()]
        if shared := tuple(one for one in first if all(one in masks for masks in others)):
            self._masks[node.output[0]] = shared
