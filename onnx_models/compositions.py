"""The table of operators that are compositions of ONNX's: those of ai.onnx.ml and of ONNX Runtime's optimizer.

All nodes are in a form that opset 18 and all later ones share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps

from onnx_models.nodes import NodeBuilder, NodeView

Composition = Callable[[NodeBuilder, NodeView], Sequence[str]]
"""Adds nodes that compute the same as a node; returns the names of its first outputs, "" for one that is not computed."""

COMPOSITIONS: dict[tuple[str, str], Composition] = {}
"""The compositions by domain and operator."""


def composition(*operators: str, domain: str) -> Callable[[Composition], Composition]:
    """Register a function as the composition of operators; its errors become a ValueError that names the node."""

    def enter(function: Composition) -> Composition:
        @wraps(function)
        def named(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
            try:
                return function(graph, node)
            except (IndexError, KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{node}: {error}") from error

        COMPOSITIONS.update({(domain, operator): named for operator in operators})
        return named

    return enter
