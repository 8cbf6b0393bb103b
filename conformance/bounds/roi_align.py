"""RoiAlign and its gradient: how errors grow into Y, dX and drois.

A sample's coordinate c = start + t*size is a sum of products. Of the terms that reach a map of L pixels none is larger
than reach = |r1| S + L + 1.5 (start and t*size have one sign beyond that), and about ten roundings are relative to it.
The size has an absolute error besides, three roundings of (|r1| + |r2|) S, of which only the part t <= reach/|size|
that lies in the map counts:

    delta = u (10 reach + 3 min(1, reach/|size|) (|r1| + |r2|) S)

Samples whose rounding could carry them over a border, and numbers of samples that it could change, are not in the suite
(unless every number on the way is exact), so delta is all that coordinates do.
"""

from __future__ import annotations

import numpy as np

from conformance.bounds.growth import Growth
from conformance.bounds.samples import LEAST_SIZE, Axis, around, coordinate_error, largest, per_roi, slope
from conformance.case import Case
from conformance.expect import Floats, reference
from ortops.operators.roi_align import ROI_ALIGN_22
from ortops.spec import AttributeValue


def forward(case: Case) -> dict[str, Growth]:
    """Growth into Y [R, C, PH, PW].

    avg and max_interpolated: a coordinate's error costs the steepest slope, for the share of samples inside the map.
    max: a corner's weight changes by as much as the coordinate, times the largest pixel.
    """
    arguments, x = case.definition.check_attributes(case.attributes), case.inputs["X"].astype(np.float64)
    bins = int(arguments["output_height"]), int(arguments["output_width"])
    axis_y, axis_x = _axes(case, arguments, bins, (x.shape[2], x.shape[3]))
    magnitude, inside = (
        reference(case.definition, case.attributes, {**case.inputs, "X": data}, case.outputs)["Y"]
        for data in (np.abs(x), np.ones_like(x))
    )
    share = (inside > 0).astype(np.float64) if arguments["mode"] == "max" else inside
    steep_y, steep_x = _steepness(x, arguments)
    drift = per_roi(axis_y.delta * steep_y + axis_x.delta * steep_x) * share
    return {"Y": Growth(magnitude, 4 * _samples(arguments, axis_y, axis_x), drift, inside)}


def gradient(case: Case) -> dict[str, Growth]:
    """Growth into dX [N, C, H, W] and drois [R, 4], of those that the case has."""
    arguments = case.definition.check_attributes(case.attributes)
    dy = case.inputs["dY"].astype(np.float64)
    x_shape = tuple(map(int, case.inputs["x_shape"]))
    axes = _axes(case, arguments, dy.shape[2:], x_shape[2:])
    growths = {}
    if "dX" in case.outputs:
        growths["dX"] = _into_dx(case, arguments, dy, x_shape, axes)
    if "drois" in case.outputs:
        growths["drois"] = _into_drois(case, arguments, dy, axes)
    return growths


def _into_dx(
    case: Case, arguments: dict[str, AttributeValue], dy: Floats, x_shape: tuple[int, ...], axes: tuple[Axis, Axis]
) -> Growth:
    """A sample that reads a pixel has all its weight within one pixel of it, so the mean drifts by what lies there.

    In the max modes by all of the gradient of the image and channel: a winner's weight does not tell its sample's.
    """
    axis_y, axis_x = axes
    magnitude = reference(case.definition, case.attributes, {**case.inputs, "dY": np.abs(dy)}, ["dX"])["dX"]
    terms = float(np.sum(axis_y.touching * axis_x.touching))
    if arguments["mode"] == "avg":
        near = around(magnitude)
    else:
        near = np.zeros((*x_shape[:2], 1, 1))
        np.add.at(near, case.inputs["batch_indices"], 2 * np.abs(dy).sum(axis=(2, 3), keepdims=True))
        terms = min(terms, float(len(dy) * np.prod(dy.shape[2:])))
    return Growth(magnitude, terms, largest(axis_y.delta + axis_x.delta) * near, np.full(x_shape, terms))


def _into_drois(case: Case, arguments: dict[str, AttributeValue], dy: Floats, axes: tuple[Axis, Axis]) -> Growth:
    """Every term is dY S times a difference of pixels; it moves by twice the steepest slope a pixel of coordinate error.

    The difference may be taken of sums, so that what is rounded is as large as the pixels themselves.
    """
    x, scale = case.inputs["X"].astype(np.float64), float(arguments["spatial_scale"])
    weight = np.abs(dy)
    if arguments["mode"] == "avg":
        output = {"output_height": dy.shape[2], "output_width": dy.shape[3]}
        inputs = {"X": np.ones_like(x), "rois": case.inputs["rois"], "batch_indices": case.inputs["batch_indices"]}
        weight = weight * reference(ROI_ALIGN_22, {**arguments, **output}, inputs, ["Y"])["Y"]
    steep_y, steep_x = _steepness(x, arguments)
    shares = scale * weight.sum(axis=(1, 2, 3))[:, None]
    axis_y, axis_x = axes
    terms = 4 * dy[:1].size * _samples(arguments, axis_y, axis_x)
    drift = 2 * (axis_y.delta + axis_x.delta)[:, None] * shares * np.array([steep_x, steep_y, steep_x, steep_y])
    return Growth(
        np.tile(2 * largest(np.abs(x)) * shares, 4), terms, drift, 2 * scale * np.abs(dy).sum(axis=(1, 2, 3))[:, None]
    )


def _axes(
    case: Case, arguments: dict[str, AttributeValue], bins: tuple[int, ...], lengths: tuple[int, ...]
) -> tuple[Axis, Axis]:
    x1, y1, x2, y2 = case.inputs["rois"].astype(np.float64).T
    return _axis(case, arguments, y1, y2, bins[0], lengths[0]), _axis(case, arguments, x1, x2, bins[1], lengths[1])


def _axis(case: Case, arguments: dict[str, AttributeValue], r1: Floats, r2: Floats, bins: int, length: int) -> Axis:
    scale, ratio = float(arguments["spatial_scale"]), int(arguments["sampling_ratio"])
    size = (r2 - r1) * scale
    if arguments["coordinate_transformation_mode"] == "output_half_pixel":
        size = np.maximum(size, 1.0)
    per_bin = np.full(size.shape, float(ratio)) if ratio else np.ceil(np.maximum(size / bins, 0.0))
    reach = np.abs(r1) * scale + length + 1.5
    in_map = reach / np.maximum(reach, np.abs(size))
    delta = coordinate_error(case, (np.abs(r1) + np.abs(r2)) * scale, reach, in_map)
    density = per_bin * bins / np.maximum(np.abs(size), LEAST_SIZE)
    return Axis(
        delta,
        np.minimum(per_bin, (length + 1) * density + 1),
        np.minimum(per_bin * bins, 2 * density + 1),
    )


def _steepness(x: Floats, arguments: dict[str, AttributeValue]) -> tuple[float, float]:
    """What an error of one pixel in y, and in x, can change a sample by."""
    if arguments["mode"] == "max":
        return largest(np.abs(x)), largest(np.abs(x))
    return slope(x)


def _samples(arguments: dict[str, AttributeValue], axis_y: Axis, axis_x: Axis) -> float:
    """Of how many samples inside the map an output is the sum, at most: a maximum is one of them."""
    return largest(axis_y.per_bin * axis_x.per_bin) if arguments["mode"] == "avg" else 1.0
