"""ONNX's Resize as DirectML's resampling: the attributes of a DmlResample node that computes what a Resize node does.

Both read output o of an axis at a coordinate x(o) of the input. That of DmlResample is (o - O)/S - I, with the scale S,
the input_pixel_offset I and the output_pixel_offset O of the axis; every coordinate_transformation_mode of ONNX is of this
form. Both repeat the edges.

Source: ONNX operator specification, Resize, versions 10, 11, 13, 18 and 19; ONNX's shape inference of Resize for lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import onnx

from onnx_models.resize_axes import Axis, resize_axes
from ortops.spec import AttributeValue

_VERSIONS = (10, 11, 13, 18, 19)
_HALF = Fraction(1, 2)


@dataclass(frozen=True)
class _Place:
    """Where an axis is read: scale S (None for the ratio of the lengths), input offset I and output offset O."""

    scale: Fraction | None
    input_offset: Fraction
    output_offset: Fraction


def resample_attributes(
    attributes: Mapping[str, object],
    x_shape: Sequence[int | None],
    *,
    scales: Sequence[float] | None = None,
    sizes: Sequence[int] | None = None,
    roi: Sequence[float] | None = None,
    opset: int = 19,
) -> dict[str, AttributeValue]:
    """The attributes with which DmlResample computes what a Resize node does.

    Of coordinate c, nearest_mode round_prefer_floor is ceil(c - 0.5), round_prefer_ceil is floor(c + 0.5). An axis whose
    scale is 1 and that is not cropped stays as it is. At opset 10, nearest is the pixel before where axes grow and the one
    after where they shrink: ONNX's text of that version is silent, its test vectors have it so.

    Args:
        attributes: of the Resize node, as `onnx.helper.get_attribute_value` gives them, text also as str; those that are
            not there have their defaults.
        x_shape: lengths of X, of 1 to 4 axes; None for one that is not known. They must be known with align_corners,
            tf_crop_and_resize and keep_aspect_ratio_policy, with half_pixel_symmetric at scales that are not whole, with
            pytorch_half_pixel at scales below 1, and beside sizes for axes that sizes leave out.
        scales: the node's input, one for each of its axes; None or empty where it has sizes.
        sizes: the node's input, as scales.
        roi: the node's input, starts and then ends of its axes, as parts of x_shape; tf_crop_and_resize alone reads it.
        opset: the ONNX opset of the node, 10 or later.

    Returns:
        All attributes of DmlResample. scales is empty, which means the exact ratio of the two lengths, where Resize means
        that or its own scales are no more than that ratio in float32. output_sizes is empty where a length of X is unknown
        and scales are given: the output then has floor(length * scale) pixels, while ONNX rounds that product to float32.

    Raises:
        ValueError: DmlResample cannot do the same, or an argument is not an allowed one; the message has the argument, its
            value and the rule.
        TypeError: the node has an attribute that Resize does not have at this opset.
    """
    given_scales = [] if scales is None else list(scales)
    given_sizes = [] if sizes is None else list(sizes)
    options = _options(attributes, opset)
    if given_sizes and opset == 10:
        raise ValueError(f"sizes = {given_sizes}: must be left out at opset 10, whose Resize has scales alone")
    axes = resize_axes(options, list(x_shape), given_scales, given_sizes, roi)
    mode = options["coordinate_transformation_mode"]
    places = [_MODES[mode](axis) if not axis.is_kept else _half_pixel(axis) for axis in axes]
    direction, shift = "half_up", Fraction(0)
    if options["mode"] == "nearest":
        direction, shift = _NEAREST[options["nearest_mode"] if opset > 10 else nearest_mode_of_opset_10(given_scales)]
    # Attributes are float32. Each is rounded so that coordinates move away from the edge of the step that they decide
    # on: floor of 1.9999999 instead of 2, or ceil of 2.0000001, would be another pixel.
    up = direction == "increasing"
    exact = all(place.scale is None for place in places)
    lengths = [axis.y for axis in axes]
    if None in lengths:
        _check_that_lengths_follow(places, axes)
    return {
        "interpolation_mode": "nearest_neighbor" if options["mode"] == "nearest" else "linear",
        "scales": () if exact else tuple(_float32(_scale(*pair), up) for pair in zip(places, axes, strict=True)),
        "input_pixel_offsets": tuple(_float32(place.input_offset + shift, up) for place in places),
        "output_pixel_offsets": tuple(_float32(place.output_offset, up) for place in places),
        "rounding_direction": direction,
        "output_sizes": () if None in lengths else tuple(lengths),
    }


def _half_pixel(axis: Axis) -> _Place:
    return _Place(axis.scale, _HALF, -_HALF)


def _half_pixel_symmetric(axis: Axis) -> _Place:
    if axis.scale is None or axis.scale.denominator == 1:
        return _half_pixel(axis)
    x, y = axis.lengths
    return _Place(axis.scale, _HALF - (x - y / axis.scale) / 2, -_HALF)


def _pytorch_half_pixel(axis: Axis) -> _Place:
    # One pixel of Y is read at 0. From a scale of 1 on, X has no other one either.
    if axis.scale is not None and axis.scale < 1:
        _ = axis.lengths
    return _asymmetric(axis) if axis.y == 1 else _half_pixel(axis)


def _asymmetric(axis: Axis) -> _Place:
    return _Place(axis.scale, Fraction(0), Fraction(0))


def _tf_half_pixel_for_nn(axis: Axis) -> _Place:
    return _Place(axis.scale, Fraction(0), -_HALF)


def _align_corners(axis: Axis) -> _Place:
    x, y = axis.lengths
    # With one pixel of X all coordinates are clamped to it, with one of Y the only one is 0.
    return _Place(Fraction(y - 1, x - 1) if min(x, y) > 1 else Fraction(1), Fraction(0), Fraction(0))


def _tf_crop_and_resize(axis: Axis) -> _Place:
    x, y = axis.lengths
    start, end = (axis.start, axis.end) if y > 1 else ((axis.start + axis.end) / 2,) * 2
    if min(x - 1, y) <= 0:
        return _Place(Fraction(1), Fraction(0), Fraction(0))
    if not 0 <= start <= end <= 1:
        raise ValueError(
            f"roi of {axis.name} = ({float(axis.start)}, {float(axis.end)}): must go forward and stay in the tensor, "
            "DmlResample neither mirrors nor extrapolates"
        )
    if start == end:
        # All read one coordinate. The steps from the last one are too small to count, and none goes beyond it.
        return _Place(Fraction(float(np.finfo(np.float32).max)), -start * (x - 1), Fraction(y - 1))
    return _Place((y - 1) / ((end - start) * (x - 1)), -start * (x - 1), Fraction(0))


_MODES: Mapping[str, Callable[[Axis], _Place]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_half_pixel_for_nn": _tf_half_pixel_for_nn,
    "tf_crop_and_resize": _tf_crop_and_resize,
}
"""By coordinate_transformation_mode."""

_NEAREST = {
    "round_prefer_floor": ("increasing", _HALF),
    "round_prefer_ceil": ("decreasing", -_HALF),
    "floor": ("decreasing", Fraction(0)),
    "ceil": ("increasing", Fraction(0)),
}
"""By nearest_mode, the rounding_direction and what is added to the input offset."""

_CHOICES = {
    "mode": ("nearest", "linear"),
    "coordinate_transformation_mode": tuple(_MODES),
    "nearest_mode": tuple(_NEAREST),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "antialias": (0,),
    "exclude_outside": (0,),
}
"""What DmlResample has a counterpart for."""


def _options(attributes: Mapping[str, object], opset: int) -> dict[str, AttributeValue]:
    """All attributes of Resize that matter here, given or by default; those of newer versions as they mean the older."""
    version = onnx.defs.get_schema("Resize", opset).since_version if onnx.defs.has("Resize", opset, "") else None
    if version not in _VERSIONS:
        raise ValueError(f"opset = {opset}: must be one with a Resize of version {', '.join(map(str, _VERSIONS))}")
    defined = onnx.defs.get_schema("Resize", opset).attributes
    unknown = sorted(set(attributes) - set(defined))
    if unknown:
        raise TypeError(f"Resize of opset {opset} has no attribute {', '.join(unknown)}")
    options: dict[str, AttributeValue] = {
        "coordinate_transformation_mode": "asymmetric",
        "keep_aspect_ratio_policy": "stretch",
        "axes": None,
    }
    options |= {
        name: onnx.helper.get_attribute_value(one.default_value) for name, one in defined.items() if name != "axes"
    }
    options |= attributes
    for name, value in options.items():
        options[name] = value.decode(errors="replace") if isinstance(value, bytes) else value
    for name, choices in _CHOICES.items():
        if name in options and options[name] not in choices:
            rule = f"must be {' or '.join(map(repr, choices))}: DmlResample has no counterpart of others"
            raise ValueError(f"{name} = {options[name]!r}: {rule}")
    return options


def nearest_mode_of_opset_10(scales: Sequence[float]) -> str:
    """The nearest_mode of a newer Resize that does what opset 10 does.

    Raises:
        ValueError: it would have to be two.
    """
    if min(scales) < 1 < max(scales):
        raise ValueError(
            f"scales = {list(scales)}: must not be both below and above 1 at opset 10, "
            "where nearest rounds the two differently, while since then a node has one rounding"
        )
    return "ceil" if min(scales) < 1 else "floor"


def _check_that_lengths_follow(places: Sequence[_Place], axes: Sequence[Axis]) -> None:
    """Without output_sizes DmlResample makes the lengths from its scales."""
    for place, axis in zip(places, axes, strict=True):
        if axis.x is not None and place.scale is not None and axis.y != int(axis.x * place.scale):
            raise ValueError(
                f"{', '.join(one.name for one in axes if one.y is None)} = None: must be known, "
                f"as {axis.name} = {axis.x} becomes {axis.y} by a scale that would not say so"
            )


def _scale(place: _Place, axis: Axis) -> Fraction:
    """The scale where it must be written out; anything for an axis without pixels."""
    if place.scale is not None:
        return place.scale
    x, y = axis.lengths
    return Fraction(y, x) if min(x, y) > 0 else Fraction(1)


def _float32(value: Fraction, up: bool) -> float:
    """`value` as float32, rounded up or down."""
    near = np.float32(float(value))
    off = Fraction(float(near)) - value
    if off < 0 and up:
        near = np.nextafter(near, np.float32(np.inf))
    elif off > 0 and not up:
        near = np.nextafter(near, np.float32(-np.inf))
    return float(near)
