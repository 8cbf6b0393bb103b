# SPDX-License-Identifier: MIT
"""Paddle's roi_align, and its gradient with respect to the map by autograd: `examples.backends.paddle_backend:answer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle.vision.ops import roi_align

from conformance.case import Array

ALIGNED = {"half_pixel": True, "output_half_pixel": False}


def answer(op_type: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any], outputs: Sequence[str]) -> Array:
    """Y; or dX for a map of zeros, because the gradient of an average does not depend on the map."""
    mode, aligned = attributes.get("mode"), ALIGNED.get(str(attributes.get("coordinate_transformation_mode")))
    if "layout" in attributes or mode != "avg" or aligned is None or list(outputs) not in (["Y"], ["dX"]):
        raise NotImplementedError(f"no {op_type} with {mode} for {', '.join(outputs)}")
    is_gradient, rois, indices = op_type == "RoiAlignGrad", inputs["rois"], inputs["batch_indices"]
    x = np.zeros(inputs["x_shape"], inputs["dY"].dtype) if is_gradient else inputs["X"]
    if x.dtype not in (np.float32, np.float64):
        raise NotImplementedError(f"no {x.dtype}")
    if rois.ndim == 0 or indices.shape != rois.shape[:1] or not set(indices) <= set(range(len(x))):
        raise NotImplementedError("boxes_num counts the boxes of each image: it cannot express other batch indices")
    sizes = inputs["dY"].shape[2:] if is_gradient else (attributes["output_height"], attributes["output_width"])
    order = np.argsort(indices, kind="stable")  # Paddle wants boxes in the order of their images
    image, boxes = paddle.to_tensor(x, stop_gradient=False), paddle.to_tensor(rois[order])
    counts = paddle.to_tensor(np.bincount(indices, minlength=len(x)).astype(np.int32))
    scale, ratio = attributes["spatial_scale"], attributes["sampling_ratio"]
    y = roi_align(image, boxes, counts, tuple(sizes), scale, ratio, aligned)
    if not is_gradient:
        return np.asarray(y.numpy()[np.argsort(order)])
    return np.asarray(paddle.grad(y, image, paddle.to_tensor(inputs["dY"][order]))[0].numpy())
