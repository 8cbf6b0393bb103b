# SPDX-License-Identifier: MIT
"""MaxRoiPool as ONNX defines it at opsets 1 and 22, and its gradient.

ONNX's text does not define how a RoI's corners are rounded, nor the output of an empty bin. This project scales corners in
float64 and rounds them to whole pixels, halves away from 0; an empty bin is 0. Bin bounds are exact. If they are computed in
float32, as in Caffe and ONNX Runtime, a bin may take an additional pixel.

Source: ONNX operator specification, MaxRoiPool, versions 1 and 22; the ROIPooling layer of Fast R-CNN (Girshick, 2015,
section 2.1), for which the operator was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import onnx

from ortops.operators.roi_align import AXES as ROI_ALIGN_AXES
from ortops.operators.roi_align import ROI_ALIGN_GRAD, from_schema
from ortops.spec import Operator, Tensor

MAX_COORDINATE = 2**31
"""The limit of a RoI's rounded coordinates in pixels: they are clamped to [-MAX_COORDINATE, MAX_COORDINATE]."""

AXES = {**ROI_ALIGN_AXES, "rois": ("num_rois", 5)}

RULES: Mapping[str, Mapping[str, Any]] = {
    "pooled_shape": {"default": (1, 1), "minimum": 1, "axes": ("output_height", "output_width")},
    "spatial_scale": {"positive": True},
}

NOTES = {
    "pooled_shape": "Both numbers of bins must be >= 1.",
    "spatial_scale": "It is in pixels of X for each unit of rois and must be finite and > 0.",
    "rois": "batch_id must be a whole number >= 0 and < N; coordinates must be finite. Both corners belong to the RoI.",
    "Y": "It is 0 if a bin has no pixel on the map, and NaN if a bin has a NaN.",
}
"""This project's additions to ONNX's text about an attribute or a tensor, for rules that the text does not state."""

URL = "https://onnx.ai/onnx/operators/onnx__MaxRoiPool.html"

_FORMULA = """\
Y[r, c, i, j] = max of X[batch_id, c, h, w] over the rows h and the columns w of bin (i, j);
                0 if the bin has no pixel on the map, NaN if one of its pixels is NaN

The columns of bin j, for batch_id, x1, y1, x2, y2 = rois[r], S = spatial_scale and P = pooled_shape[1]
(the rows of bin i in the same way, with y1, y2 and pooled_shape[0]):
    start = round(x1*S),  end = round(x2*S), halves away from 0
    L = max(end - start + 1, 1)
    w from start + floor(j*L/P) to start + ceil((j + 1)*L/P) - 1, only if 0 <= w < W

start and end are limited to [-2**31, 2**31]."""

_GRADIENT_FORMULA = """\
With L = sum(dY * Y), where Y = MaxRoiPool(X, rois) with the same attributes:
    dX[n, c, h, w] is the derivative of L by X[n, c, h, w]: the sum of dY[r, c, i, j] over the bins (i, j)
    of the RoIs of image n whose maximum is this pixel

Of several equal maxima, or of several NaNs, the first pixel of the bin row by row gets all of dY[r, c, i, j].
A bin without pixels passes nothing."""


def from_onnx(opset: int) -> Operator:
    """The definition of MaxRoiPool at `opset`."""
    arguments = from_schema(onnx.defs.get_schema("MaxRoiPool", opset), RULES, NOTES, AXES)
    x, rois = arguments.pop("inputs")
    return Operator(
        name=f"MaxRoiPool_{opset}",
        family="max_roi_pool",
        function="max_roi_pool",
        inputs=(x, replace(rois, zero_gradient_reason="a pixel is in a bin or is not")),
        **arguments,
        gradient="MaxRoiPoolGrad",
        formula=_FORMULA,
        source=f"ONNX operator MaxRoiPool, version {opset}: {URL}; Fast R-CNN, section 2.1: https://arxiv.org/abs/1504.08083",
    )


MAX_ROI_POOL_1 = from_onnx(1)
MAX_ROI_POOL_22 = from_onnx(22)

MAX_ROI_POOL_GRAD = Operator(
    name="MaxRoiPoolGrad",
    family="max_roi_pool",
    function="max_roi_pool_grad",
    doc=(
        "Gradient of MaxRoiPool with respect to X. An output's gradient goes to the pixel that is its bin's maximum. "
        "dY gives the output sizes."
    ),
    attributes=tuple(a for a in MAX_ROI_POOL_22.attributes if a.name == "spatial_scale"),
    inputs=(
        replace(ROI_ALIGN_GRAD.inputs[0], type="T"),
        Tensor("X", "T", AXES["X"], doc="Feature map of the forward operator."),
        Tensor(
            "rois",
            "T",
            AXES["rois"],
            doc=(
                "RoIs of the forward operator, [[batch_id, x1, y1, x2, y2], ...]. batch_id is a whole number >= 0 and "
                "< N; coordinates are in units of 1/spatial_scale pixels of X and finite."
            ),
        ),
    ),
    outputs=(Tensor("dX", "T", AXES["X"], doc="Gradient with respect to X; 0 for a pixel that is not a maximum."),),
    types=MAX_ROI_POOL_22.types,
    formula=_GRADIENT_FORMULA,
    source=f"The derivative of ONNX MaxRoiPool, version 22, which no ONNX operator computes: {URL}",
)
