"""The body of RoiAlign, and of its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from onnx_models.portable.bodies import Demand
from onnx_models.portable.graph import Value
from onnx_models.portable.pooling import Rule, pooled
from onnx_models.portable.sampling import placed_by_onnx


def outputs(given: Mapping[str, Value], demand: Demand) -> dict[str, Value]:
    """The wanted outputs by name."""
    a, kind = demand.attributes, demand.coordinates
    half_pixel = a.word("coordinate_transformation_mode") == "half_pixel"
    scale, ratio = a.number("spatial_scale", kind), a.number("sampling_ratio", kind)
    place = partial(placed_by_onnx, scale=scale, ratio=ratio, half_pixel=half_pixel)
    return pooled(given, demand, Rule(a.word("mode"), None, "onnx", place, place))
