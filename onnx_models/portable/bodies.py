"""From an operator and the values of its attributes to the expressions of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from onnx_models.portable import average, flat, maximum, resample
from onnx_models.portable.attributes import Attributes
from onnx_models.portable.graph import Graph, Kind, Value
from onnx_models.portable.regions import Regions, checked, coordinates
from onnx_models.portable.sampling import Placement, Reading, listed, placed_by_directml, placed_by_onnx
from ortops.spec import Operator

Mode = Literal["avg", "max", "max_interpolated"]
Place = Callable[[tuple[Value, Value], Value, Value], Placement]


@dataclass(frozen=True)
class Demand:
    """What a body is for.

    operator: whose body it is.
    attributes: those of its nodes.
    inputs: names of those that its nodes have, in the operator's order.
    wanted: names of the outputs that are read.
    sums: the element type of sums: double, or float for all other tensors.
    loops: False for a body without control flow, scatter and, unless the tensors have it, double.
    """

    operator: Operator
    attributes: Attributes
    inputs: tuple[str, ...]
    wanted: frozenset[str]
    sums: Kind
    loops: bool

    @property
    def coordinates(self) -> Kind:
        """The element type of coordinates."""
        return "double" if self.loops else self.sums


def outputs(graph: Graph, demand: Demand) -> dict[str, Value]:
    """The wanted outputs by name, in the type of sums.

    Raises:
        ValueError: the operator cannot do without loops, or without an input that the node has not.
    """
    given = {name: graph.input(name) for name in demand.inputs}
    is_gradient = demand.operator.function.endswith("_grad")
    if demand.operator.family == "dml_resample":
        return _resample(given, demand, is_gradient)
    rule = _rule(demand)
    if rule.mode != "avg" and not demand.loops:
        raise ValueError(f"loops = False: {demand.operator.name} has a body without loops for averages only")
    return (_pool_gradients if is_gradient else _pool)(given, demand, rule)


@dataclass(frozen=True)
class _Rule:
    """An RoI operator but for its data: place_y and place_x say where samples lie, `outside` what they are off the map."""

    mode: Mode
    outside: Value | None
    reading: Reading
    place_y: Place
    place_x: Place


def _rule(demand: Demand) -> _Rule:
    a = demand.attributes
    number = partial(a.number, kind=demand.coordinates)
    if demand.operator.family == "roi_align":
        half_pixel = a.word("coordinate_transformation_mode") == "half_pixel"
        place = partial(
            placed_by_onnx, scale=number("spatial_scale"), ratio=number("sampling_ratio"), half_pixel=half_pixel
        )
        return _Rule(a.word("mode"), None, "onnx", place, place)
    place_y, place_x = (
        partial(
            placed_by_directml,
            scale=number(f"spatial_scale_{axis}"),
            offsets=(number("input_pixel_offset"), number("output_pixel_offset")),
            samples=(number("minimum_samples_per_output"), number("maximum_samples_per_output")),
            to_corners=number("align_regions_to_corners"),
        )
        for axis in "yx"
    )
    mode: Mode = "avg" if a.word("reduction_function") == "average" else "max_interpolated"
    reading: Reading = "linear" if a.word("interpolation_mode") == "linear" else "nearest"
    is_gradient = demand.operator.function.endswith("_grad")
    outside = None if is_gradient else a.number("out_of_bounds_input_value", demand.sums)
    return _Rule(mode, outside, reading, place_y, place_x)


def _pool(given: Mapping[str, Value], demand: Demand, rule: _Rule) -> dict[str, Value]:
    feature_map, rois, indices = (given[tensor.name] for tensor in demand.operator.inputs)
    bins_y, bins_x = (demand.attributes.number(f"output_{size}", "int64").reshape(1) for size in ("height", "width"))
    lengths = feature_map.lengths(4)
    regions = _regions(demand, rule, rois, indices, lengths, (bins_y, bins_x), [], feature_map, moving=False)
    (name,) = demand.wanted
    if rule.mode != "avg":
        return {name: maximum.forward(regions, rule.mode, rule.outside)}
    return {name: (average if demand.loops else flat).forward(regions, rule.outside)}


def _pool_gradients(given: Mapping[str, Value], demand: Demand, rule: _Rule) -> dict[str, Value]:
    dy, rois, indices, x_shape, *_ = (given[name] for name in demand.inputs)
    by_map, by_rois = (tensor.name in demand.wanted for tensor in demand.operator.outputs)
    optional = demand.operator.inputs[4].name
    feature_map = given.get(optional)
    reads = rule.mode != "avg" or by_rois
    if reads and feature_map is None:
        raise ValueError(f"{optional} is missing: {demand.operator.name} reads it for the RoIs' gradient and a maximum")
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
    rule: _Rule,
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


def _resample(given: Mapping[str, Value], demand: Demand, is_gradient: bool) -> dict[str, Value]:
    (name,) = demand.wanted
    values = [given[tensor.name] for tensor in demand.operator.inputs]
    tensor = values[0].cast(demand.sums)
    if not is_gradient:
        return {name: resample.forward(tensor, demand.attributes, demand.coordinates)}
    x_shape = values[1].cast("int64")
    found = resample.gradient(tensor, x_shape, demand.attributes, demand.coordinates, loops=demand.loops)
    return {name: found}
