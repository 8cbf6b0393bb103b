"""Read the lengths, the scale and the crop of each axis from the attributes and inputs of a Resize node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ortops.spec import MAX_RANK, AttributeValue


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


def resize_axes(
    options: Mapping[str, AttributeValue],
    x_shape: list[int | None],
    scales: Sequence[float],
    sizes: Sequence[int],
    roi: Sequence[float] | None,
) -> list[Axis]:
    """Return the axes of X, in order.

    Args:
        options: all attributes of the Resize node.
        x_shape: lengths of X, None for an unknown one.
        scales: the node's input, or empty.
        sizes: the node's input, or empty.
        roi: the node's input, or None.

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
    found = _scaled(scales, chosen, x_shape) if len(scales) else _sized(options, sizes, chosen, x_shape)
    for i, (axis, (length, scale)) in enumerate(zip(chosen, found, strict=True)):
        axes[axis] = Axis(names[axis], x_shape[axis], length, scale, starts[i], ends[i])
    for one in axes:
        if len(sizes) and one.y is None:
            _ = one.lengths
    if any(one.y is None for one in axes):
        return axes
    return [replace(one, scale=None) if one.has_ratio_for_scale else one for one in axes]


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
    found: list[tuple[int | None, Fraction | None]] = []
    for axis, scale in zip(chosen, np.asarray(scales, np.float32), strict=True):
        if not (np.isfinite(scale) and scale > 0):
            raise ValueError(f"scales = {list(scales)}: must be finite and > 0")
        length = x_shape[axis]
        found.append((None if length is None else int(_product(length, scale)), Fraction(float(scale))))
    return found


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
