# SPDX-License-Identifier: MIT
"""Requests for bodies, and the attributes of the nodes that share a body.

Numbers that are equal in all nodes become constants; others are read from the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from onnx_models.portable.graph import BodyGraph, Kind, Value
from ortops.spec import AttributeValue, Operator

FEW_SAMPLES = 4
"""Up to this many samples of a bin along an axis, all samples are listed, on the map or not."""


class Attributes:
    """The attributes of the nodes that share a body: `nodes` has the checked ones of each.

    ONNX Runtime finds a function by name alone: 1.20 ignores ``overload``, and 1.31.1 ignores it inside of functions. So an
    operator has one body, and attributes that change its nodes, strings and the lengths of lists, must be equal for all.
    """

    def __init__(self, graph: BodyGraph, operator: Operator, nodes: Sequence[Mapping[str, AttributeValue]]) -> None:
        self._graph = graph
        self._first = nodes[0]
        self._types = {attribute.name: attribute.type for attribute in operator.attributes}
        self._differing = {name for name in self._first if any(node[name] != self._first[name] for node in nodes)}
        for name in sorted(self._differing):
            if self._types[name] == "STRING":
                self._refuse(name, {node[name] for node in nodes})
            elif self._types[name].endswith("S"):
                self._refuse(f"number of {name}", {len(node[name]) for node in nodes})

    def _refuse(self, what: str, values: set[str] | set[int]) -> None:
        if len(values) > 1:
            every = " and ".join(sorted(map(str, values)))
            raise ValueError(
                f"{what} = {every}: must be the same for all nodes of an operator, which share a body; lower needs none"
            )

    @property
    def words(self) -> dict[str, AttributeValue]:
        """The strings, which are equal for all nodes."""
        return {name: self._first[name] for name, kind in self._types.items() if kind == "STRING"}

    def word(self, name: str) -> Any:
        """Return a string."""
        return self._first[name]

    def count(self, name: str) -> int:
        """Return the length of a list."""
        return len(self._first.get(name, ()))

    def known(self, name: str, axis: int, default: float | None) -> float | None:
        """Return an entry of a list, the default if there is no list, or None if the nodes differ."""
        if not self.count(name):
            return default
        return None if name in self._differing else float(self._first[name][axis])

    def number(self, name: str, kind: Kind) -> Value:
        """Return a number as a scalar."""
        if name not in self._differing:
            return self._graph.constant(self._first[name], kind)
        is_float = self._types[name] == "FLOAT"
        return self._graph.attribute(name, "float" if is_float else "int").cast(kind)

    def entry(self, name: str, axis: int, kind: Kind) -> Value:
        """Return an entry of a list, [1]."""
        if name not in self._differing:
            return self._graph.constant([self._first[name][axis]], kind)
        listed: Literal["floats", "ints"] = "floats" if self._types[name] == "FLOATS" else "ints"
        return self._graph.attribute(name, listed).entries(self.count(name))[axis].cast(kind)


@dataclass(frozen=True)
class BodyRequest:
    """A request for the body of an operator.

    operator: the operator.
    attributes: the attributes of its nodes.
    wanted: the names of the outputs that are read.
    sums: the element type of sums: double for tensors of double, else float.
    without_loops: whether all regions are pooled at once, without `Loop`. Each node then has its own body.
    """

    operator: Operator
    attributes: Attributes
    wanted: frozenset[str]
    sums: Kind
    without_loops: bool = False

    def few_samples(self, *names: str) -> Value | None:
        """Return the number of samples of a bin along an axis if it is known and small, and regions are pooled at once.

        names: the attributes that determine it if they are equal.
        """
        numbers = {self.attributes.word(name) for name in names}
        if self.without_loops and len(numbers) == 1 and 0 < min(numbers) <= FEW_SAMPLES:
            return self.attributes.number(names[0], "double")
        return None
