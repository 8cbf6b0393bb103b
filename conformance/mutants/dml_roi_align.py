"""The control and the mutants of DmlRoiAlign and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.mutants.base import Array, Category, MutantFactory, by_default, renamed
from conformance.mutants.roi_control import Axis, RoiControl
from conformance.mutants.roi_mutants import add_mutants
from conformance.mutants.sizes import add_samples_beyond, add_sizes

DEFAULTS: dict[str, Any] = {
    "output_height": 1,
    "output_width": 1,
    "reduction_function": "average",
    "interpolation_mode": "linear",
    "spatial_scale_x": 1.0,
    "spatial_scale_y": 1.0,
    "input_pixel_offset": 0.5,
    "output_pixel_offset": -0.5,
    "out_of_bounds_input_value": 0.0,
    "minimum_samples_per_output": 1,
    "maximum_samples_per_output": 2**32 - 1,
    "align_regions_to_corners": 0,
}


class Control(RoiControl):
    """The operators without a fault."""

    OPERATORS = ("DmlRoiAlign",)

    def defaults(self) -> dict[str, Any]:
        return DEFAULTS

    @property
    def mode(self) -> str:
        return "max_interpolated" if self.attributes["reduction_function"] == "max" else "avg"

    @property
    def is_nearest(self) -> bool:
        """Whether a sample reads the nearest pixel."""
        return bool(self.attributes["interpolation_mode"] == "nearest_neighbor")

    def check_attributes(self) -> None:
        a = self.attributes
        if a["reduction_function"] not in ("average", "max") or a["output_height"] < 1 or a["output_width"] < 1:
            raise ValueError("reduction or size")
        if a["interpolation_mode"] not in ("linear", "nearest_neighbor") or a["align_regions_to_corners"] not in (0, 1):
            raise ValueError("interpolation or corners")
        if not (0 < a["spatial_scale_x"] < np.inf and 0 < a["spatial_scale_y"] < np.inf):
            raise ValueError("scale")
        if not np.isfinite([a["input_pixel_offset"], a["output_pixel_offset"]]).all():
            raise ValueError("offset")
        if not 1 <= a["minimum_samples_per_output"] <= a["maximum_samples_per_output"] < 2**32:
            raise ValueError("samples")

    def are_shapes(self, rois: tuple[int, ...], images: tuple[int, ...]) -> bool:
        """Whether the shapes of RoIs and batch indices are right; both may have leading axes of length 1."""
        if not 2 <= len(rois) <= 4 or not 1 <= len(images) <= 4:
            return False
        return rois == (1,) * (len(rois) - 2) + (images[-1], 4) and set(images[:-1]) <= {1}

    def outside_value(self) -> float:
        return float(self.attributes["out_of_bounds_input_value"])

    def average(self, image: Array, axis_y: Axis, axis_x: Axis) -> Array:
        """The averages of a RoI's bins, [C, P, Q], with the samples outside the map."""
        on_map = np.outer(axis_y.counts / axis_y.per_bin, axis_x.counts / axis_x.per_bin)
        return self.completed(super().average(image, axis_y, axis_x), on_map)

    def completed(self, inside: Array, on_map: Array) -> Array:
        """The average over all samples, from the average part inside the map and the share of samples there."""
        outside = np.multiply(self.outside_value(), 1 - on_map, where=on_map < 1, out=np.zeros_like(on_map))
        return np.asarray(inside + outside)

    def scales(self) -> tuple[float, float]:
        return float(self.attributes["spatial_scale_y"]), float(self.attributes["spatial_scale_x"])

    def input_offset(self) -> float:
        """The offset that is subtracted from coordinates on the map."""
        return float(self.attributes["input_pixel_offset"])

    def output_offset(self) -> float:
        """The offset that is subtracted from the number of a sample."""
        return float(self.attributes["output_pixel_offset"])

    def is_to_corners(self) -> bool:
        """Whether the first and last samples lie on the ends of the region."""
        return bool(self.attributes["align_regions_to_corners"])

    def axis(self, r1: float, r2: float, scale: float, bins: int, length: int) -> Axis:
        a, size = self.start(r1, scale), self.size(r1, r2, scale)
        per_bin = self.count(size, bins)
        steps, middle = bins * per_bin, False
        if self.is_to_corners():
            steps, middle = max(steps - 1, 1), steps == 1
        offset, step, p = self.output_offset(), size / steps, np.arange(bins)[:, None] * float(per_bin)
        i, is_first = self.listed(a - self.input_offset() + step * (p[:, 0] - offset), step, per_bin, length)
        t = (p + i - offset) / steps if not middle else np.full(i.shape, 0.5)
        c = self.place(a, size, t)
        return self.sampled(c, self.by_ends(t, scale, False), is_first, per_bin, length)

    def place(self, a: float, size: float, t: Array) -> Array:
        """The coordinates of samples at the shares `t` of a side."""
        return np.asarray(a + size * t - self.input_offset())

    def count(self, size: float, bins: int) -> int:
        least, most = self.limits()
        return min(max(self.adaptive_count(size, bins), least), most)

    def limits(self) -> tuple[int, int]:
        """The minimum and maximum number of samples of a bin along an axis."""
        a = self.attributes
        return int(a["minimum_samples_per_output"]), int(a["maximum_samples_per_output"])

    def taps(self, c: Array, length: int) -> Array:
        """The pixels before and after each coordinate, [..., 2]; `length` stands for none, as after a whole coordinate."""
        clamped = np.clip(c, 0, length - 1)
        low, high = np.floor(clamped), np.ceil(clamped)
        if self.is_nearest:
            # Only the pixel with weight 1 is read.
            is_low = self.weights(c, length)[..., 0] == 1
            return np.stack([np.where(is_low, low, length), np.where(is_low, length, high)], -1)
        return np.stack([low, np.where(high > low, high, length)], -1)

    def weights(self, c: Array, length: int) -> Array:
        if not self.is_nearest:
            return super().weights(c, length)
        is_low = np.clip(self.nearest(c), 0, length - 1) == np.floor(np.clip(c, 0, length - 1))
        return np.stack([is_low, ~is_low], -1).astype(np.float64)

    def nearest(self, c: Array) -> Array:
        """The nearest pixel."""
        return np.floor(c + 0.5)

    def has_slope(self, c: Array, inside: Array, length: int) -> Array:
        """Whether the value of a sample changes with its coordinate: not on a pixel, and so not where c is clamped."""
        clamped = np.clip(c, 0, length - 1)
        return np.asarray(inside & (clamped != np.floor(clamped)) & (not self.is_nearest))

    def gradient(self, dy: Array, rois: Array, images: Array, x_shape: Any, x: Any) -> list[Array]:
        """The gradients that the node has; nearest_neighbor has none by the regions."""
        made = super().gradient(dy, rois, images, x_shape, x)
        if self.wants_drois and not self.has_slope(np.array([0.5]), np.array([True]), 2)[0]:
            made[-1] = np.zeros_like(made[-1])
        return made


mutant = MutantFactory(Control)
mutant.begin_category(Category.COORDINATES)
mutant("RegionAtLeastOnePixel", "Regions are at least one pixel wide and high, as with ONNX's output_half_pixel.")(
    size=lambda s, up, *a: max(up(*a), 1.0)
)
mutant("InputOffsetAdded", "input_pixel_offset is added instead of subtracted.")(input_offset=lambda s, up: -up())
mutant("InputOffsetIgnored", "input_pixel_offset is ignored and taken for 0.5.")(input_offset=lambda s, up: 0.5)
mutant("InputOffsetScaled", "input_pixel_offset is subtracted before scaling instead of after it.")(
    start=lambda s, up, r1, scale: up(r1, scale) + s.input_offset() * (1 - scale)
)
mutant("InputOffsetAtMost1", "input_pixel_offset is limited to 1.")(input_offset=lambda s, up: min(up(), 1.0))
mutant("OutputOffsetAtMost1", "output_pixel_offset is limited to 1.")(output_offset=lambda s, up: min(up(), 1.0))
mutant("OutputOffsetAdded", "output_pixel_offset is added instead of subtracted.")(output_offset=lambda s, up: -up())
mutant("OutputOffsetIgnored", "output_pixel_offset is ignored and taken for -0.5.")(output_offset=lambda s, up: -0.5)
mutant("OutputOffsetInPixels", "output_pixel_offset counts in pixels of the map instead of samples.")(
    output_offset=lambda s, up: 0.0, input_offset=lambda s, up: up() + s.attributes["output_pixel_offset"]
)
mutant("CornersIgnored", "align_regions_to_corners is ignored and taken for 0.")(is_to_corners=lambda s, up: False)
mutant("CornersAlways", "align_regions_to_corners is ignored and taken for 1.")(is_to_corners=lambda s, up: True)
mutant("ScalesExchanged", "spatial_scale_x and spatial_scale_y are exchanged.")(scales=lambda s, up: up()[::-1])
mutant("ScaleXForBoth", "spatial_scale_x is used for both axes.")(scales=lambda s, up: (up()[1],) * 2)
mutant("TieGoesDown", "A sample halfway between two pixels reads the one before it instead of after it.")(
    nearest=lambda s, up, c: np.ceil(c - 0.5)
)
mutant("TieGoesToEven", "A sample halfway between two pixels reads the even one.")(nearest=lambda s, up, c: np.round(c))
mutant("NearestTruncated", "nearest_neighbor rounds coordinates down instead of to nearest.")(
    nearest=lambda s, up, c: np.floor(c)
)
mutant("NearestIsLinear", "interpolation_mode is ignored: everything is linear.")(
    meaning=renamed("interpolation_mode", nearest_neighbor="linear")
)

mutant.begin_category(Category.BORDERS)
mutant("OutsideReplacesAll", "An average with any sample outside the map is out_of_bounds_input_value.")(
    completed=lambda s, up, inside, on_map: np.where(on_map < 1, s.outside_value(), inside)
)
mutant("OutsideNotCounted", "Samples outside the map are left out of an average.")(
    completed=lambda s, up, inside, on_map: np.where(on_map > 0, inside / on_map, s.outside_value())
)
mutant("OutsideIs0", "out_of_bounds_input_value is ignored and taken for 0.")(outside_value=lambda s, up: 0.0)
mutant("OutsideIs0InMaxima", "out_of_bounds_input_value applies to averages only; in a maximum it is 0.")(
    outside_value=lambda s, up: up() if s.mode == "avg" else 0.0
)
mutant("BordersOutside", "Samples at exactly -1 and at exactly the map's length count as outside.")(
    inside=lambda s, up, c, n: (c > -1) & (c < n)
)
mutant("BorderAtTheFirstPixel", "Samples before the first and after the last pixel count as outside the map.")(
    inside=lambda s, up, c, n: (c >= 0) & (c <= n - 1)
)
mutant("BorderOfTheNearest", "With nearest_neighbor, the map ends half a pixel beyond its first and last pixel.")(
    inside=lambda s, up, c, n: (c >= -0.5) & (c < n - 0.5) if s.is_nearest else up(c, n)
)

mutant.begin_category(Category.COUNTS)
mutant("MinimumIgnored", "minimum_samples_per_output is ignored and taken for 1.")(limits=lambda s, up: (1, up()[1]))
mutant("MaximumIgnored", "maximum_samples_per_output is ignored.")(limits=lambda s, up: (up()[0], 2**62))
mutant("MaximumAlways", "maximum_samples_per_output is always taken as the number of samples if it is given.")(
    count=lambda s, up, *a: s.limits()[1] if s.limits()[1] < 2**31 else up(*a)
)
mutant("SamplesAtMost64", "The number of samples of a bin along an axis is limited to 64.")(
    count=lambda s, up, *a: min(up(*a), 64)
)
mutant("CountsIn32Bits", "The number of samples of a bin, the product over both axes, overflows 32 bits.")(
    divisor=lambda s, up, y, x: max(y.per_bin * x.per_bin % 2**32, 1)
)


def empty_is_0(s: Any, up: Any, r1: float, r2: float, *a: Any) -> Any:
    """A replacement of `axis` by which empty regions read zeros."""
    made = up(r1, r2, *a)
    if r2 > r1 or s.limits()[0] == s.limits()[1]:
        return made
    return made._replace(weights=0 * made.weights, inside=np.ones_like(made.inside))


mutant("EmptyRegionIs0", "An empty or inverted region gives 0, as with ONNX's adaptive sampling.")(axis=empty_is_0)

mutant.begin_category(Category.REDUCTIONS)
mutant("MaxOfCorners", "A maximum is taken over weighted corners, as in ONNX, instead of interpolated samples.")(
    reduced=lambda s, up, pixels, weights: (
        up(pixels, weights) if s.is_nearest or s.is_gradient else (pixels * weights).max(axis=(5, 6))
    )
)
mutant("EveryReductionIsAverage", "reduction_function is ignored: everything is an average.")(
    meaning=renamed("reduction_function", max="average")
)
mutant("MaxReadsAverage", "average is computed as max.")(meaning=renamed("reduction_function", average="max"))

mutant.begin_category(Category.INDEXING)
mutant("RegionIndexSigned", "uint32 indices are read as signed: the largest is -1, the last image.")(
    are_images=lambda s, up, images, n: up(np.where(is_signed(images) & (signed(images) < 0), 0, signed(images)), n),
    image=lambda s, up, x, n: up(x, n - 2**32 if n >= 2**31 else n),
)


def is_signed(images: Array) -> bool:
    """Whether indices are uint32, whose upper half may be misread as negative numbers."""
    return images.dtype == np.uint32


def signed(images: Array) -> Array:
    """uint32 indices reinterpreted as int32; others unchanged."""
    return images.astype(np.int32) if is_signed(images) else images


mutant("FirstOfLeadingAxes", "Regions and indices with leading axes are refused.")(
    are_shapes=lambda s, up, rois, images: up(rois, images) and len(rois) == 2 and len(images) == 1
)

mutant.begin_category(Category.GRADIENTS)
mutant("MapGradientWithoutOutside", "The gradient of the map is divided by the number of samples inside the map only.")(
    average_part=lambda s, up, dy, image, y, x: up(
        dy * y.per_bin * x.per_bin / np.maximum(np.outer(y.counts, x.counts), 1), image, y, x
    )
)
mutant(
    "MapNotNeeded", "A gradient that needs InputTensor takes zeros for it where it is missing, instead of refusing."
)(needs_x=lambda s, up: False)
mutant(
    "SlopeOnAPixel", "In the gradient of regions, a sample on a pixel uses the slope of the cell after it, as in ONNX."
)(
    taps=lambda s, up, c, n: up(c, n) if s.is_nearest else np.floor(np.clip(c, 0, n - 1))[..., None] + [0, 1],
    has_slope=lambda s, up, c, inside, n: inside & (np.floor(np.clip(c, 0, n - 1)) < n - 1) & (not s.is_nearest),
)
mutant("NearestHasASlope", "With nearest_neighbor, regions get the gradient of linear interpolation instead of 0.")(
    taps=lambda s, up, c, n: np.floor(np.clip(c, 0, n - 1))[..., None] + [0, 1],
    has_slope=lambda s, up, c, inside, n: inside & (np.clip(c, 0, n - 1) % 1 != 0),
)

mutant.begin_category(Category.DEFAULTS)
mutant("InputOffset0ByDefault", "input_pixel_offset defaults to 0.")(defaults=by_default(input_pixel_offset=0.0))
mutant("OutputOffset0ByDefault", "output_pixel_offset defaults to 0.")(defaults=by_default(output_pixel_offset=0.0))
mutant("OneSampleByDefault", "maximum_samples_per_output defaults to 1.")(
    defaults=by_default(maximum_samples_per_output=1)
)
mutant("CornersByDefault", "align_regions_to_corners defaults to 1.")(defaults=by_default(align_regions_to_corners=1))
mutant("NearestByDefault", "interpolation_mode defaults to nearest_neighbor.")(
    defaults=by_default(interpolation_mode="nearest_neighbor")
)
mutant("RegionMaxByDefault", "reduction_function defaults to max.")(defaults=by_default(reduction_function="max"))
LIMITS = ("minimum_samples_per_output", "maximum_samples_per_output")
mutant("LimitsExchanged", "A minimum_samples_per_output above the maximum is accepted, and the two are exchanged.")(
    meaning=lambda s, up, a: a | dict(zip(LIMITS, sorted(a[name] for name in LIMITS), strict=True))
)
mutant("LeadingAxesOfNothingTaken", "Leading axes of any length are accepted where there are no regions.")(
    are_shapes=lambda s, up, rois, images: (rois[-2:] == (0, 4) and images[-1:] == (0,)) or up(rois, images)
)
add_mutants(mutant, 1)
add_sizes(mutant)
add_samples_beyond(mutant, "size")
MUTANTS = tuple(mutant)
__getattr__ = mutant.find
