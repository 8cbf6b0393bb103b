# SPDX-License-Identifier: MIT
"""The bodies of RoiAlign and of its gradient, and what they share with those of other operators that sample upright RoIs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from onnx_models.portable import averages, samples
from onnx_models.portable.attributes import BodyRequest
from onnx_models.portable.graph import Value, zeros
from onnx_models.portable.regions import Regions, name_gradients, read_roi_inputs
from onnx_models.portable.samples import Mode, Pooling, upright_grid
from onnx_models.portable.sampling import Placement, Reading, list_samples, onnx_placement

Place = Callable[[tuple[Value, Value], Value, Value], Placement]


@dataclass(frozen=True)
class Rule:
    """The parameters of an RoI operator.

    mode: how a bin combines its samples.
    outside: the value of a sample off the map; None for 0.
    reading: the pixels that a sample reads.
    place_y, place_x: place the samples along each axis.
    few: the number of samples of a bin along an axis if `BodyRequest.few_samples` knows it.
    """

    mode: Mode
    outside: Value | None
    reading: Reading
    place_y: Place
    place_x: Place
    few: Value | None


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


def pool(given: Mapping[str, Value], request: BodyRequest, rule: Rule) -> dict[str, Value]:
    """Return the wanted outputs of an operator or of its gradient, by name."""
    is_gradient, without_loops = request.operator.is_gradient, request.without_loops
    by_rois = is_gradient and request.operator.outputs[1].name in request.wanted
    roi_inputs = read_roi_inputs(given, request, reads_map=rule.mode != "avg" or by_rois)
    x1, y1, x2, y2 = roi_inputs.coordinates
    *_, height, width = roi_inputs.map_lengths
    bins_y, bins_x = roi_inputs.bins
    regions = Regions(
        **vars(roi_inputs),
        y=list_samples(rule.place_y((y1, y2), bins_y, height), rule.reading, with_derivatives=by_rois),
        x=list_samples(rule.place_x((x1, x2), bins_x, width), rule.reading, with_derivatives=by_rois),
    )
    counts = regions.y.counts, regions.x.counts
    pooling = Pooling(regions, counts, partial(upright_grid, regions), rule.mode, without_loops)
    is_sampled = rule.mode != "avg" or rule.few is not None
    if not is_gradient:
        (name,) = request.wanted
        if is_sampled:
            return {name: samples.forward(pooling, rule.outside)}
        return {name: averages.forward(regions, rule.outside, without_loops=without_loops)}
    dx: Value | None = None
    drois: Value | None = None
    dy, by_map = regions.gradient(), request.operator.outputs[0].name in request.wanted
    if by_rois and rule.reading == "nearest":
        by_rois, drois = False, zeros(dy.kind, regions.count, 4)
    if is_sampled:
        dx, sampled = samples.gradients(pooling, dy, by_map=by_map, by_rois=4 * by_rois)
        drois = drois or sampled
    else:
        dx = averages.gradient(regions, dy, without_loops=without_loops) if by_map else None
        drois = averages.roi_gradient(regions, dy, without_loops=without_loops) if by_rois else drois
    return name_gradients(given, request, dx, drois)
