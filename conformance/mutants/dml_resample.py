"""The control and the mutants of DmlResample and its gradient."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from conformance.mutants.base import Array, Category, MutantFactory, Node, by_default, renamed
from conformance.mutants.sizes import add_calls, add_resample_sizes

LISTS = ("scales", "input_pixel_offsets", "output_pixel_offsets", "output_sizes")
DEFAULTS: dict[str, Any] = {
    "interpolation_mode": "linear",
    "rounding_direction": "half_up",
    **{name: [] for name in LISTS},
}


class Taps(NamedTuple):
    """The pixels that the outputs along one axis read.

    low, high: the pixels before and after each output's coordinate.
    share: the weight of `high`.
    inside: whether the coordinate is on the axis, so that it is not clamped.
    """

    low: Array
    high: Array
    share: Array
    inside: Array

    def parts(self) -> list[tuple[Array, Array]]:
        """Indices and weights of both pixels; a pixel with weight 0 must have no effect, even if it is infinite."""
        return [(self.low, 1 - self.share), (self.high, self.share)]


def upright(weights: Array, data: Array) -> Array:
    """Weights [M] reshaped to [M, 1, ...], with as many axes as `data`."""
    return weights.reshape(-1, *[1] * (data.ndim - 1)).astype(data.dtype)


class Control(Node):
    """The operators without a fault."""

    OPERATORS = ("DmlResample",)

    def defaults(self) -> dict[str, Any]:
        return DEFAULTS

    def check_attributes(self) -> None:
        a = self.attributes
        if a["interpolation_mode"] not in ("linear", "nearest_neighbor"):
            raise ValueError("interpolation")
        if a["rounding_direction"] not in ("half_up", "increasing", "decreasing"):
            raise ValueError("direction")
        if not all(0 < scale < np.inf for scale in a["scales"]) or any(size < 0 for size in a["output_sizes"]):
            raise ValueError("scale or size")
        if not np.isfinite([*a["input_pixel_offsets"], *a["output_pixel_offsets"]]).all():
            raise ValueError("offset")
        if not {len(a[name]) for name in LISTS} <= {0, max(len(a[name]) for name in LISTS)}:
            raise ValueError("lists")

    def answer(self, *inputs: Any) -> list[Array]:
        data = inputs[0]
        rank = data.ndim
        if data.dtype not in (np.float16, np.float32, np.float64) or not 1 <= rank <= 4:
            raise ValueError("type or rank")
        if any(len(self.attributes[name]) not in (0, rank) for name in LISTS):
            raise ValueError("lists")
        outputs, lengths = data.shape, data.shape
        if self.is_gradient:
            lengths = self.checked_shape(inputs[1], rank)
        else:
            outputs = self.output_lengths(lengths)
        if 0 in lengths and 0 not in outputs:
            return self.of_nothing(outputs)
        target = lengths if self.is_gradient else outputs
        if 0 in outputs or 0 in lengths:
            return [np.zeros(target)]
        working = data.astype(self.sum_type())
        along = self.gradient_along if self.is_gradient else self.forward_along
        for axis in range(rank):
            taps = self.taps(axis, rank, outputs[axis], lengths[axis])
            working = np.moveaxis(along(np.moveaxis(working, axis, 0), taps, target[axis]), 0, axis)
            working = self.between_axes(working)
        return [working]

    def of_nothing(self, outputs: tuple[int, ...]) -> list[Array]:
        """The result if there are outputs but no pixels to read."""
        raise ValueError("no pixels")

    def checked_shape(self, x_shape: Array, rank: int) -> tuple[int, ...]:
        """The lengths in x_shape, checked."""
        if x_shape.dtype != np.int64 or x_shape.shape != (rank,) or np.any(x_shape < 0):
            raise ValueError("x_shape")
        return tuple(x_shape.tolist())

    def sum_type(self) -> np.dtype[Any]:
        """The type of sums."""
        return np.dtype(np.float64)

    def between_axes(self, working: Array) -> Array:
        """The intermediate result between two axes."""
        return working

    def output_lengths(self, lengths: tuple[int, ...]) -> tuple[int, ...]:
        """The lengths of the output."""
        if self.attributes["output_sizes"]:
            return tuple(self.attributes["output_sizes"])
        if not self.attributes["scales"]:
            raise ValueError("no sizes")
        made = tuple(self.scaled(n, scale) for n, scale in zip(lengths, self.attributes["scales"], strict=True))
        if max(made) >= 2**63:
            raise ValueError("sizes")
        return made

    def scaled(self, length: int, scale: float) -> int:
        """The output length of an axis of `length` pixels."""
        return int(length * scale)

    def forward_along(self, data: Array, taps: Taps, _: int) -> Array:
        """Resample the first axis: [N, ...] to [M, ...]."""
        made = np.zeros((len(taps.low), *data.shape[1:]), data.dtype)
        for pixels, weights in taps.parts():
            kept = self.kept(weights, taps)
            read = kept != 0
            made[read] += data[pixels[read]] * upright(kept[read], data)
        return made

    def kept(self, weights: Array, taps: Taps) -> Array:
        """The weights that are used for the outputs."""
        return weights

    def gradient_along(self, data: Array, taps: Taps, length: int) -> Array:
        """The transpose of `forward_along`: [M, ...] to [N, ...]."""
        made = np.zeros((length, *data.shape[1:]), data.dtype)
        for pixels, weights in taps.parts():
            for on_axis, add in ((~taps.inside, self.pass_at_edge), (taps.inside, np.add.at)):
                meant = on_axis & (weights != 0)
                add(made, pixels[meant], data[meant] * upright(weights[meant], data))
        return made

    def pass_at_edge(self, made: Array, pixels: Array, passed: Array) -> None:
        """Add to the edge pixels the gradient of outputs beyond the edge."""
        np.add.at(made, pixels, passed)

    def taps(self, axis: int, rank: int, outputs: int, length: int) -> Taps:
        """The pixels and weights of the outputs along an axis."""
        x = self.coordinates(axis, rank, outputs, length)
        clamped = np.clip(x, 0, length - 1)
        if self.attributes["interpolation_mode"] == "linear":
            low, high, share = np.floor(clamped), np.ceil(clamped), clamped - np.floor(clamped)
        else:
            low = high = np.clip(self.nearest(x), 0, length - 1)
            share = np.zeros(outputs)
        return Taps(low.astype(np.int64), high.astype(np.int64), share, x == clamped)

    def coordinates(self, axis: int, rank: int, outputs: int, length: int) -> Array:
        """The input coordinates of the outputs along an axis."""
        before, after = self.offsets(axis, rank)
        return np.asarray((np.arange(float(outputs)) - after) / self.scale(axis, outputs, length) - before)

    def offsets(self, axis: int, rank: int) -> tuple[float, float]:
        """The input and the output pixel offset of an axis."""
        before = (self.attributes["input_pixel_offsets"] or [0.5] * rank)[axis]
        return before, (self.attributes["output_pixel_offsets"] or [-0.5] * rank)[axis]

    def scale(self, axis: int, outputs: int, length: int) -> float:
        """The scale of an axis, output length by input length."""
        scales = self.attributes["scales"]
        return float(scales[axis]) if scales else outputs / length

    def nearest(self, x: Array) -> Array:
        """The nearest pixel by the rounding direction."""
        direction = self.attributes["rounding_direction"]
        if direction == "half_up":
            return self.half_up(x)
        return np.ceil(x) if direction == "increasing" else np.floor(x)

    def half_up(self, x: Array) -> Array:
        """The nearest pixel; ties go up."""
        return np.floor(x + 0.5)


mutant = MutantFactory(Control)
mutant.begin_category(Category.COORDINATES)
mutant("FloorForHalfUp", "half_up always rounds down.")(half_up=lambda s, up, x: np.floor(x))
mutant("ResampleTieGoesDown", "half_up rounds ties down instead of up.")(half_up=lambda s, up, x: np.ceil(x - 0.5))
mutant("ResampleTieGoesToEven", "half_up rounds ties to even instead of up.")(half_up=lambda s, up, x: np.round(x))
mutant("DirectionsExchanged", "The rounding directions increasing and decreasing are exchanged.")(
    meaning=renamed("rounding_direction", increasing="decreasing", decreasing="increasing")
)
mutant("DirectionIgnored", "rounding_direction is ignored and taken for half_up.")(
    nearest=lambda s, up, x: s.half_up(x)
)
mutant("DirectionOfTiesAlone", "rounding_direction is applied to ties only; elsewhere the nearest pixel is read.")(
    nearest=lambda s, up, x: np.ceil(x - 0.5) if s.attributes["rounding_direction"] == "decreasing" else s.half_up(x)
)
mutant("DirectionOfLinear", "With increasing and decreasing, linear interpolation reads a single pixel.")(
    taps=lambda s, up, *a: (
        up(*a) if s.attributes["rounding_direction"] == "half_up" else (t := up(*a))._replace(share=np.ceil(t.share))
    )
)


def offset(change: Any) -> Any:
    """A replacement of `offsets`: `change` maps the input and output offset to new ones."""
    return lambda s, up, *a: change(*up(*a))


mutant("ResampleInputOffsetAdded", "input_pixel_offsets are added instead of subtracted.")(
    offsets=offset(lambda i, o: (-i, o))
)
mutant("ResampleOutputOffsetAdded", "output_pixel_offsets are added instead of subtracted.")(
    offsets=offset(lambda i, o: (i, -o))
)
mutant("OffsetsIgnored", "Pixel offsets are ignored and taken for 0.5 and -0.5.")(
    offsets=offset(lambda i, o: (0.5, -0.5))
)
mutant(
    "OutputOffsetOfTheInput",
    "output_pixel_offsets are subtracted after scaling, like input_pixel_offsets, instead of before.",
)(coordinates=lambda s, up, axis, rank, m, n: np.arange(float(m)) / s.scale(axis, m, n) - sum(s.offsets(axis, rank)))
mutant(
    "InputOffsetOfTheOutput",
    "input_pixel_offsets are subtracted before scaling, like output_pixel_offsets, instead of after.",
)(coordinates=lambda s, up, axis, rank, m, n: (np.arange(m) - sum(s.offsets(axis, rank))) / s.scale(axis, m, n))
mutant("LastOffsetsForAll", "Every axis uses the pixel offsets of the last axis.")(
    offsets=lambda s, up, axis, rank: up(rank - 1, rank)
)
mutant("LastScaleForAll", "Every axis uses the scale of the last axis.")(
    scale=lambda s, up, axis, *a: up(-1 if s.attributes["scales"] else axis, *a)
)
mutant("ScalesBackwards", "scales are read in reverse order.")(
    scale=lambda s, up, axis, *a: up(-1 - axis if s.attributes["scales"] else axis, *a)
)
mutant("RatioForScales", "scales are ignored: the ratio of output length to input length is used.")(
    scale=lambda s, up, axis, m, n: m / n
)
mutant("NoScalesIs1", "The scales are 1 if none are given, instead of the ratio of the lengths.")(
    scale=lambda s, up, *a: up(*a) if s.attributes["scales"] else 1.0
)
mutant(
    "RatioOfCorners", "Without scales, corners are aligned: the first and last outputs are the first and last pixels."
)(scale=lambda s, up, axis, m, n: up(axis, m, n) if s.attributes["scales"] or min(m, n) < 2 else (m - 1) / (n - 1))
mutant("LeadingAxesIgnored", "Only the last two axes are resampled.")(
    coordinates=lambda s, up, axis, rank, m, n: np.arange(float(m)) if axis < rank - 2 else up(axis, rank, m, n)
)
mutant("Scale1IsCopied", "An axis with scale 1 is copied, and its pixel offsets are ignored.")(
    coordinates=lambda s, up, axis, rank, m, n: (
        np.arange(float(m)) if s.scale(axis, m, n) == 1 else up(axis, rank, m, n)
    )
)
mutant("LinearIsNearest", "interpolation_mode is ignored: everything is nearest_neighbor.")(
    meaning=renamed("interpolation_mode", linear="nearest_neighbor")
)
mutant("NearestIsLinear", "interpolation_mode is ignored: everything is linear.")(
    meaning=renamed("interpolation_mode", nearest_neighbor="linear")
)

mutant.begin_category(Category.BORDERS)
mutant("EdgesNotClamped", "Outputs beyond the edge are 0 instead of the edge pixel.")(
    kept=lambda s, up, weights, taps: weights * taps.inside, pass_at_edge=lambda s, up, *a: None
)
mutant("EdgesReflected", "The tensor is mirrored beyond its edges instead of clamped.")(
    coordinates=lambda s, up, *a: np.minimum(x := np.abs(up(*a)), 2 * (a[-1] - 1) - x)
)
mutant("EdgesWrap", "The tensor is repeated beyond its edges instead of clamped.")(
    coordinates=lambda s, up, *a: np.where(((x := up(*a)) <= -1) | (x >= a[-1]), np.mod(x, a[-1]), x)
)
mutant("UnreadPixelsMultiplied", "Pixels with weight 0 are multiplied too, so an infinite one gives NaN.")(
    forward_along=lambda s, up, data, taps, _: sum(data[pixels] * upright(w, data) for pixels, w in taps.parts())
)

mutant.begin_category(Category.COUNTS)
mutant("LengthRoundedUp", "Output lengths are rounded up instead of down.")(
    scaled=lambda s, up, n, scale: int(np.ceil(n * scale))
)
mutant("LengthRoundedToTheNearest", "Output lengths are rounded to nearest instead of down.")(
    scaled=lambda s, up, n, scale: int(np.floor(n * scale + 0.5))
)
mutant("LengthAtLeast1", "Output lengths are at least 1.")(scaled=lambda s, up, *a: max(up(*a), 1))
mutant("SizesIgnored", "output_sizes are ignored if scales are given.")(
    meaning=lambda s, up, a: a | {"output_sizes": []} if a["scales"] else a
)

mutant.begin_category(Category.REDUCTIONS)


def antialiased(s: Any, up: Any, data: Array, taps: Taps, length: int) -> Any:
    """A replacement of `forward_along` that smooths the data before downsampling."""
    if length < len(data):
        places = np.arange(len(data))
        before, after = data[np.maximum(places - 1, 0)], data[np.minimum(places + 1, len(data) - 1)]
        data = (before + 2 * data + after) / 4
    return up(data, taps, length)


mutant("Antialiased", "Downsampling is antialiased: neighbouring pixels are averaged.")(forward_along=antialiased)
mutant("SharesExchanged", "The weights of the two interpolated pixels are exchanged.")(
    taps=lambda s, up, *a: (t := up(*a))._replace(share=np.where(t.high > t.low, 1 - t.share, t.share))
)
mutant("Smoothed", "Interpolation weights follow a smooth curve instead of a line.")(
    taps=lambda s, up, *a: (t := up(*a))._replace(share=t.share**2 * (3 - 2 * t.share))
)

mutant.begin_category(Category.TYPES)
mutant("HalfSums", "Sums are computed in the type of the tensors.")(sum_type=lambda s, up: s.dtype)
for name, words, step in (
    (
        "AxesInTheTensorsType",
        "The result along each axis is rounded to the type of the tensors before the next axis.",
        "between_axes",
    ),
    ("ResampleCoordinatesInTheTensorsType", "Coordinates are computed in the type of the tensors.", "coordinates"),
):
    mutant(name, words)(**{step: lambda s, up, *a: up(*a).astype(s.dtype).astype(np.float64)})
mutant("ResampleCoordinatesInFloat", "Coordinates are float32 even for double tensors.")(
    coordinates=lambda s, up, *a: up(*a).astype(np.float32).astype(np.float64)
)
mutant("ScalesInTheTensorsType", "Scales are rounded to the type of the tensors.")(
    scale=lambda s, up, *a: float(np.asarray(up(*a)).astype(s.dtype)) or 1.0
)


def steps_added(s: Any, up: Any, axis: int, rank: int, outputs: int, length: int) -> Any:
    """A replacement of `coordinates` that adds float32 steps to the first coordinate."""
    steps = np.full(outputs, 1 / s.scale(axis, outputs, length), np.float32)
    steps[:1] = up(axis, rank, outputs, length)[:1]
    return np.add.accumulate(steps).astype(np.float64)


mutant("StepsAdded", "Coordinates are accumulated in float32 steps.")(coordinates=steps_added)
mutant("ResampleDoubleInFloat", "Results of double tensors have the precision of float32.")(
    rounded=lambda s, up, v: v.astype(np.float32).astype(s.dtype)
)

mutant.begin_category(Category.INDEXING)
mutant("FirstImageAlone", "Results of tensors with four axes are those of the first image.")(
    rounded=lambda s, up, y: up(y[:1].repeat(len(y), 0) if y.ndim == 4 else y)
)
mutant("AxesReversed", "All list attributes are read in reverse order.")(
    meaning=lambda s, up, a: a | {name: list(a[name])[::-1] for name in LISTS}
)


def four_axes_alone(s: Any, up: Any, data: Array, *a: Any) -> Any:
    """A replacement of `answer` that refuses other ranks than 4."""
    if data.ndim != 4:
        raise ValueError("rank")
    return up(data, *a)


mutant("FourAxesAlone", "Tensors without exactly four axes are refused, as in DirectML's first version.")(
    answer=four_axes_alone
)

mutant.begin_category(Category.GRADIENTS)
mutant(
    "OffsetsSwappedInGradient",
    "The gradient exchanges the input and output pixel offsets, as DirectML's operator does.",
)(offsets=lambda s, up, *a: up(*a)[::-1] if s.is_gradient else up(*a))
mutant("ScaleInvertedInGradient", "The gradient takes scales for the scales from output to input.")(
    scale=lambda s, up, *a: 1 / up(*a) if s.is_gradient else up(*a)
)


def assigned(s: Any, up: Any, made: Array, pixels: Array, passed: Array) -> None:
    """A replacement of `pass_at_edge` that assigns instead of adding."""
    made[pixels] = passed


mutant("GradientAssignedAtEdges", "Of all outputs beyond an edge, only the last one passes its gradient on.")(
    pass_at_edge=assigned
)
mutant("ClampedGradientDropped", "Outputs beyond an edge pass no gradient to the edge pixel.")(
    pass_at_edge=lambda s, up, *a: None
)


def resampled(s: Any, up: Any, data: Array, taps: Taps, length: int) -> Any:
    """A replacement of `gradient_along` that resizes the gradient to `length`."""
    x = (np.arange(length) + 0.5) * len(data) / length - 0.5
    return data[np.clip(np.floor(x + 0.5), 0, len(data) - 1).astype(np.int64)]


mutant(
    "GradientByResampling",
    "The gradient is resized to the input's length instead of multiplied by the transposed matrix.",
)(gradient_along=resampled)
mutant("GradientAveraged", "The gradient of a pixel is the average over the outputs that read it instead of the sum.")(
    gradient_along=lambda s, up, data, taps, n: (
        up(data, taps, n) / upright(np.maximum(up(np.ones(len(data)), taps, n), 1), data)
    )
)


def to_both_pixels(s: Any, up: Any, data: Array, taps: Taps, length: int) -> Any:
    """A replacement of `gradient_along` that also adds 0 times the gradient."""
    made = up(data, taps, length)
    for pixels, weights in taps.parts():
        np.add.at(made, pixels[weights == 0], data[weights == 0] * 0)
    return made


mutant("GradientToBothPixels", "An infinite gradient is also passed to pixels with weight 0, which become NaN.")(
    gradient_along=to_both_pixels
)

mutant.begin_category(Category.DEFAULTS)
mutant("Offsets0ByDefault", "Pixel offsets default to 0.")(
    offsets=lambda s, up, *a: tuple(
        one if s.attributes[name] else 0.0 for one, name in zip(up(*a), LISTS[1:3], strict=True)
    )
)
mutant("ResampleNearestByDefault", "interpolation_mode defaults to nearest_neighbor.")(
    defaults=by_default(interpolation_mode="nearest_neighbor")
)
mutant("DecreasingByDefault", "rounding_direction defaults to decreasing.")(
    defaults=by_default(rounding_direction="decreasing")
)
mutant("ResampleAttributesUnchecked", "Attribute values are not checked.")(check_attributes=lambda s, up: None)
mutant("IntegersTaken", "Integer tensors are converted instead of refused.")(
    answer=lambda s, up, data, *a: up(data.astype(np.float32) if data.dtype.kind in "iu" else data, *a),
    rounded=lambda s, up, y: y.astype(np.float32) if s.dtype.kind in "iu" else up(y),
)
mutant("FloatShapeTaken", "A floating-point x_shape is accepted.", gradient_only=True)(
    checked_shape=lambda s, up, x_shape, rank: up(x_shape.astype(np.int64), rank)
)


def empty_refused(of_outputs: bool) -> Any:
    """A replacement of `output_lengths` that refuses empty outputs, or empty inputs."""

    def output_lengths(s: Any, up: Any, lengths: tuple[int, ...]) -> Any:
        made = up(lengths)
        if 0 in made and 0 not in lengths if of_outputs else 0 in lengths:
            raise ValueError("empty")
        return made

    return output_lengths


mutant("EmptyOutputRefused", "An output without elements is refused.")(output_lengths=empty_refused(True))
mutant("EmptyInputRefused", "An input without elements is refused.")(output_lengths=empty_refused(False))
mutant("NoPixelsAre0", "Outputs that have no pixels to read are 0 instead of an error.")(
    of_nothing=lambda s, up, outputs: up(outputs) if s.is_gradient else [np.zeros(outputs)]
)
add_resample_sizes(mutant)
add_calls(mutant)
MUTANTS = tuple(mutant)
__getattr__ = mutant.find
