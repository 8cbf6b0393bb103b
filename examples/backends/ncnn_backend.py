# SPDX-License-Identifier: MIT
"""ncnn's layer ROIAlign, which takes one image and one RoI a call: `examples.backends.ncnn_backend:answer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ncnn
import numpy as np

from conformance.case import Array

ALIGNED = {"half_pixel": 1, "output_half_pixel": 0}


def answer(op_type: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any], outputs: Sequence[str]) -> Array:
    """Y of RoiAlign's averages, with a call of the layer for each RoI."""
    mode, aligned = attributes.get("mode"), ALIGNED.get(str(attributes.get("coordinate_transformation_mode")))
    if op_type != "RoiAlign" or mode != "avg" or aligned is None:
        raise NotImplementedError(f"no {op_type} with {mode}")
    x, rois, indices = inputs.values()
    if x.dtype != np.float32:
        raise NotImplementedError(f"no {x.dtype}")
    if x.ndim != 4 or rois.ndim != 2 or indices.shape != rois.shape[:1] or not set(indices) <= set(range(len(x))):
        raise NotImplementedError("a call has one image and one RoI: it cannot express wrong shapes or batch indices")
    height, width = attributes["output_height"], attributes["output_width"]
    layer = f"0={width} 1={height} 2={attributes['spatial_scale']:.9e} 3={attributes['sampling_ratio']} 4={aligned} 5=1"
    net = ncnn.Net()  # 5=1 places samples as detectron2 and ONNX do
    net.load_param_mem(f"7767517\n3 3\nInput x 0 1 x\nInput roi 0 1 roi\nROIAlign y 2 1 x roi y {layer}\n")
    y = np.zeros((len(rois), x.shape[1], height, width), np.float32)
    for r, image in enumerate(indices):
        call = net.create_extractor()
        call.input("x", ncnn.Mat(x[image]))
        call.input("roi", ncnn.Mat(rois[r]))
        status, bins = call.extract("y")
        if status:
            raise RuntimeError(f"ncnn has status {status}")
        y[r] = np.asarray(bins)
    return y
