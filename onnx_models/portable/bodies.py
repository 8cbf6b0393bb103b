"""From an operator and the values of its attributes to the expressions of its outputs."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from onnx_models.portable.attributes import Attributes
from onnx_models.portable.graph import Graph, Kind, Value
from ortops.spec import Operator


@dataclass(frozen=True)
class BodyRequest:
    """What a body is for.

    operator: whose body it is.
    attributes: those of its nodes.
    inputs: names of those that its nodes have, in the operator's order.
    wanted: names of the outputs that are read.
    sums: the element type of sums: double, or float for all other tensors.
    loops: False for a body without control flow, scatter and, unless the tensors have it, double.
    """

    operator: Operator
    attributes: Attributes
    inputs: tuple[str, ...]
    wanted: frozenset[str]
    sums: Kind
    loops: bool

    @property
    def coordinates(self) -> Kind:
        """The element type of coordinates."""
        return "double" if self.loops else self.sums


def outputs(graph: Graph, request: BodyRequest) -> dict[str, Value]:
    """The wanted outputs by name, in the type of sums: what the module of the operator's family beside this one makes.

    Raises:
        ValueError: the operator cannot do without loops, or without an input that the node has not.
    """
    given = {name: graph.input(name) for name in request.inputs}
    _check_inputs(request)
    family = importlib.import_module(f"onnx_models.portable.{request.operator.family}")
    made: dict[str, Value] = family.outputs(given, request)
    return made


def _check_inputs(request: BodyRequest) -> None:
    for tensor in request.operator.inputs:
        reason = request.operator.why_needed(tensor, request.attributes.words, request.wanted)
        if reason is not None and tensor.name not in request.inputs:
            raise ValueError(f"{tensor.name} is missing: {request.operator.name} needs it for {reason}")
