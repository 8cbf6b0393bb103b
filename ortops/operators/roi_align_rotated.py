# SPDX-License-Identifier: MIT
"""RoIAlignRotated and its gradient: mmcv's MMCVRoIAlignRotated with the RoIs' image indices as a separate input.

At angle 0 it equals RoiAlign, with half_pixel if aligned, else with output_half_pixel, except that a size below 1 grows
about the RoI's centre. Empty and mirrored RoIs follow the same rules as in this project's RoiAlign.

Source: mmcv's documentation of RoIAlignRotated and of the ONNX operator MMCVRoIAlignRotated; detectron2's ROIAlignRotated
(aligned, counter-clockwise, in degrees).
"""

from __future__ import annotations

from dataclasses import replace

from ortops.operators.roi_align import AXES, ROI_ALIGN_22, ROI_ALIGN_GRAD
from ortops.spec import Attribute, Operator, Tensor, flag

MAX_SAMPLING_RATIO = 64
"""The largest sampling_ratio: a rotated bin's samples are computed one by one, so time grows with the ratio's square."""

_ROIS = ("num_rois", 5)
_SHARED = (
    flag(
        "aligned",
        1,
        "1 subtracts half a pixel of X from each RoI's scaled centre. 0 does not, and raises sizes below 1 pixel to 1.",
    ),
    flag(
        "clockwise",
        0,
        "1 if positive angles turn a RoI clockwise as seen on the image, whose y points down; 0 if counter-clockwise.",
    ),
    Attribute(
        "sampling_ratio",
        "INT",
        0,
        f"Number of a bin's samples along each axis, >= 0 and <= {MAX_SAMPLING_RATIO}. 0 takes the bin's size in pixels "
        "of X, rounded up.",
        minimum=0,
        maximum=MAX_SAMPLING_RATIO,
    ),
    Attribute(
        "spatial_scale",
        "FLOAT",
        1.0,
        "Pixels of X for each unit of the RoIs' centres and sizes; finite and > 0.",
        positive=True,
    ),
)
_SIZES = (
    Attribute("output_height", "INT", 1, "Number of bins along the height of a RoI, >= 1.", minimum=1),
    Attribute("output_width", "INT", 1, "Number of bins along the width of a RoI, >= 1.", minimum=1),
)
_DY, _, _, _X_SHAPE, _X = ROI_ALIGN_GRAD.inputs
_DX, _DROIS = ROI_ALIGN_GRAD.outputs
_INDICES = Tensor("batch_indices", "T2", AXES["batch_indices"], doc="Each RoI's image index in X, >= 0 and < N.")

_FORMULA = """\
Y[r, c, i, j] = mean of interpolate(X[batch_indices[r], c], y, x) over the samples of bin (i, j) of RoI r

The samples, for cx, cy, w, h, angle = rois[r] and S = spatial_scale:
    aligned = 1:  centre (cx*S - 0.5, cy*S - 0.5), width B = w*S, height A = h*S
    aligned = 0:  centre (cx*S, cy*S), width B = max(w*S, 1), height A = max(h*S, 1)
    along the width, with P = output_width (along the height in the same way v = A*b, with P = output_height):
        K = sampling_ratio, or max(ceil(B / P), 0) if sampling_ratio is 0
        u = B*a with a = (k + 0.5)/(P*K) - 0.5  for k = j*K, ..., j*K + K - 1
    with t = angle, or -angle if clockwise is 1:
        x = centre_x + u*cos(t) + v*sin(t)
        y = centre_y + v*cos(t) - u*sin(t)

interpolate(M, y, x) is bilinear:
    0 where x < -1, x > W, y < -1 or y > H; such a sample counts in the mean
    otherwise clamp x to [0, W - 1] and y to [0, H - 1], and interpolate between the four pixels around (y, x)

A bin without samples is 0."""

_GRADIENT_FORMULA = """\
With L = sum(dY * Y), where Y = RoIAlignRotated(X, rois, batch_indices) with the same attributes:
    dX[n, c, h, w] is the derivative of L by X[n, c, h, w]
    drois[r, k] is the derivative of L by the stored number rois[r, k], including spatial_scale

Each sample (y, x) of bin (i, j) has the share g = dY[r, c, i, j] / (number of samples of the bin).
dX[batch_indices[r], c, h, w] is the sum of g * (weight of pixel (h, w)) over the samples of all bins.
drois[r] is the sum over channels and samples of g * (slope along x * movement along x + the same along y), where,
with S, t, u = B*a and v = A*b of the sample as in RoIAlignRotated's formula:
    movement (x, y) by cx:     (S, 0)
    movement (x, y) by cy:     (0, S)
    movement (x, y) by w:      (cos(t), -sin(t)) * S*a, 0 if the width has been raised to 1
    movement (x, y) by h:      (sin(t), cos(t)) * S*b, 0 if the height has been raised to 1
    movement (x, y) by angle:  (v*cos(t) - u*sin(t), -u*cos(t) - v*sin(t)), negated if clockwise is 1
    slope along x:             the slope in the cell [floor(x), floor(x) + 1]; 0 if x < 0 or x >= W - 1
The adaptive number of samples counts as constant."""

URL = "https://github.com/open-mmlab/mmcv/blob/main/mmcv/ops/roi_align_rotated.py"

ROI_ALIGN_ROTATED = Operator(
    name="RoIAlignRotated",
    family="roi_align_rotated",
    function="roi_align_rotated",
    doc="Pools a feature map over rotated RoIs: each bin is the mean of bilinear samples on a grid that turns with its RoI.",
    attributes=(*_SIZES, *_SHARED),
    inputs=(
        Tensor("X", "T1", AXES["X"], doc="Feature map: N images with C channels of H rows and W columns."),
        Tensor(
            "rois",
            "T1",
            _ROIS,
            doc=(
                "RoIs, [[cx, cy, w, h, angle], ...]: centre and size in units of 1/spatial_scale pixels of X, the "
                "angle in radians; finite."
            ),
        ),
        _INDICES,
    ),
    outputs=(
        Tensor("Y", "T1", AXES["Y"], doc="Pooled RoIs: Y[r] is the RoI rois[r] of the image X[batch_indices[r]]."),
    ),
    types=ROI_ALIGN_22.types,
    gradient="RoIAlignRotatedGrad",
    formula=_FORMULA,
    source=f"mmcv, RoIAlignRotated and its ONNX operator MMCVRoIAlignRotated: {URL}",
)

ROI_ALIGN_ROTATED_GRAD = Operator(
    name="RoIAlignRotatedGrad",
    family="roi_align_rotated",
    function="roi_align_rotated_grad",
    doc=(
        "Gradient of RoIAlignRotated with respect to X and to the stored cx, cy, w, h and angle of each RoI. X is "
        "needed only for drois. dY gives the output sizes."
    ),
    attributes=_SHARED,
    inputs=(
        _DY,
        Tensor("rois", "T1", _ROIS, doc="RoIs of the forward operator, [[cx, cy, w, h, angle], ...]."),
        _INDICES,
        _X_SHAPE,
        replace(_X, required_unless=None, doc="Feature map of the forward operator. It must be given for drois."),
    ),
    outputs=(
        _DX,
        replace(
            _DROIS,
            shape=_ROIS,
            doc="Gradient with respect to the stored numbers in rois; spatial_scale is a factor of the first four.",
        ),
    ),
    types=ROI_ALIGN_22.types,
    formula=_GRADIENT_FORMULA,
    source=f"The derivative of mmcv's RoIAlignRotated; mmcv has no derivative with respect to the RoIs: {URL}",
)
