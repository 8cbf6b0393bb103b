"""Bodies of the operators that sample RoIs along the axes of the map, and of their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from onnx_models.portable import average, flat, maximum
from onnx_models.portable.bodies import Demand
from onnx_models.portable.graph import Value
from onnx_models.portable.regions import Regions, checked, coordinates
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
    feature_map, rois, indices = (given[tensor.name] for tensor in demand.operator.inputs)
    bins_y, bins_x = (demand.attributes.number(f"output_{size}", "int64").reshape(1) for size in ("height", "width"))
    lengths = feature_map.lengths(4)
    regions = _regions(demand, rule, rois, indices, lengths, (bins_y, bins_x), [], feature_map, moving=False)
    (name,) = demand.wanted
    if rule.mode != "avg":
        return {name: maximum.forward(regions, rule.mode, rule.outside)}
    return {name: (average if demand.loops else flat).forward(regions, rule.outside)}


def _gradients(given: Mapping[str, Value], demand: Demand, rule: Rule) -> dict[str, Value]:
    dy, rois, indices, x_shape, *_ = (given[name] for name in demand.inputs)
    by_map, by_rois = (tensor.name in demand.wanted for tensor in demand.operator.outputs)
    feature_map = given.get(demand.operator.inputs[4].name)
    reads = rule.mode != "avg" or by_rois
    lengths = x_shape.cast("int64").entries(4)
    *_, bins_y, bins_x = dy.lengths(4)
    conditions = [bins_y > 0, bins_x > 0]
    if feature_map is not None and reads:
        shape = feature_map.graph.op("Shape", [feature_map], "int64")
        conditions.append(shape.equals(x_shape.cast("int64")).cast("int64").min(0).reshape(1) > 0)
    regions = _regions(demand, rule, rois, indices, lengths, (bins_y, bins_x), conditions, feature_map, moving=by_rois)
    dy = dy.cast(demand.sums).reshape(*regions.output_lengths)
    dx: Value | None = None
    drois: Value | None = None
    if rule.mode == "avg":
        way = average if demand.loops else flat
        dx = way.gradient(regions, dy) if by_map else None
        drois = way.roi_gradient(regions, dy) if by_rois else None
    else:
        dx, drois = maximum.gradients(regions, rule.mode, dy, by_map=by_map, by_rois=by_rois)
    if drois is not None:
        drois = drois.shaped_as(rois)
    found = zip(demand.operator.outputs, (dx, drois), strict=True)
    return {tensor.name: value for tensor, value in found if value is not None}


def _regions(
    demand: Demand,
    rule: Rule,
    rois: Value,
    indices: Value,
    lengths: list[Value],
    bins: tuple[Value, Value],
    conditions: list[Value],
    feature_map: Value | None,
    *,
    moving: bool,
) -> Regions:
    images, channels, height, width = lengths
    most_ranks = [tensor.ranks[-1] for tensor in demand.operator.inputs[1:3]]
    count = indices.lengths_up_to(most_ranks[1])[-1]
    corners = coordinates(rois, most_ranks[0], demand.coordinates)
    conditions = [height > 0, width > 0, *conditions]
    (x1, y1, x2, y2), own = checked(corners, indices.cast("int64").reshape(count), images, conditions)
    return Regions(
        images=own,
        map_lengths=(images, channels, height, width),
        y=listed(rule.place_y((y1, y2), bins[0], height), rule.reading, moving=moving),
        x=listed(rule.place_x((x1, x2), bins[1], width), rule.reading, moving=moving),
        sums=demand.sums,
        map=feature_map,
    )
