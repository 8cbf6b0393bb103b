"""The bodies of RoiAlign and of its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from onnx_models.portable.at_once import Mode
from onnx_models.portable.attributes import BodyRequest
from onnx_models.portable.graph import Value
from onnx_models.portable.pooling import Rule, pool
from onnx_models.portable.sampling import onnx_placement


def outputs(given: Mapping[str, Value], request: BodyRequest) -> dict[str, Value]:
    """Return the wanted outputs by name."""
    return pool(given, request, onnx_rule(request, request.attributes.word("mode")))


def onnx_rule(request: BodyRequest, mode: Mode) -> Rule:
    """Return the parameters of RoiAlign, from all attributes but the mode."""
    a = request.attributes
    half_pixel = a.word("coordinate_transformation_mode") == "half_pixel"
    scale, ratio = a.number("spatial_scale", "double"), a.number("sampling_ratio", "double")
    few = request.few_samples("sampling_ratio")
    place = partial(onnx_placement, scale=scale, ratio=ratio, half_pixel=half_pixel, listed=few)
    return Rule(mode, None, "onnx", place, place, few)
