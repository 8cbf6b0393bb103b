# SPDX-License-Identifier: MIT OR Apache-2.0
"""The mutants of RoIAlignRotated and its gradient."""

from __future__ import annotations

import math

import numpy as np

from conformance.mutants.base import Category, Steps, Table, edit
from conformance.mutants.shared import OF_ONNX, OF_SAMPLES, ROIS_ALONE, SAMPLED
from conformance.mutants.steps import ROIS, by_default, given, in_type, meant, on
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


def angle(changed: str) -> Steps:
    """The angle is changed."""
    return edit(sine_and_cosine, "* angle", f"* ({changed})")


def droi(*changes: str) -> Steps:
    """The gradient by the numbers of a RoI is changed."""
    return edit(add_to_droi, *changes)


table = Table(SAMPLED, ROIS_ALONE, OF_SAMPLES, OF_ONNX)
table.add(
    Category.COORDINATES,
    "Clockwise: The direction of rotation is inverted.",
    edit(sign_of, "-1.0 if clockwise else 1.0", "1.0 if clockwise else -1.0"),
    "AngleIgnored: The angle is ignored: regions are upright.",
    angle("0.0"),
    "AngleInDegrees: Angles are read in degrees, as in detectron2, instead of radians.",
    angle("math.radians(angle)"),
    "SmallAngle: The sine and cosine of angle t are taken for t and 1, which holds for small angles only.",
    edit(sine_and_cosine, "taylor(turn, 1), taylor(turn, 0)", "turn, 1.0"),
    "SineOfX: The sine term of x has the wrong sign, so regions are sheared.",
    edit(Region.place, "+ v * self.sin", "- v * self.sin"),
    "HeightBeforeWidth: RoIs are read as cx, cy, h, w and angle.",
    edit(region_of, "cx, cy, w, h, angle = roi", "cx, cy, h, w, angle = roi"),
    "SizesNotScaled: spatial_scale is applied to the centre but not to width and height.",
    edit(size_of, "stored * scale", "stored"),
    "AlignedIgnored: aligned is ignored and taken for 1.",
    meant(lambda a: a | {"aligned": 1}),
    "ShiftTurned: The shift by half a pixel is rotated with the region.",
    edit(
        *(region_of, "center_of(cx, spatial_scale, aligned)", "cx * spatial_scale - 0.5 * aligned * (cosine + sine)"),
        *("center_of(cy, spatial_scale, aligned)", "cy * spatial_scale - 0.5 * aligned * (cosine - sine)"),
    ),
    "MirroredUpright: A negative width or height is replaced by its absolute value.",
    edit(size_of, "stored * scale", "abs(stored * scale)"),
    Category.BORDERS,
    "CentreOffTheMapIsEmpty: A region whose centre is outside the map gives 0.",
    edit(
        *(Region.rows, "if self.total == 0"),
        "if not (0 <= self.center_x < self.map_size[1] and 0 <= self.center_y < self.map_size[0]) or self.total == 0",
    ),
    Category.COUNTS,
    "Ratio0OnePastWhole: The adaptive number of samples is one too large for bins of a whole number of pixels.",
    {adaptive_samples: lambda size, bins: math.floor(size / bins) + 1 if size > 0 else 0},
    "Ratio0OfTheBoxAround: The adaptive number of samples follows from the bounding box of the rotated region.",
    edit(
        *(region_of, "samples_per_bin(size,"),
        "samples_per_bin(size * abs(cosine) + size_of(h if stored is w else w, spatial_scale, aligned)[0] * abs(sine) "
        "if size > 0 else size,",
    ),
    Category.REDUCTIONS,
    "Maximum: An output is the maximum of its samples and 0 instead of the average.",
    edit(
        *(average, "total += interpolated(channel, sample.corners)"),
        *("total = max(total, interpolated(channel, sample.corners))", "total / divisor_of(region)", "total"),
    ),
    Category.TYPES,
    "SineInTheTensorsType: Sine and cosine are rounded to the type of the tensors.",
    in_type(sine_and_cosine),
    Category.INDEXING,
    "AngleOfTheFirst: Every RoI uses the angle of the first RoI.",
    on(ROIS, lambda r: np.concatenate([r[:, :4], r[:1, 4:].repeat(len(r), 0)], axis=1)),
    Category.GRADIENTS,
    "DxOfTheOtherDirection: The gradient rotates regions in the wrong direction.",
    angle("-angle if is_gradient() else angle"),
    "DxOfNotAligned: The gradient ignores aligned.",
    edit(center_of, "if aligned", "if aligned and not is_gradient()"),
)
for k, name in enumerate(("cx", "cy", "w", "h", "angle")):
    table.add(
        Category.GRADIENTS,
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
    "DAngleInDegrees: The gradient by the angle is per degree instead of per radian.",
    droi("droi[4] += ", "droi[4] += math.pi / 180 * "),
    "DAngleIgnoresClockwise: The sign of the gradient by the angle ignores clockwise.",
    droi(" * region.angle_sign", ""),
    Category.DEFAULTS,
    "NotAlignedByDefault: aligned defaults to 0.",
    by_default(aligned=0),
    "AlignedUnchecked: Values of aligned other than 0 and 1 are accepted and taken for 1.",
    given(lambda a: a | ({"aligned": int(a["aligned"] != 0)} if "aligned" in a else {})),
    "AnglesUnchecked: An infinite or NaN angle is taken for 0 instead of refused.",
    on(ROIS, lambda r: np.where((np.arange(r.shape[-1]) == 4) & ~np.isfinite(r), np.zeros((), r.dtype), r)),
    "FourNumbersTaken: RoIs with four numbers are accepted and have the angle 0.",
    on(ROIS, lambda r: np.pad(r, ((0, 0), (0, 1))) if r.shape[1:] == (4,) else r),
)
MUTANTS = table.of("roi_align_rotated")
__getattr__ = MUTANTS.find
