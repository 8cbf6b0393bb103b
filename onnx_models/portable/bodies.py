"""Build the outputs of an operator's body."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from onnx_models.portable.attributes import Attributes
from onnx_models.portable.graph import Graph, Kind, Value
from ortops.spec import Operator


@dataclass(frozen=True)
class BodyRequest:
    """A request for the body of an operator.

    operator: the operator.
    attributes: the attributes of its nodes.
    inputs: the names of the inputs of its nodes, in the operator's order.
    wanted: the names of the outputs that are read.
    sums: the element type of sums: double for tensors of double, else float.
    """

    operator: Operator
    attributes: Attributes
    inputs: tuple[str, ...]
    wanted: frozenset[str]
    sums: Kind


def outputs(graph: Graph, request: BodyRequest) -> dict[str, Value]:
    """Return the wanted outputs by name, in the type of sums; a module of this package builds those of each family.

    Raises:
        ValueError: the nodes lack a required input.
    """
    given = {name: graph.input(name) for name in request.inputs}
    _check_inputs(request)
    family = importlib.import_module(f"onnx_models.portable.{request.operator.family}")
    made: dict[str, Value] = family.outputs(given, request)
    return made


def _check_inputs(request: BodyRequest) -> None:
    for tensor in request.operator.inputs:
        reason = request.operator.why_required(tensor, request.attributes.words, request.wanted)
        if reason is not None and tensor.name not in request.inputs:
            raise ValueError(f"{tensor.name} is missing: {request.operator.name} needs it for {reason}")
