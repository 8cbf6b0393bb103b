"""The gradient of RoiAlign with respect to the feature map and to the RoIs. No ONNX operator computes it."""

from __future__ import annotations

from ortops.operators.roi_align import AXES, ROI_ALIGN_22
from ortops.spec import Operator, Tensor

ROI_ALIGN_GRAD = Operator(
    name="RoiAlignGrad",
    family="roi_align",
    function="roi_align_grad",
    doc=(
        "Gradient of RoiAlign. dX is the transpose of the forward map, accumulated over RoIs; drois is the derivative "
        "with respect to the stored coordinates, spatial_scale included. X is needed for drois and the max modes only."
    ),
    # The output sizes are dY's.
    attributes=tuple(a for a in ROI_ALIGN_22.attributes if not a.name.startswith("output_")),
    inputs=(
        Tensor("dY", "T1", AXES["Y"], doc="Gradient with respect to Y."),
        Tensor("rois", "T1", AXES["rois"], doc="RoIs of the forward operator, [[x1, y1, x2, y2], ...]."),
        Tensor("batch_indices", "T2", AXES["batch_indices"], doc="Index of the image of each RoI."),
        Tensor("x_shape", "T2", (4,), values=("N", "C", "H", "W"), doc="Shape of X."),
        Tensor(
            "X",
            "T1",
            AXES["X"],
            optional=True,
            needed_for=("drois",),
            needed_unless=("mode", "avg"),
            doc="Feature map; needed for drois and for the max modes.",
        ),
    ),
    outputs=(
        Tensor("dX", "T1", AXES["X"], optional=True, doc="Gradient with respect to X."),
        Tensor("drois", "T1", AXES["rois"], optional=True, doc="Gradient with respect to rois."),
    ),
    types=ROI_ALIGN_22.types,
)
