"""The mutants of RoIAlignRotated and its gradient."""

from __future__ import annotations

import math

import numpy as np

from conformance.mutants.base import Category, Steps, Table, edit
from conformance.mutants.shared import OF_ONNX, OF_SAMPLES, ROIS_ALONE, SAMPLED, adaptive_of, counted
from conformance.mutants.steps import ROIS, by_default, given, in_type, meant, on, refused_if, result
from ortops.operators.roi_align_rotated import MAX_SAMPLING_RATIO
from ortops.reference.roi_align_rotated import (
    Region,
    add_to_droi,
    average,
    center_of,
    region_of,
    sign_of,
    sine_and_cosine,
    size_of,
)
from ortops.reference.sampling import adaptive_samples

COUNT = "samples_per_bin(size, bins, sampling_ratio)"
SIZE_OF_THE_OTHER = "size_of(h if stored is w else w, spatial_scale, aligned)[0]"
COUNT_OF_THE_OTHER = f"samples_per_bin({SIZE_OF_THE_OTHER}, output_size[stored is not w], sampling_ratio)"


def angle(changed: str) -> Steps:
    """The angle is changed."""
    return edit(sine_and_cosine, "* angle", f"* ({changed})")


def read(numbers: str) -> Steps:
    """The numbers of a RoI are read otherwise."""
    return edit(region_of, "cx, cy, w, h, angle = roi", numbers)


def turned_about(x: str, y: str) -> Steps:
    """A region is turned about a point that is `x` and `y` from its centre."""
    return edit(Region.samples, "self.place(u, v)", f"np.add(self.place(u - {x}, v - {y}), ({x}, {y})).tolist()")


def droi(*changes: str) -> Steps:
    """The gradient by the numbers of a RoI is changed."""
    return edit(add_to_droi, *changes)


table = Table(SAMPLED, ROIS_ALONE, OF_SAMPLES, OF_ONNX)
table.add(
    Category.COORDINATES,
    "Clockwise: The direction of rotation is inverted.",
    edit(sign_of, "-1.0 if clockwise else 1.0", "1.0 if clockwise else -1.0"),
    "ClockwiseIgnored: clockwise is ignored and taken for 0.",
    edit(sign_of, "-1.0 if clockwise else 1.0", "1.0"),
    "ClockwiseAlways: clockwise is ignored and taken for 1.",
    edit(sign_of, "-1.0 if clockwise else 1.0", "-1.0"),
    "AngleIgnored: The angle is ignored: regions are upright.",
    angle("0.0"),
    "AngleInDegrees: Angles are read in degrees, as in detectron2, instead of radians.",
    angle("math.radians(angle)"),
    "AngleTwice: Regions are rotated by twice the angle.",
    angle("2 * angle"),
    "AngleScaled: The angle is multiplied by spatial_scale too.",
    edit(region_of, "sine_and_cosine(angle,", "sine_and_cosine(angle * spatial_scale,"),
    "AngleOfQuarters: Angles are rounded to multiples of a quarter turn.",
    angle("round(angle / (math.pi / 2)) * math.pi / 2"),
    "AngleOfAHalfTurn: Angles are taken modulo half a turn, as for a box without a front.",
    angle("angle % math.pi"),
    "AngleCut: Angles are clipped to half a turn.",
    angle("min(max(angle, -math.pi), math.pi)"),
    "NegativeAngleIgnored: The sign of the angle is ignored.",
    angle("abs(angle)"),
    "SmallAngle: The sine and cosine of angle t are taken for t and 1, which holds for small angles only.",
    edit(sine_and_cosine, "math.sin(turn), math.cos(turn)", "turn, 1.0"),
    "SineOfX: The sine term of x has the wrong sign, so regions are sheared.",
    edit(Region.place, "+ v * self.sin", "- v * self.sin"),
    "SineOfY: The sine term of y has the wrong sign, so regions are sheared.",
    edit(Region.place, "- u * self.sin", "+ u * self.sin"),
    "SineAndCosineExchanged: Sine and cosine are exchanged.",
    edit(sine_and_cosine, "math.sin(turn), math.cos(turn)", "math.cos(turn), math.sin(turn)"),
    "SineExchanged: The sine terms of x and y are taken from the wrong side of the region.",
    edit(Region.place, "- u * self.sin", "- v * self.sin", "+ v * self.sin", "+ u * self.sin"),
    "XTurnedAlone: y is rotated with the already rotated x.",
    edit(Region.place, "- u * self.sin", "- (u * self.cos + v * self.sin) * self.sin"),
    "TurnedAboutTheCorner: Regions are rotated about their first corner instead of their centre.",
    turned_about("-self.width.size / 2", "-self.height.size / 2"),
    "TurnedAboutTheOrigin: Regions are rotated about the origin of the map instead of their centre.",
    turned_about("-self.center_x", "-self.center_y"),
    "BeginsAtTheCentre: cx and cy are read as the first corner of a region instead of its centre.",
    edit(Region.samples, "self.place(u, v)", "self.place(u + self.width.size / 2, v + self.height.size / 2)"),
    "CentreYBeforeX: RoIs are read as cy, cx, w, h and angle.",
    read("cy, cx, w, h, angle = roi"),
    "HeightBeforeWidth: RoIs are read as cx, cy, h, w and angle.",
    read("cx, cy, h, w, angle = roi"),
    "CornersForCentreAndSize: RoIs are read as x1, y1, x2, y2 and angle.",
    read("x1, y1, x2, y2, angle = roi; cx, cy, w, h = (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1"),
    "AngleFirst: RoIs are read as angle, cx, cy, w and h.",
    read("angle, cx, cy, w, h = roi"),
    "SizesHalved: Width and height are read as half the size of the region, so regions are twice as large.",
    edit(size_of, "stored * scale", "2 * stored * scale"),
    "SizesNotScaled: spatial_scale is applied to the centre but not to width and height.",
    edit(size_of, "stored * scale", "stored"),
    "CentreNotScaled: spatial_scale is applied to width and height but not to the centre.",
    edit(center_of, "stored * scale", "stored"),
    "AlignedIgnored: aligned is ignored and taken for 1.",
    meant(lambda a: a | {"aligned": 1}),
    "AlignedNever: aligned is ignored and taken for 0.",
    meant(lambda a: a | {"aligned": 0}),
    "ShiftTurned: The shift by half a pixel is rotated with the region.",
    edit(
        *(region_of, "center_of(cx, spatial_scale, aligned)", "cx * spatial_scale - 0.5 * aligned * (cosine + sine)"),
        *("center_of(cy, spatial_scale, aligned)", "cy * spatial_scale - 0.5 * aligned * (cosine - sine)"),
    ),
    "MirroredUpright: A negative width or height is replaced by its absolute value.",
    edit(size_of, "stored * scale", "abs(stored * scale)"),
    "NegativeSizesRefused: A negative width or height is refused.",
    refused_if(size_of, lambda stored, *_: stored < 0),
    "EmptySizesRefused: A width or height of 0 is refused.",
    refused_if(size_of, lambda stored, *_: stored == 0),
    "LeastSizeOfBoth: With aligned = 0, both sides are set to 1 if either is smaller.",
    edit(region_of, "size_of(stored,", "size_of(stored if aligned or min(w, h) * spatial_scale >= 1 else 0.0,"),
    "LeastSizeOfTheWidth: With aligned = 0, only the width is raised to 1.",
    edit(
        region_of, "size_of(stored, spatial_scale, aligned)", "size_of(stored, spatial_scale, aligned or stored is h)"
    ),
    "LeastSizeOfTheHeight: With aligned = 0, only the height is raised to 1.",
    edit(
        region_of, "size_of(stored, spatial_scale, aligned)", "size_of(stored, spatial_scale, aligned or stored is w)"
    ),
)
table.add(
    Category.BORDERS,
    "CentreOffTheMapIsEmpty: A region whose centre is outside the map gives 0.",
    edit(
        *(Region.rows, "if self.total == 0"),
        "if not (0 <= self.center_x < self.map_size[1] and 0 <= self.center_y < self.map_size[0]) or self.total == 0",
    ),
)
table.add(
    Category.COUNTS,
    "RatioIgnored: sampling_ratio is ignored and taken for 0.",
    meant(lambda a: a | {"sampling_ratio": 0}),
    "Ratio0OnePastWhole: The adaptive number of samples is one too large for bins of a whole number of pixels.",
    {adaptive_samples: lambda size, bins: math.floor(size / bins) + 1 if size > 0 else 0},
    "Ratio0OfTheOther: The adaptive numbers of samples of the two axes are exchanged.",
    edit(region_of, COUNT, COUNT_OF_THE_OTHER),
    "Ratio0OfTheBoxAround: The adaptive number of samples follows from the bounding box of the rotated region.",
    adaptive_of(f"(size * abs(cosine) + {SIZE_OF_THE_OTHER} * abs(sine) if size > 0 else size)"),
    "Ratio0OfTheTurnedBins: As the one before, for regions rotated by about a quarter turn only.",
    edit(region_of, COUNT, f"{COUNT_OF_THE_OTHER} if abs(sine) > abs(cosine) else {COUNT}"),
)
table.add(
    Category.REDUCTIONS,
    "Maximum: An output is the maximum of its samples and 0 instead of the average.",
    edit(
        *(average, "total += interpolated(channel, sample.corners)"),
        *("total = max(total, interpolated(channel, sample.corners))", "total / divisor_of(region)", "total"),
    ),
    "FirstSampleAlone: An output is its first sample instead of the average.",
    counted(lambda n: min(n, 1)),
)
table.add(
    Category.TYPES,
    "SineInTheTensorsType: Sine and cosine are rounded to the type of the tensors.",
    in_type(sine_and_cosine),
    "SineOfATable: Sine and cosine are looked up in a table of whole degrees.",
    angle("math.radians(round(math.degrees(angle)))"),
    "SineInFloat: Sine and cosine are float32 even for double tensors.",
    in_type(sine_and_cosine, dtype=np.float32),
)
table.add(
    Category.INDEXING,
    "AngleOfTheFirst: Every RoI uses the angle of the first RoI.",
    on(ROIS, lambda r: np.concatenate([r[:, :4], r[:1, 4:].repeat(len(r), 0)], axis=1)),
    "BinsReversedAlongX: The bins of each row are written in reverse order.",
    result(lambda y: y[..., ::-1]),
    "BinsReversedAlongY: The rows of bins are written in reverse order.",
    result(lambda y: y[..., ::-1, :]),
)
table.add(
    Category.GRADIENTS,
    "DxOfTheOtherDirection: The gradient rotates regions in the wrong direction.",
    angle("-angle if is_gradient() else angle"),
    "DxUpright: The gradient ignores the angle.",
    angle("0.0 if is_gradient() else angle"),
    "DxOfNotAligned: The gradient ignores aligned.",
    edit(center_of, "if aligned", "if aligned and not is_gradient()"),
)
for k, name in enumerate(("cx", "cy", "w", "h", "angle")):
    table.add(
        Category.GRADIENTS,
        f"D{name.capitalize()}Is0: The gradient by {name} is 0.",
        droi(f"droi[{k}] += ", f"droi[{k}] += 0.0 * "),
        f"D{name.capitalize()}Negated: The gradient by {name} has the wrong sign.",
        droi(f"droi[{k}] += ", f"droi[{k}] -= "),
    )
    if name != "angle":
        table.add(
            Category.GRADIENTS,
            f"D{name.capitalize()}WithoutScale: The gradient by {name} lacks the factor spatial_scale.",
            droi(f"droi[{k}] += ", f"droi[{k}] += 1 / region.scale * "),
        )
table.add(
    Category.GRADIENTS,
    "DAngleScaled: The gradient by the angle is multiplied by spatial_scale.",
    droi("droi[4] += ", "droi[4] += region.scale * "),
    "DAngleInDegrees: The gradient by the angle is per degree instead of per radian.",
    droi("droi[4] += ", "droi[4] += math.pi / 180 * "),
    "DAngleIgnoresClockwise: The sign of the gradient by the angle ignores clockwise.",
    droi(" * region.angle_sign", ""),
    "DAngleOfUprightSamples: The gradient by the angle is computed as if the angle were 0.",
    droi("(v * region.cos - u * region.sin)", "v", "(u * region.cos + v * region.sin)", "u"),
    "DAngleAboutTheOrigin: The gradient by the angle is that of a rotation about the origin of the map.",
    droi("(v * region.cos - u * region.sin)", "sample.y", "(u * region.cos + v * region.sin)", "sample.x"),
    "DSizesOfUprightSamples: The gradients by width and height are computed as if the angle were 0.",
    droi("(by_x * region.cos - by_y * region.sin)", "by_x", "(by_x * region.sin + by_y * region.cos)", "by_y"),
    "DSizesExchanged: The gradients by width and height are exchanged.",
    droi("droi[2] += (by_x", "droi[3] += (by_x", "droi[3] += (by_x * region.sin", "droi[2] += (by_x * region.sin"),
    "DCentreExchanged: The gradients by cx and cy are exchanged.",
    droi("droi[0] += by_x", "droi[0] += by_y", "droi[1] += by_y", "droi[1] += by_x"),
    "DCentreTurned: The gradients by cx and cy are rotated with the region.",
    droi(
        *("droi[0] += by_x", "droi[0] += (by_x * region.cos - by_y * region.sin)"),
        *("droi[1] += by_y", "droi[1] += (by_x * region.sin + by_y * region.cos)"),
    ),
    "DSizesOfEnds: The gradients by width and height are twice too large, as if only one end moved.",
    droi("droi[2] += ", "droi[2] += 2 * ", "droi[3] += ", "droi[3] += 2 * "),
    "DroisFixedBothWays: drois treats both width and height as constant if either has been raised to 1.",
    droi(
        *("if region.width.size_varies:", "if region.width.size_varies and region.height.size_varies:"),
        *("if region.height.size_varies:\n", "if region.height.size_varies and region.width.size_varies is True:\n"),
    ),
)
table.add(
    Category.DEFAULTS,
    "NotAlignedByDefault: aligned defaults to 0.",
    by_default(aligned=0),
    "ClockwiseByDefault: clockwise defaults to 1.",
    by_default(clockwise=1),
    "AlignedUnchecked: Values of aligned other than 0 and 1 are accepted and taken for 1.",
    given(lambda a: a | ({"aligned": int(a["aligned"] != 0)} if "aligned" in a else {})),
    "ClockwiseUnchecked: Values of clockwise other than 0 and 1 are accepted and taken for 1.",
    given(lambda a: a | ({"clockwise": int(a["clockwise"] != 0)} if "clockwise" in a else {})),
    "LargeRatioTaken: A sampling_ratio that is too large is taken for 1 instead of refused.",
    given(lambda a: a | ({"sampling_ratio": 1} if a.get("sampling_ratio", 0) > MAX_SAMPLING_RATIO else {})),
    "RatioIn32Bits: sampling_ratio is truncated to 32 bits.",
    given(lambda a: a | {"sampling_ratio": (a.get("sampling_ratio", 0) + 2**31) % 2**32 - 2**31}),
    "AnglesUnchecked: An infinite or NaN angle is taken for 0 instead of refused.",
    on(ROIS, lambda r: np.where((np.arange(r.shape[-1]) == 4) & ~np.isfinite(r), np.zeros((), r.dtype), r)),
    "FourNumbersTaken: RoIs with four numbers are accepted and have the angle 0.",
    on(ROIS, lambda r: np.pad(r, ((0, 0), (0, 1))) if r.shape[1:] == (4,) else r),
)
MUTANTS = table.of("roi_align_rotated")
__getattr__ = MUTANTS.find
