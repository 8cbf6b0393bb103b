"""Bodies of the operators that sample upright RoIs, and of their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onnx_models.portable import at_once, average, maximum, products
from onnx_models.portable.at_once import Mode
from onnx_models.portable.attributes import BodyRequest
from onnx_models.portable.graph import Value
from onnx_models.portable.regions import Regions, RoiInputs, name_gradients, read_roi_inputs
from onnx_models.portable.sampling import Placement, Reading, list_samples

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


def pool(given: Mapping[str, Value], request: BodyRequest, rule: Rule) -> dict[str, Value]:
    """Return the wanted outputs of an operator or of its gradient, by name."""
    return (_gradients if request.operator.is_gradient else _forward)(given, request, rule)


def _forward(given: Mapping[str, Value], request: BodyRequest, rule: Rule) -> dict[str, Value]:
    regions = _regions(read_roi_inputs(given, request, reads_map=True), rule, with_derivatives=False)
    (name,) = request.wanted
    if request.at_once and (rule.few is not None or rule.mode != "avg"):
        return {name: at_once.forward(at_once.upright_grid(regions), rule.mode, rule.outside)}
    if rule.mode != "avg":
        return {name: maximum.forward(regions, rule.mode, rule.outside)}
    return {name: (products if request.at_once else average).forward(regions, rule.outside)}


def _gradients(given: Mapping[str, Value], request: BodyRequest, rule: Rule) -> dict[str, Value]:
    by_map, by_rois = (tensor.name in request.wanted for tensor in request.operator.outputs)
    roi_inputs = read_roi_inputs(given, request, reads_map=rule.mode != "avg" or by_rois)
    regions = _regions(roi_inputs, rule, with_derivatives=by_rois)
    dy = roi_inputs.gradient()
    dx: Value | None = None
    drois: Value | None = None
    if request.at_once and (rule.few is not None or rule.mode != "avg"):
        grid = at_once.upright_grid(regions)
        dx, drois = at_once.gradients(grid, rule.mode, dy, by_map=by_map, by_rois=by_rois)
    elif rule.mode == "avg":
        matrices = products if request.at_once else average
        dx = matrices.gradient(regions, dy) if by_map else None
        drois = matrices.roi_gradient(regions, dy) if by_rois else None
    else:
        dx, drois = maximum.gradients(regions, rule.mode, dy, by_map=by_map, by_rois=by_rois)
    return name_gradients(given, request, dx, drois)


def _regions(roi_inputs: RoiInputs, rule: Rule, *, with_derivatives: bool) -> Regions:
    x1, y1, x2, y2 = roi_inputs.coordinates
    *_, height, width = roi_inputs.map_lengths
    bins_y, bins_x = roi_inputs.bins
    return Regions(
        **vars(roi_inputs),
        y=list_samples(rule.place_y((y1, y2), bins_y, height), rule.reading, with_derivatives=with_derivatives),
        x=list_samples(rule.place_x((x1, x2), bins_x, width), rule.reading, with_derivatives=with_derivatives),
    )
