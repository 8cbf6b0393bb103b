"""Bodies of the operators that sample RoIs along the axes of the map, and of their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from onnx_models.portable import average, flat, maximum
from onnx_models.portable.bodies import Demand
from onnx_models.portable.graph import Value
from onnx_models.portable.regions import Regions, Request, named, requested
from onnx_models.portable.sampling import Placement, Reading, listed

Mode = Literal["avg", "max", "max_interpolated"]
Place = Callable[[tuple[Value, Value], Value, Value], Placement]


@dataclass(frozen=True)
class Rule:
    """An RoI operator but for its data.

    mode: what is made of the samples of a bin.
    outside: the value of a sample off the map; None for 0.
    reading: which pixels a sample reads.
    place_y, place_x: say where samples lie.
    """

    mode: Mode
    outside: Value | None
    reading: Reading
    place_y: Place
    place_x: Place


def pooled(given: Mapping[str, Value], demand: Demand, rule: Rule) -> dict[str, Value]:
    """The wanted outputs by name of an operator or of its gradient.

    Raises:
        ValueError: a maximum is to do without loops.
    """
    if rule.mode != "avg" and not demand.loops:
        raise ValueError(f"loops = False: {demand.operator.name} has a body without loops for averages only")
    return (_gradients if demand.operator.is_gradient else _forward)(given, demand, rule)


def _forward(given: Mapping[str, Value], demand: Demand, rule: Rule) -> dict[str, Value]:
    regions = _regions(requested(given, demand, reads_map=True), demand, rule, moving=False)
    (name,) = demand.wanted
    if rule.mode != "avg":
        return {name: maximum.forward(regions, rule.mode, rule.outside)}
    return {name: (average if demand.loops else flat).forward(regions, rule.outside)}


def _gradients(given: Mapping[str, Value], demand: Demand, rule: Rule) -> dict[str, Value]:
    by_map, by_rois = (tensor.name in demand.wanted for tensor in demand.operator.outputs)
    request = requested(given, demand, reads_map=rule.mode != "avg" or by_rois)
    regions = _regions(request, demand, rule, moving=by_rois)
    dy = request.gradient()
    dx: Value | None = None
    drois: Value | None = None
    if rule.mode == "avg":
        way = average if demand.loops else flat
        dx = way.gradient(regions, dy) if by_map else None
        drois = way.roi_gradient(regions, dy) if by_rois else None
    else:
        dx, drois = maximum.gradients(regions, rule.mode, dy, by_map=by_map, by_rois=by_rois)
    return named(given, demand, dx, drois)


def _regions(request: Request, demand: Demand, rule: Rule, *, moving: bool) -> Regions:
    x1, y1, x2, y2 = request.numbers
    *_, height, width = request.map_lengths
    bins_y, bins_x = request.bins
    return Regions(
        images=request.images,
        map_lengths=request.map_lengths,
        y=listed(rule.place_y((y1, y2), bins_y, height), rule.reading, moving=moving),
        x=listed(rule.place_x((x1, x2), bins_x, width), rule.reading, moving=moving),
        sums=demand.sums,
        map=request.map,
    )
