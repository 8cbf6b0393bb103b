"""Why the suite has facts that catch no fault that an earlier one does not catch.

A fault is what somebody thought of; a reason says what such a fact is for besides. A pattern is one of `fnmatch` for
`function/family/fact`; of several that match, the first counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Reason:
    """Patterns of facts, and what they are for."""

    patterns: tuple[str, ...]
    words: str

    def covers(self, fact: str) -> bool:
        """Whether it is given for a fact."""
        return any(fnmatchcase(fact, pattern) for pattern in self.patterns)


REASONS = (
    Reason(("*/refusal/*",), "each rule of validation is broken by a case of its own, in each operator that has it"),
    Reason(("*/detectron2/*", "*/mmcv/*", "*/published/*"), "numbers that others have published tie the suite to them"),
    Reason(("roi_align/edge/identity_region",), "a vector that ONNX merged, took back and never restored"),
    Reason(
        ("*/matrix/coordinates_are_not_half", "*/matrix/fine_coordinates"),
        "a map on which half-precision coordinates are wrong by more than any other rounding",
    ),
    Reason(
        ("*/matrix/*",), "each scene, one property of the geometry, meets each pair of the other attributes' values"
    ),
    Reason(("*/defaults/*",), "each operator with attributes left out"),
    Reason(("*/empty/*",), "each axis that may have length 0, alone and with others, in each operator"),
    Reason(
        ("*huge*", "*tiny_scale*", "*/largest_scale", "*/least_normal_scale", "*/far_offsets*"),
        "numbers that end a runtime or make it hang, in each mode that could count, list or convert them by itself",
    ),
    Reason(("*_of_4096_*", "*_of_8192_*", "*_of_12288_*"), "each sum that is long enough to stall in half precision"),
    Reason(("*/edge/*_axes", "*/edge/ranks_are_independent", "*/edge/leading_axes"), "each rank of each tensor"),
    Reason(
        ("dml_roi_align/edge/as_onnx_*", "dml_roi_align/edge/not_onnx_*"),
        "where DirectML's operator is ONNX's and where it is not: runtimes implement one by the other",
    ),
    Reason(
        (
            "roi_align/edge/half_pixel_zero_*",
            "roi_align/edge/half_pixel_negative_size_ratio_2",
            "roi_align/edge/all_outside",
            "roi_align/edge/max_between_pixels",
        ),
        "an input on which released runtimes were measured to differ",
    ),
    Reason(
        ("roi_align/edge/max_*", "roi_align_grad/edge/max_*"),
        "each fact of one meaning of max in the other, by hand: runtimes have either",
    ),
    Reason(
        ("roi_align/edge/sample_*",), "each stretch of an axis between the points where the rule for borders changes"
    ),
    Reason(
        (
            "roi_align/edge/half_pixel_inside",
            "roi_align/edge/output_half_pixel_inside",
            "roi_align/edge/half_pixel_keeps_a_small_size",
            "roi_align/edge/roi_is_x_before_y",
            "dml_roi_align/edge/region_is_x_before_y",
            "dml_roi_align/edge/output_is_height_before_width",
            "dml_roi_align/edge/between_pixels",
            "dml_resample/edge/between_pixels",
            "dml_resample/edge/identity",
            "dml_resample/edge/mean_of_two",
        ),
        "one step by itself, in numbers that a head can check: whoever fails this need not read a matrix",
    ),
    Reason(("*/edge/one_pixel_map",), "a map without a cell, where an index of a second pixel is out of bounds"),
    Reason(
        (
            "dml_*/edge/*offset*",
            "dml_resample/edge/aligned_corners",
            "dml_resample/edge/scale_*",
            "dml_resample/edge/scales_*",
            "dml_roi_align/edge/scale_*",
        ),
        "each offset and scale on each axis: both signs, 0, alone and with the other, each on its own side of the scale",
    ),
    Reason(
        ("dml_roi_align/edge/corners_*", "dml_roi_align/edge/samples_*"),
        "each branch of the number of samples and of their alignment: below, between and above the limits; one, two, many",
    ),
    Reason(
        ("dml_roi_align/edge/empty_region_*",),
        "an empty region by its number of samples: adaptive, and given for several outputs",
    ),
    Reason(
        ("dml_roi_align/edge/out_of_bounds_*", "dml_roi_align/edge/past_the_border_is_outside"),
        "out_of_bounds_input_value by where a sample lies: on either axis, beside the border, no sample, all of them",
    ),
    Reason(
        ("dml_roi_align/edge/max_*",),
        "a maximum by what wins: a sample or out_of_bounds_input_value, negative or below any start",
    ),
    Reason(
        ("dml_*/edge/nearest_*", "dml_resample/edge/*tie*"),
        "the nearest pixel by where a coordinate lies: on either side of a tie and on it, before, on and past the map",
    ),
    Reason(
        ("dml_resample/edge/increasing_*", "dml_resample/edge/decreasing_*", "dml_resample/edge/half_up_*"),
        "each rounding_direction by where a coordinate lies: on a pixel, in either half of a cell, beyond the edges",
    ),
    Reason(
        ("dml_resample/edge/sizes_*", "dml_resample/edge/*_than_the_scaled_input", "dml_resample/edge/length_*"),
        "the output's length by what gives it: scales, sizes, sizes below and above the scaled length",
    ),
    Reason(("dml_resample/edge/no_antialiasing",), "linear reads two pixels however small the scale, by hand"),
    Reason(("dml_resample/edge/channels_are_interpolated", "dml_resample/edge/sixteen_pixels"), "each axis of four"),
    Reason(
        ("dml_resample/edge/one_tap_*", "dml_resample/edge/unread_pixels_do_nothing"),
        "pixels that must not be read, infinite or NaN, on each side of each kind of tap",
    ),
    Reason(("*_grad/edge/*",), "the gradient of a forward fact by hand, which the reference's gradient must confirm"),
)


@dataclass(frozen=True, slots=True)
class Account:
    """Whether each fact is needed or has a reason.

    reasons: of the facts that are not needed, the reason or None.
    unused: reasons that are given for none of them.
    """

    reasons: Mapping[str, Reason | None]
    unused: tuple[Reason, ...]

    @property
    def unexplained(self) -> list[str]:
        """Facts that are neither."""
        return [fact for fact, reason in self.reasons.items() if reason is None]


def account(facts: Iterable[str], needed: Iterable[str]) -> Account:
    """Holds facts against those that are needed."""
    taken = set(needed)
    found = {fact: next((r for r in REASONS if r.covers(fact)), None) for fact in facts if fact not in taken}
    return Account(found, tuple(reason for reason in REASONS if reason not in found.values()))
