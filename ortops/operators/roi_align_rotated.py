"""RoIAlign over rotated regions, and its gradient: mmcv's MMCVRoIAlignRotated with the image of each RoI as an input.

A RoI is cx, cy, w, h and an angle in radians. With s = spatial_scale, o = 0.5 where aligned and else 0, and the angle t,
negated where clockwise, its centre is (cx*s - o, cy*s - o) and its size W = w*s by H = h*s, at least 1 where not aligned.
Sample k of the K*P on its upright x axis lies at u = W*((k + 0.5)/(K*P) - 0.5), on y likewise at v, and on the map at

    x = cx*s - o + u*cos(t) + v*sin(t),    y = cy*s - o + v*cos(t) - u*sin(t),

so that a positive t turns the region counter-clockwise on a map whose y points down. K is sampling_ratio, or
max(ceil(W/P), 0) where that is 0. A bin is the mean of its samples, 0 where it has none; the border is that of RoiAlign.
At angle 0 that is RoiAlign, half_pixel where aligned and else output_half_pixel; but sizes below 1 grow about the centre.

Source: mmcv's documentation of RoIAlignRotated and of the ONNX operator MMCVRoIAlignRotated; detectron2's ROIAlignRotated
(aligned, counter-clockwise, in degrees). The rules for empty and mirrored regions are RoiAlign's in this project.
"""

from __future__ import annotations

from dataclasses import replace

from ortops.operators.roi_align import AXES, ROI_ALIGN_22
from ortops.spec import Attribute, Operator, Tensor

MOST_SAMPLES = 1024
"""The largest sampling_ratio: the samples of a rotated bin are met one by one, and this makes a million of them."""

_ROIS = ("num_rois", 5)
_SHARED = (
    Attribute(
        "aligned",
        "INT",
        1,
        "1 to subtract half a pixel from the centre; 0 for a least size of 1.",
        minimum=0,
        maximum=1,
    ),
    Attribute("clockwise", "INT", 0, "1 where angles are clockwise, as seen on the image.", minimum=0, maximum=1),
    *(
        replace(attribute, maximum=MOST_SAMPLES) if attribute.name == "sampling_ratio" else attribute
        for attribute in ROI_ALIGN_22.attributes
        if attribute.name in ("sampling_ratio", "spatial_scale")
    ),
)
_SIZES = tuple(attribute for attribute in ROI_ALIGN_22.attributes if attribute.name.startswith("output_"))
_INDICES = Tensor("batch_indices", "T2", AXES["batch_indices"], doc="Index of the image of each RoI.")

ROI_ALIGN_ROTATED = Operator(
    name="RoIAlignRotated",
    family="roi_align_rotated",
    function="roi_align_rotated",
    doc="The means of bilinear samples on a rotated grid in each RoI, as mmcv and detectron2 have it.",
    attributes=(*_SIZES, *_SHARED),
    inputs=(
        Tensor("X", "T1", AXES["X"], doc="Feature map."),
        Tensor("rois", "T1", _ROIS, doc="RoIs, [[cx, cy, w, h, angle], ...], the angle in radians."),
        _INDICES,
    ),
    outputs=(Tensor("Y", "T1", AXES["Y"], doc="Pooled RoIs."),),
    types=ROI_ALIGN_22.types,
    gradient="RoIAlignRotatedGrad",
)

ROI_ALIGN_ROTATED_GRAD = Operator(
    name="RoIAlignRotatedGrad",
    family="roi_align_rotated",
    function="roi_align_rotated_grad",
    doc="Gradient of RoIAlignRotated with respect to X and to the stored cx, cy, w, h and angle of each RoI.",
    attributes=_SHARED,
    inputs=(
        Tensor("dY", "T1", AXES["Y"], doc="Gradient with respect to Y."),
        Tensor("rois", "T1", _ROIS, doc="RoIs of the forward operator."),
        _INDICES,
        Tensor("x_shape", "T2", (4,), values=AXES["X"], doc="Shape of X."),  # type: ignore[arg-type]
        Tensor("X", "T1", AXES["X"], optional=True, needed_for=("drois",), doc="Feature map; needed for drois."),
    ),
    outputs=(
        Tensor("dX", "T1", AXES["X"], optional=True, doc="Gradient with respect to X."),
        Tensor("drois", "T1", _ROIS, optional=True, doc="Gradient with respect to rois."),
    ),
    types=ROI_ALIGN_22.types,
)
