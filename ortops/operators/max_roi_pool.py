"""MaxRoiPool as ONNX defines it at opsets 1 and 22, and its gradient.

A RoI is batch_id, x1, y1, x2, y2. batch_id is a whole number. The ends are scaled in float64 and rounded to whole pixels,
halves away from 0; rounded ends beyond 2**31 pixels count as 2**31. Both ends are pixels of the RoI, so on an axis it has
L = max(end - start + 1, 1) pixels. Bin p of P has those from start + floor(p*L/P) to start + ceil((p + 1)*L/P) - 1, as
far as they lie on the map. The bounds are exact: where bins are computed in float32, as in Caffe and ONNX Runtime, one may
take a pixel more. An output is the largest pixel of its bin, NaN if one is NaN, and 0 where the bin is empty.

The gradient goes to the first of the largest pixels, row by row; RoIs have none, since a pixel is in a bin or is not.

ONNX's text says neither how ends are rounded nor what an empty bin is. Source: ONNX operator specification, MaxRoiPool,
versions 1 and 22; the ROIPooling layer of Fast R-CNN (Girshick, 2015, section 2.1), which the operator was made for.
"""

from __future__ import annotations

import onnx

from ortops.operators.roi_align import AXES as ROI_ALIGN_AXES
from ortops.operators.roi_align import types_of
from ortops.spec import Attribute, Operator, Tensor

LARGEST = 2**31
"""Pixels. Rounded ends of a RoI beyond it count as it."""

AXES = {**ROI_ALIGN_AXES, "rois": ("num_rois", 5)}


def from_onnx(opset: int) -> Operator:
    """The definition of MaxRoiPool at `opset`."""
    schema = onnx.defs.get_schema("MaxRoiPool", opset)
    words = {name: attribute.description.strip() for name, attribute in schema.attributes.items()}
    return Operator(
        name=f"MaxRoiPool_{opset}",
        family="max_roi_pool",
        function="max_roi_pool",
        doc=(schema.doc or "").strip(),
        attributes=(
            Attribute(
                "pooled_shape",
                "INTS",
                (1, 1),
                words["pooled_shape"],
                minimum=1,
                axes=("output_height", "output_width"),
                required=schema.attributes["pooled_shape"].required,
            ),
            Attribute("spatial_scale", "FLOAT", 1.0, words["spatial_scale"], positive=True),
        ),
        inputs=tuple(
            Tensor(
                t.name,
                t.type_str,
                AXES[t.name],
                without_gradient="a pixel is in a bin or is not" if t.name == "rois" else "",
                doc=t.description.strip(),
            )
            for t in schema.inputs
        ),
        outputs=tuple(Tensor(t.name, t.type_str, AXES[t.name], doc=t.description.strip()) for t in schema.outputs),
        types=types_of(schema),
        standard=("MaxRoiPool", opset),
        gradient="MaxRoiPoolGrad",
    )


MAX_ROI_POOL_1 = from_onnx(1)
MAX_ROI_POOL_22 = from_onnx(22)

MAX_ROI_POOL_GRAD = Operator(
    name="MaxRoiPoolGrad",
    family="max_roi_pool",
    function="max_roi_pool_grad",
    doc="Gradient of MaxRoiPool with respect to X: that of each output goes to the pixel that it is.",
    # The output sizes are dY's.
    attributes=tuple(a for a in MAX_ROI_POOL_22.attributes if a.name == "spatial_scale"),
    inputs=(
        Tensor("dY", "T", AXES["Y"], doc="Gradient with respect to Y."),
        Tensor("X", "T", AXES["X"], doc="Feature map of the forward operator."),
        Tensor("rois", "T", AXES["rois"], doc="RoIs of the forward operator, [[batch_id, x1, y1, x2, y2], ...]."),
    ),
    outputs=(Tensor("dX", "T", AXES["X"], doc="Gradient with respect to X."),),
    types=MAX_ROI_POOL_22.types,
)
