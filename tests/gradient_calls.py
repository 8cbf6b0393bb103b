"""A call of an operator at a point where it is smooth, as a row of a table."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from gradient_checks import Array, declared, parsed
from ortops.spec import ELEMENT_DTYPES

IS_OLD = tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 21)
"""Whether this is ONNX Runtime 1.20."""

not_of_old = pytest.mark.skipif(IS_OLD, reason="ONNX Runtime 1.20 computes this wrong or not at all")

BOXES = np.array(
    [[0.3131, 1.2717, 5.1391, 6.7193], [-1.4371, 2.1577, 3.3119, 9.8617], [2.6231, 0.7639, 2.9417, 1.1853]]
)
"""Regions of a map of 8 x 9 pixels, of which some reach beyond it; no sample lies on a pixel."""

_MAKES_Y = re.compile(r"(?:^|[\s,])y(?:, \w+)* = ")


@dataclass(frozen=True)
class Call:
    """Nodes that make y.

    lines: the nodes, in ONNX's textual syntax; a call alone makes y.
    inputs: a tuple is the shape of floating-point numbers between two `ends`; "boxes" are `BOXES`; anything else is a value.
    kind: the type of the floating-point numbers.
    opened: how much is declared where as little as possible is, see `gradient_checks.declared`.
    needs_new: whether ONNX Runtime 1.20 computes it wrong or not at all.
    """

    lines: str
    inputs: Mapping[str, Any] = field(default_factory=lambda: {"x": (2, 3)})
    ends: tuple[float, float] = (0.25, 0.75)
    opset: int = 21
    opened: str = "names"
    needs_new: bool = False
    kind: str = "float"

    def __str__(self) -> str:
        shapes = [str(value) for name, value in self.inputs.items() if isinstance(value, tuple) and name != "boxes"]
        return f"{_MAKES_Y.split(self.lines)[-1][:50]} {' '.join(shapes)[:30]}"

    @property
    def feeds(self) -> dict[str, Array]:
        """Values of all inputs; those of an input are evenly spaced, so that no finite difference changes a maximum."""
        rng = np.random.default_rng(4)
        dtype = ELEMENT_DTYPES[self.kind]
        drawn: dict[str, Array] = {}
        for name, given in self.inputs.items():
            if not isinstance(given, tuple):
                value = np.asarray(given, getattr(given, "dtype", np.int64))
                drawn[name] = value.astype(dtype) if value.dtype == np.float64 else value
                continue
            count = math.prod(given)
            parts = (rng.permutation(count) + rng.uniform(0.25, 0.75)) / max(count, 1)
            value = BOXES if name == "boxes" else (self.ends[0] + parts * (self.ends[1] - self.ends[0])).reshape(given)
            drawn[name] = np.asarray(value, dtype)
        return drawn

    @property
    def wrt(self) -> list[str]:
        """The floating-point inputs."""
        return [name for name, given in self.inputs.items() if isinstance(given, tuple)]

    def model(self, shapes: str) -> onnx.ModelProto:
        """The declared shapes, see `gradient_checks.declared`; with ``lengths`` all but `wrt` are initializers."""
        feeds = self.feeds
        fed = self.wrt if shapes == "lengths" else list(feeds)
        inputs = ", ".join(
            f"{_kind(feeds[name])}"
            f"{declared(name, feeds[name].shape, shapes if name in self.wrt or shapes == 'any' else 'lengths')} {name}"
            for name in fed
        )
        lines = self.lines if _MAKES_Y.search(self.lines) else f"y = {self.lines}"
        made = parsed(
            f"""<ir_version: 10, opset_import: [
            "" : {self.opset}, "ai.onnx.contrib" : 1, "ai.onnx.ml" : 3, "com.microsoft" : 1]>
            g ({inputs}) => ({self.kind} y) {{ {lines} }}"""
        )
        others = (onnx.numpy_helper.from_array(value, name) for name, value in feeds.items() if name not in fed)
        made.graph.initializer.extend(others)
        return made


def _kind(value: Array) -> str:
    return str(onnx.TensorProto.DataType.Name(onnx.helper.np_dtype_to_tensor_dtype(value.dtype))).lower()
