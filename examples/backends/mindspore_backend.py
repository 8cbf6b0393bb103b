# SPDX-License-Identifier: MIT
"""MindSpore's ROIAlign on the CPU: `examples.backends.mindspore_backend:answer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mindspore import Tensor, ops

from conformance.case import Array

EXACT_IN_FLOAT = 2**24


def answer(op_type: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any], outputs: Sequence[str]) -> Array:
    """Y of an average without the shift by half a pixel, which is all that MindSpore has."""
    mode, coordinates = attributes.get("mode"), attributes.get("coordinate_transformation_mode")
    if op_type != "RoiAlign" or "layout" in attributes or mode != "avg" or coordinates != "output_half_pixel":
        raise NotImplementedError(f"no {op_type} with {mode} and {coordinates}")
    x, rois, indices = inputs["X"], inputs["rois"], inputs["batch_indices"]
    if x.dtype not in (np.float16, np.float32):
        raise NotImplementedError(f"no {x.dtype}")
    if rois.ndim != 2 or indices.shape != rois.shape[:1] or np.any(abs(indices) > EXACT_IN_FLOAT):
        raise NotImplementedError("an index is a column of the RoIs: it cannot express other shapes or huge numbers")
    height, width = attributes["output_height"], attributes["output_width"]
    roi_align = ops.ROIAlign(height, width, attributes["spatial_scale"], attributes["sampling_ratio"], roi_end_mode=0)
    y = roi_align(Tensor(x), Tensor(np.column_stack((indices.astype(rois.dtype), rois))))
    return np.asarray(y.asnumpy())
