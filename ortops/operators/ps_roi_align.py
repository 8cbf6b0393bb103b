# SPDX-License-Identifier: MIT
"""PSRoIAlign, the position-sensitive RoIAlign of R-FCN and Light-Head R-CNN, and its gradient.

It computes RoiAlign-22's average, but each bin reads its own channels of the map.
"""

from __future__ import annotations

from dataclasses import replace

from ortops.operators.roi_align import ROI_ALIGN_22, ROI_ALIGN_GRAD
from ortops.spec import Quotient, Tensor

_OUTPUT = ("num_rois", "channels", "output_height", "output_width")
_EQUATIONS = (Quotient("channels", "C", ("output_height", "output_width")),)

_FORMULA = """\
Y[r, c, i, j] = mean of interpolate(M, y, x) over the samples (y, x) of bin (i, j) of RoI r, where
    M = X[batch_indices[r], (c*output_height + i)*output_width + j]

Bin (i, j) of rois[r] has the same samples as in RoiAlign_22, with the same sampling_ratio, spatial_scale and
coordinate_transformation_mode; interpolate is the same, too. A sample more than a pixel off the map is 0 and counts in
the mean; a bin without samples is 0."""

_GRADIENT_FORMULA = """\
With L = sum(dY * Y), where Y = PSRoIAlign(X, rois, batch_indices) with the same attributes:
    dX[n, k, h, w] is the derivative of L by X[n, k, h, w]
    drois[r, k] is the derivative of L by the stored coordinate rois[r, k], including spatial_scale

They equal RoiAlignGrad's results for mode avg and a dY with C channels, which is 0 except for
    dY[r, (c*output_height + i)*output_width + j, i, j] = the dY[r, c, i, j] of this operator"""

URL = "https://docs.pytorch.org/vision/stable/generated/torchvision.ops.ps_roi_align.html"

_ATTRIBUTES = tuple(attribute for attribute in ROI_ALIGN_22.attributes if attribute.name != "mode")
_DY, *_OF_ROIS, _X = ROI_ALIGN_GRAD.inputs

PS_ROI_ALIGN = replace(
    ROI_ALIGN_22,
    name="PSRoIAlign",
    family="ps_roi_align",
    function="ps_roi_align",
    doc=(
        "Position-sensitive RoIAlign: each bin is the mean of bilinear samples as in RoiAlign, but each bin reads its own "
        "channels of X."
    ),
    attributes=_ATTRIBUTES,
    outputs=(Tensor("Y", "T1", _OUTPUT, doc="Pooled RoIs: Y[r] is the RoI rois[r] of the image X[batch_indices[r]]."),),
    equations=_EQUATIONS,
    standard=None,
    gradient="PSRoIAlignGrad",
    formula=_FORMULA,
    source=f"torchvision 0.28, torchvision.ops.ps_roi_align, with the attributes of ONNX RoiAlign, version 22: {URL}",
)

PS_ROI_ALIGN_GRAD = replace(
    ROI_ALIGN_GRAD,
    name="PSRoIAlignGrad",
    family="ps_roi_align",
    function="ps_roi_align_grad",
    doc=(
        "Gradient of PSRoIAlign with respect to X and to the stored coordinates in rois. dX is the transpose of the "
        "forward map applied to dY. X is needed only for drois. dY gives the output sizes."
    ),
    attributes=tuple(attribute for attribute in _ATTRIBUTES if attribute in ROI_ALIGN_GRAD.attributes),
    inputs=(
        replace(_DY, shape=_OUTPUT),
        *_OF_ROIS,
        replace(_X, required_unless=None, doc="Feature map of the forward operator. It must be given for drois."),
    ),
    equations=_EQUATIONS,
    formula=_GRADIENT_FORMULA,
    source=f"The derivative of PSRoIAlign; torchvision has only the derivative with respect to X: {URL}",
)
