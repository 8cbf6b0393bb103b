# SPDX-License-Identifier: MIT
"""GridSample as ONNX defines it at opsets 16, 20 and 22, for maps with two and with three spatial axes.

ONNX Runtime computes it, so this project has no kernel of it: the definitions are for the conformance suite. Opset 16 has
maps [N, C, H, W] only. Later opsets allow any number of spatial axes, and a definition has one rank, so each of them has two
definitions. Types are those of real numbers: the text does not say how integers are rounded.

Source: ONNX operator specification, GridSample, versions 16, 20 and 22.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx

from ortops.operators.roi_align import from_schema
from ortops.spec import ELEMENT_DTYPES, Operator

MODES = {16: ("bilinear", "nearest", "bicubic"), 20: ("linear", "nearest", "cubic"), 22: ("linear", "nearest", "cubic")}
"""The values of `mode`, by opset."""

AXES: Mapping[str, Mapping[str, tuple[int | str, ...]]] = {
    "": {
        "X": ("N", "C", "H", "W"),
        "grid": ("N", "H_out", "W_out", 2),
        "Y": ("N", "C", "H_out", "W_out"),
    },
    "_5d": {
        "X": ("N", "C", "D", "H", "W"),
        "grid": ("N", "D_out", "H_out", "W_out", 3),
        "Y": ("N", "C", "D_out", "H_out", "W_out"),
    },
}
"""The axes of the tensors, by the end of the function's name."""

URL = "https://onnx.ai/onnx/operators/onnx__GridSample.html"


def from_onnx(opset: int, suffix: str = "") -> Operator:
    """The definition at `opset` for the axes of `suffix`, a key of `AXES`."""
    rules: dict[str, dict[str, Any]] = {
        "align_corners": {"minimum": 0, "maximum": 1},
        "mode": {"choices": MODES[opset]},
        "padding_mode": {"choices": ("zeros", "border", "reflection")},
    }
    arguments = from_schema(onnx.defs.get_schema("GridSample", opset), rules, {}, AXES[suffix])
    types = arguments.pop("types")
    is_real = {name for name, dtype in ELEMENT_DTYPES.items() if dtype.kind not in "iubO"}
    return Operator(
        name=f"GridSample_{opset}{suffix.upper()}",
        family="grid_sample",
        function=f"grid_sample{suffix}",
        **arguments,
        types={variable: tuple(name for name in names if name in is_real) for variable, names in types.items()},
        gradient="",
        source=f"ONNX operator GridSample, version {opset}: {URL}",
    )


GRID_SAMPLES = (
    *(from_onnx(opset) for opset in (16, 20, 22)),
    *(from_onnx(opset, "_5d") for opset in (20, 22)),
)
"""All definitions, those of one function in ascending order of their opsets."""
