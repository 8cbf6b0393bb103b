# SPDX-License-Identifier: MIT OR Apache-2.0
"""torchvision's roi_align on the CPU, and its gradient by the map through autograd.

RoiAlign's inputs and attributes become:

    X, rois, batch_indices           input, and boxes [R, 5] whose first column is the image
    coordinate_transformation_mode   aligned: True for half_pixel
    sampling_ratio 0                 0: adaptive, like every number below 1
    dX of RoiAlignGrad               autograd's gradient for a map of zeros, because an average's does not depend on the map

Invalid data are passed on if boxes can express them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torchvision.ops import roi_align

from conformance import expected_failures
from conformance.backends.base import MissingBackendError
from conformance.backends.external import FunctionBackend
from conformance.case import DTYPES, Array
from ortops.spec import AttributeValue

ALIGNED = {"half_pixel": True, "output_half_pixel": False}

Inputs = Mapping[str, Array | None]
Attributes = Mapping[str, AttributeValue]


class Torchvision(FunctionBackend):
    """Calls `torchvision.ops.roi_align` in the element types that its kernels support, which a trial shows."""

    is_unsafe = True
    """It reads out of bounds for invalid batch indices and for NaN coordinates."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        _, self.expected_failures = expected_failures.load("torchvision")
        floats = {name: dtype for name, dtype in DTYPES.items() if dtype.kind not in "iu"}
        self._taken = {dtype: name for name, dtype in floats.items() if _takes(dtype)}
        if not self._taken:
            raise MissingBackendError("backend torchvision: its kernels support no element type, or are missing")

    def _answer(self, op_type: str, inputs: Inputs, attributes: Attributes, outputs: Sequence[str]) -> Array:
        if op_type not in ("RoiAlign", "RoiAlignGrad"):
            raise NotImplementedError(f"torchvision has no {op_type}")
        if "drois" in outputs:
            raise NotImplementedError("torchvision has no gradient with respect to the boxes: autograd's is None")
        arguments = _arguments(attributes)
        boxes = _boxes(inputs["rois"], inputs["batch_indices"])
        if boxes.dtype not in self._taken:
            raise NotImplementedError(f"torchvision has only {', '.join(self._taken.values())}")
        if op_type == "RoiAlign":
            sizes = attributes["output_height"], attributes["output_width"]
            return to_numpy(roi_align(to_torch(inputs["X"]), to_torch(boxes), sizes, **arguments))
        return _gradient(inputs, boxes, arguments)


def _arguments(attributes: Attributes) -> dict[str, Any]:
    """The keyword arguments of `roi_align` for the attributes.

    Raises:
        NotImplementedError: torchvision cannot express them.
    """
    if attributes["mode"] != "avg":
        raise NotImplementedError("torchvision has only averages")
    coordinates = attributes["coordinate_transformation_mode"]
    if coordinates not in ALIGNED:
        raise NotImplementedError(f"aligned is True or False: it cannot express {coordinates!r}")
    ratio = attributes["sampling_ratio"]
    if int(ratio) < 0:
        raise NotImplementedError(f"sampling_ratio {ratio} is valid in torchvision: adaptive")
    return {
        "spatial_scale": attributes["spatial_scale"],
        "sampling_ratio": ratio,
        "aligned": ALIGNED[str(coordinates)],
    }


def _boxes(rois: Array | None, batch_indices: Array | None) -> Array:
    """[R, 5]: batch indices, then the RoIs, in the type of the RoIs.

    Raises:
        NotImplementedError: such an array cannot hold the indices.
    """
    if rois is None or batch_indices is None or rois.ndim != 2 or batch_indices.shape != rois.shape[:1]:
        raise NotImplementedError("boxes have one batch index in the row of each RoI: they cannot express other shapes")
    with np.errstate(over="ignore"):
        column = batch_indices.astype(rois.dtype)
    if np.any(column.astype(np.float64) != batch_indices):
        raise NotImplementedError(f"boxes of {rois.dtype} cannot hold every batch index")
    return np.concatenate([column[:, None], rois], axis=1)


def _gradient(inputs: Inputs, boxes: Array, arguments: dict[str, Any]) -> Array:
    dy, x_shape = inputs["dY"], inputs["x_shape"]
    if dy is None or dy.ndim != 4 or x_shape is None:
        raise NotImplementedError("the output sizes are those of dY: it must have four axes")
    x = to_torch(np.zeros(tuple(x_shape), dy.dtype)).requires_grad_()
    y = roi_align(x, to_torch(boxes), dy.shape[2:], **arguments)
    return to_numpy(torch.autograd.grad(y, x, to_torch(dy))[0])


def _takes(dtype: np.dtype[Any]) -> bool:
    """Whether the forward and the backward kernel support an element type; each has its own list."""
    inputs = {"dY": np.zeros((1, 1, 1, 1), dtype), "x_shape": np.ones(4, np.int64)}
    try:
        _gradient(inputs, np.zeros((1, 5), dtype), {"sampling_ratio": 1})
    except RuntimeError:  # or NotImplementedError, a subclass, if there is no kernel
        return False
    return True


def to_torch(array: Array | None) -> Any:
    """A tensor that shares the memory of an array of any element type."""
    if array is not None and array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_numpy(tensor: Any) -> Array:
    """An array that shares the memory of a tensor of any element type."""
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(tensor.numpy())
