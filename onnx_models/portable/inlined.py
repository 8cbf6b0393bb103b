"""The graph of a body whose nodes take the place of one node in a model: constants and known lengths are folded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from onnx_models.portable.graph import DTYPES, Graph, Kind, Value
from onnx_models.tools.protos import needed

_KINDS: Mapping[int, Kind] = {
    onnx.TensorProto.FLOAT: "float",
    onnx.TensorProto.DOUBLE: "double",
    onnx.TensorProto.INT64: "int64",
}

_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}
"""The second operand that does not change the first, by operator."""

_MAX_ELEMENTS = 64
"""The largest length of a `Range` that becomes a constant."""


class InlinedGraph(Graph):
    """The nodes in place of one node of a model.

    Args:
        names: all names of tensors in the model; new ones are added.
        types: the known types of tensors.
        opset: the version of ONNX's domain.
        prefix: what new names begin with.
    """

    def __init__(self, names: set[str], types: Mapping[str, onnx.TypeProto.Tensor], opset: int, prefix: str) -> None:
        super().__init__()
        self.names, self._types, self._opset, self._prefix = names, types, opset, prefix
        self._arrays: dict[str, np.ndarray[Any, Any]] = {}
        self._outputs: list[str] = []

    def name(self, base: str) -> str:  # noqa: ARG002
        """Return a new name."""
        name = next(name for i in self._numbers if (name := f"{self._prefix}/{i}") not in self.names)
        self.names.add(name)
        return name

    def input(self, name: str, kind: Kind = "other") -> Value:
        """Return a tensor of the model that the node reads."""
        known = self._types.get(name)
        return super().input(name, kind if known is None else _KINDS.get(known.elem_type, kind))

    def output(self, name: str, value: Value, like: Value) -> None:
        """Make a value an output of the node, in the element type of `like`."""
        self._outputs.append(name)
        known = self._types.get(like.name)
        if known is None or known.elem_type == onnx.TensorProto.UNDEFINED:
            super().output(name, value, like)
        elif value.kind == like.kind:
            self.add(helper.make_node("Identity", [value.name], [name]))
        else:
            self.add(helper.make_node("Cast", [value.name], [name], to=known.elem_type))

    def nodes_of_outputs(self) -> list[onnx.NodeProto]:
        """Return the nodes that the outputs depend on."""
        return needed(self.nodes, self._outputs)

    def constant(self, value: Any, kind: Kind) -> Value:
        """Return a constant, of a number or an array."""
        made = super().constant(value, kind)
        self._arrays.setdefault(made.name, np.asarray(value, DTYPES[kind]))
        return made

    def ops(self, op_type: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """As `Graph.ops`, but no node is added if its result is known or equals one of its inputs."""
        known = [self._arrays.get(name) for name in inputs]
        if op_type == "Shape":
            lengths = self._lengths(inputs[0])[attributes.get("start", 0) : attributes.get("end")]
            if lengths and None not in lengths:
                return [self.constant(lengths, "int64").name]
        elif all(array is not None for array in known) and _is_small(op_type, known):
            return [
                self.constant(array, _kind(array)).name for array in self._computed(op_type, known, outputs, attributes)
            ]
        elif op_type == "Where" and (condition := known[0]) is not None and condition.all() == condition.any():
            return [inputs[1 if condition.all() else 2]]
        elif op_type == "And":
            for array, other in ((known[0], 1), (known[1], 0)):
                if array is not None and array.all():
                    return [inputs[other]]
        elif op_type in _NEUTRAL and known[1] is not None and known[1].ndim == 0 and known[1] == _NEUTRAL[op_type]:
            return [inputs[0]]
        return super().ops(op_type, *inputs, outputs=outputs, **attributes)

    def _computed(
        self, op_type: str, arrays: Sequence[Any], outputs: int, attributes: Mapping[str, Any]
    ) -> list[np.ndarray[Any, Any]]:
        """Return the results of a node for known inputs."""
        names = [f"{i}" for i in range(len(arrays))]
        node = helper.make_node(op_type, names, [f"y{i}" for i in range(outputs)], **attributes)
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(node, opsets={"": self._opset}).run(None, dict(zip(names, arrays, strict=True)))
        return [np.asarray(one) for one in found]

    def _lengths(self, name: str) -> list[int | None]:
        """Return the lengths of a tensor, None for unknown ones; none at all if even the rank is unknown."""
        known = self._types.get(name)
        if known is None or not known.HasField("shape"):
            return []
        return [one.dim_value if one.HasField("dim_value") else None for one in known.shape.dim]


def _is_small(op_type: str, arrays: Sequence[Any]) -> bool:
    """Return whether a result is not much larger than the arrays from which it is computed."""
    return op_type not in ("ConstantOfShape", "Expand", "Range") or (op_type == "Range" and arrays[1] <= _MAX_ELEMENTS)


def _kind(array: np.ndarray[Any, Any]) -> Kind:
    return next(kind for kind, dtype in DTYPES.items() if array.dtype == dtype)
