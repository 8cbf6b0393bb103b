# SPDX-License-Identifier: MIT
"""Convert the attributes of an ONNX Resize node to those of a DmlResample node that computes the same.

Both read output o of an axis at a coordinate x(o) of the input. For DmlResample it is (o - O)/S - I, with the scale S, the
input_pixel_offset I and the output_pixel_offset O of the axis; every coordinate_transformation_mode of ONNX has this form.
Both repeat the edges.

Source: ONNX operator specification, Resize, versions 10, 11, 13, 18 and 19; ONNX's shape inference of Resize for lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import onnx

from onnx_models.tools.opset_upgrade import nearest_mode_of_opset_10
from ortops.spec import MAX_RANK, AttributeValue

_VERSIONS = (10, 11, 13, 18, 19)
_HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Axis:
    """An axis of a Resize node: lengths of X and of Y, the scale or None for their ratio, start and end of roi."""

    name: str
    x: int | None
    y: int | None
    scale: Fraction | None
    start: Fraction = Fraction(0)
    end: Fraction = Fraction(1)

    @property
    def lengths(self) -> tuple[int, int]:
        """The lengths of X and Y; a ValueError if one is unknown."""
        if self.x is None or self.y is None:
            raise ValueError(f"{self.name} = None: must be known for this mode and scale")
        return self.x, self.y

    @property
    def has_ratio_for_scale(self) -> bool:
        """Whether the scale is the ratio of the lengths rounded to float32."""
        return bool(self.x and self.y and self.scale == Fraction(float(np.float32(self.y / self.x))))

    @property
    def is_kept(self) -> bool:
        """Whether the axis is copied."""
        same = self.scale == 1 or (self.scale is None and self.x is not None and self.x == self.y)
        return same and self.start == 0 and self.end == 1


@dataclass(frozen=True)
class _Transform:
    """The coordinates of an axis: scale S (None for the ratio of the lengths), input offset I and output offset O."""

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
    """Return the attributes with which DmlResample computes the same as a Resize node.

    At coordinate c, nearest_mode round_prefer_floor is ceil(c - 0.5) and round_prefer_ceil is floor(c + 0.5). An axis of
    scale 1 that is not cropped is copied. At opset 10, nearest means floor where axes grow and ceil where they shrink: the
    text of that version does not say so, but ONNX's test vectors do.

    Args:
        attributes: the Resize node's attributes, as `onnx.helper.get_attribute_value` returns them or with strings as
            str; missing ones have their defaults.
        x_shape: lengths of X, of 1 to 4 axes; None for an unknown length. Lengths must be known for align_corners,
            tf_crop_and_resize and keep_aspect_ratio_policy, for half_pixel_symmetric with scales that are no integers, for
            pytorch_half_pixel with scales below 1, and, if the node has sizes, for the axes without one.
        scales: the node's input, one for each of its axes; None or empty if it has sizes.
        sizes: the node's input, one for each of its axes; None or empty if it has scales.
        roi: the node's input, starts and then ends of its axes, relative to x_shape; only tf_crop_and_resize reads it.
        opset: the ONNX opset of the node, 10 or later.

    Returns:
        All attributes of DmlResample. scales is empty, which means the exact ratio of the two lengths, if Resize uses that
        ratio or its scales are the ratio rounded to float32. output_sizes is empty if a length of X is unknown and scales
        are given: the output then has floor(length * scale) pixels, while ONNX rounds that product to float32 first.

    Raises:
        ValueError: DmlResample cannot compute the same, or an argument is not allowed; the message names the
            argument, its value and the rule.
        TypeError: the node has an attribute that Resize does not have at this opset.
    """
    given_scales = [] if scales is None else list(scales)
    given_sizes = [] if sizes is None else list(sizes)
    options = _options(attributes, opset)
    if given_sizes and opset == 10:
        raise ValueError(f"sizes = {given_sizes}: must be left out at opset 10, whose Resize has no sizes")
    axes = _axes(options, list(x_shape), given_scales, given_sizes, roi)
    mode = options["coordinate_transformation_mode"]
    transforms = [_MODES[mode](axis) if not axis.is_kept else _half_pixel(axis) for axis in axes]
    direction, shift = "half_up", Fraction(0)
    if options["mode"] == "nearest":
        direction, shift = _NEAREST[options["nearest_mode"] if opset > 10 else nearest_mode_of_opset_10(given_scales)]
    # Attributes are float32. Each is rounded in the direction in which floor and ceil of the coordinates do not change:
    # floor of 1.9999999 instead of 2, or ceil of 2.0000001, would be another pixel.
    up = direction == "increasing"
    exact = all(transform.scale is None for transform in transforms)
    lengths = [axis.y for axis in axes]
    if None in lengths:
        _check_that_lengths_follow(transforms, axes)
    return {
        "interpolation_mode": "nearest_neighbor" if options["mode"] == "nearest" else "linear",
        "scales": () if exact else tuple(_float32(_scale(*pair), up) for pair in zip(transforms, axes, strict=True)),
        "input_pixel_offsets": tuple(_float32(transform.input_offset + shift, up) for transform in transforms),
        "output_pixel_offsets": tuple(_float32(transform.output_offset, up) for transform in transforms),
        "rounding_direction": direction,
        "output_sizes": () if None in lengths else tuple(lengths),
    }


def _half_pixel(axis: Axis) -> _Transform:
    return _Transform(axis.scale, _HALF, -_HALF)


def _half_pixel_symmetric(axis: Axis) -> _Transform:
    if axis.scale is None or axis.scale.denominator == 1:
        return _half_pixel(axis)
    x, y = axis.lengths
    return _Transform(axis.scale, _HALF - (x - y / axis.scale) / 2, -_HALF)


def _pytorch_half_pixel(axis: Axis) -> _Transform:
    # A Y of one pixel reads coordinate 0. With a scale of at least 1, X then has one pixel as well.
    if axis.scale is not None and axis.scale < 1:
        _ = axis.lengths
    return _asymmetric(axis) if axis.y == 1 else _half_pixel(axis)


def _asymmetric(axis: Axis) -> _Transform:
    return _Transform(axis.scale, Fraction(0), Fraction(0))


def _tf_half_pixel_for_nn(axis: Axis) -> _Transform:
    return _Transform(axis.scale, Fraction(0), -_HALF)


def _align_corners(axis: Axis) -> _Transform:
    x, y = axis.lengths
    # With one pixel of X, all coordinates are clamped to it; with one of Y, the only coordinate is 0.
    return _Transform(Fraction(y - 1, x - 1) if min(x, y) > 1 else Fraction(1), Fraction(0), Fraction(0))


def _tf_crop_and_resize(axis: Axis) -> _Transform:
    x, y = axis.lengths
    start, end = (axis.start, axis.end) if y > 1 else ((axis.start + axis.end) / 2,) * 2
    if min(x - 1, y) <= 0:
        return _Transform(Fraction(1), Fraction(0), Fraction(0))
    if not 0 <= start <= end <= 1:
        raise ValueError(
            f"roi of {axis.name} = ({float(axis.start)}, {float(axis.end)}): must not be reversed or leave the tensor, "
            "since DmlResample neither mirrors nor extrapolates"
        )
    if start == end:
        # All outputs read one coordinate. With this scale the steps between them vanish, and none goes beyond it.
        return _Transform(Fraction(float(np.finfo(np.float32).max)), -start * (x - 1), Fraction(y - 1))
    return _Transform((y - 1) / ((end - start) * (x - 1)), -start * (x - 1), Fraction(0))


_MODES: Mapping[str, Callable[[Axis], _Transform]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_half_pixel_for_nn": _tf_half_pixel_for_nn,
    "tf_crop_and_resize": _tf_crop_and_resize,
}
"""The functions that compute an axis's coordinates, by coordinate_transformation_mode."""

_NEAREST = {
    "round_prefer_floor": ("increasing", _HALF),
    "round_prefer_ceil": ("decreasing", -_HALF),
    "floor": ("decreasing", Fraction(0)),
    "ceil": ("increasing", Fraction(0)),
}
"""The rounding_direction and the number that is added to the input offset, by nearest_mode."""

_CHOICES = {
    "mode": ("nearest", "linear"),
    "coordinate_transformation_mode": tuple(_MODES),
    "nearest_mode": tuple(_NEAREST),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "antialias": (0,),
    "exclude_outside": (0,),
}
"""The values of attributes that DmlResample has an equivalent for."""


def _options(attributes: Mapping[str, object], opset: int) -> dict[str, AttributeValue]:
    """Return Resize's attributes with defaults; a newer attribute has the value that means the older behaviour."""
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
        name: onnx.helper.get_attribute_value(definition.default_value)
        for name, definition in defined.items()
        if name != "axes"
    }
    options |= attributes
    for name, value in options.items():
        options[name] = value.decode(errors="replace") if isinstance(value, bytes) else value
    for name, choices in _CHOICES.items():
        if name in options and options[name] not in choices:
            rule = f"must be {' or '.join(map(repr, choices))}: DmlResample has no equivalent of others"
            raise ValueError(f"{name} = {options[name]!r}: {rule}")
    return options


def _check_that_lengths_follow(transforms: Sequence[_Transform], axes: Sequence[Axis]) -> None:
    """Check that the lengths follow from the scales, as DmlResample without output_sizes computes them."""
    for transform, axis in zip(transforms, axes, strict=True):
        if axis.x is not None and transform.scale is not None and axis.y != int(axis.x * transform.scale):
            raise ValueError(
                f"{', '.join(other.name for other in axes if other.y is None)} = None: must be known, "
                f"as {axis.name} = {axis.x} becomes {axis.y}, which does not follow from its scale"
            )


def _scale(transform: _Transform, axis: Axis) -> Fraction:
    """Return the scale of an axis for a list of scales; any for an axis without pixels."""
    if transform.scale is not None:
        return transform.scale
    x, y = axis.lengths
    return Fraction(y, x) if min(x, y) > 0 else Fraction(1)


def _float32(value: Fraction, up: bool) -> float:
    """Round a number to float32, up or down."""
    near = np.float32(float(value))
    off = Fraction(float(near)) - value
    if off < 0 and up:
        near = np.nextafter(near, np.float32(np.inf))
    elif off > 0 and not up:
        near = np.nextafter(near, np.float32(-np.inf))
    return float(near)


def _axes(
    options: Mapping[str, AttributeValue],
    x_shape: list[int | None],
    scales: Sequence[float],
    sizes: Sequence[int],
    roi: Sequence[float] | None,
) -> list[Axis]:
    """Read the lengths, the scale and the crop of each axis of X; scales or sizes is empty.

    Raises:
        ValueError: an argument is not an allowed one, or a length that is needed is unknown.
    """
    rank = len(x_shape)
    if not 1 <= rank <= MAX_RANK:
        raise ValueError(f"x_shape = {x_shape}: must have 1 to {MAX_RANK} axes")
    given = range(rank) if options["axes"] is None else options["axes"]
    chosen = [axis + rank if axis < 0 else axis for axis in given]
    if len(set(chosen)) < len(chosen) or not set(chosen) <= set(range(rank)):
        raise ValueError(f"axes = {list(given)}: must be distinct and among the {rank} axes")
    if (len(scales) > 0) == (len(sizes) > 0):
        raise ValueError(f"scales = {list(scales)}, sizes = {list(sizes)}: exactly one of them must be given")
    for name, values in (("scales", scales), ("sizes", sizes)):
        if len(values) not in (0, len(chosen)):
            raise ValueError(f"{name} = {list(values)}: must have {len(chosen)} values, one for each axis")
    starts, ends = _crop(options, roi, len(chosen))
    names = [f"x_shape[{axis}]" for axis in range(rank)]
    axes = [
        Axis(names[axis], x_shape[axis], x_shape[axis], Fraction(1) if len(scales) else None) for axis in range(rank)
    ]
    resized = _scaled(scales, chosen, x_shape) if len(scales) else _sized(options, sizes, chosen, x_shape)
    for i, (axis, (length, scale)) in enumerate(zip(chosen, resized, strict=True)):
        axes[axis] = Axis(names[axis], x_shape[axis], length, scale, starts[i], ends[i])
    for axis_of_x in axes:
        if len(sizes) and axis_of_x.y is None:
            _ = axis_of_x.lengths
    if any(axis_of_x.y is None for axis_of_x in axes):
        return axes
    return [replace(axis_of_x, scale=None) if axis_of_x.has_ratio_for_scale else axis_of_x for axis_of_x in axes]


def _crop(
    options: Mapping[str, AttributeValue], roi: Sequence[float] | None, count: int
) -> tuple[list[Fraction], list[Fraction]]:
    """Return the starts and the ends of the axes."""
    if options["coordinate_transformation_mode"] != "tf_crop_and_resize":
        return [Fraction(0)] * count, [Fraction(1)] * count
    values = np.asarray(() if roi is None else roi, np.float32)
    if values.shape != (2 * count,) or not np.isfinite(values).all():
        raise ValueError(
            f"roi = {values.tolist()}: must have {2 * count} finite values, a start and an end for each axis"
        )
    parts = [Fraction(value) for value in values.tolist()]
    return parts[:count], parts[count:]


def _scaled(
    scales: Sequence[float], chosen: Sequence[int], x_shape: Sequence[int | None]
) -> list[tuple[int | None, Fraction | None]]:
    """Return the length and the scale of each chosen axis, given the node's scales."""
    pairs: list[tuple[int | None, Fraction | None]] = []
    for axis, scale in zip(chosen, np.asarray(scales, np.float32), strict=True):
        if not (np.isfinite(scale) and scale > 0):
            raise ValueError(f"scales = {list(scales)}: must be finite and > 0")
        length = x_shape[axis]
        pairs.append((None if length is None else int(_product(length, scale)), Fraction(float(scale))))
    return pairs


def _sized(
    options: Mapping[str, AttributeValue], sizes: Sequence[int], chosen: Sequence[int], x_shape: Sequence[int | None]
) -> list[tuple[int | None, Fraction | None]]:
    """Return the length and the scale (None for the ratio of the lengths) of each chosen axis, given the sizes."""
    wanted = [int(size) for size in sizes]
    if min(wanted) < 0:
        raise ValueError(f"sizes = {wanted}: must be >= 0")
    policy = options["keep_aspect_ratio_policy"]
    if policy == "stretch":
        return [(size, None) for size in wanted]
    lengths = [length for axis in chosen if (length := x_shape[axis])]
    if len(lengths) < len(chosen):
        raise ValueError(f"x_shape = {list(x_shape)}: must be known and > 0 for keep_aspect_ratio_policy = {policy!r}")
    choose = min if policy == "not_larger" else max
    ratio = choose(Fraction(size, length) for size, length in zip(wanted, lengths, strict=True))
    rounded = np.float32(float(ratio))
    kept = [int(_product(length, rounded) + 0.5) for length in lengths]
    return [
        (size, None if Fraction(size, length) == ratio else ratio) for size, length in zip(kept, lengths, strict=True)
    ]


def _product(length: int, scale: np.float32) -> float:
    """Multiply in single precision, as ONNX's shape inference does: there 10 * 0.7 is 7, not less."""
    return float(np.float32(length) * scale)
