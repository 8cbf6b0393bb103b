# SPDX-License-Identifier: MIT
"""PSRoIAlign and its gradient, sample by sample: RoiAlign's means, where each bin reads its own channel."""

from __future__ import annotations

from typing import Any

from ortops.reference.roi_align import Array, Gradients, roi_align, roi_align_grad


def ps_roi_align(*inputs: Any, **attributes: Any) -> Array:
    """Pool feature maps over RoIs: the mean of each bin's samples, where each bin reads its own channels.

    Bin (i, j) of channel c reads the map's channel (c*PH + i)*PW + j, with the same samples as `roi_align`. Arguments and
    errors are as in `roi_align`, but there is no mode.

    Returns:
        [R, C / (PH * PW), PH, PW]; 0 where a RoI has no samples.

    Source:
        torchvision's documentation of ps_roi_align for the channels; ONNX RoiAlign-22 for the samples.
    """
    return roi_align(*inputs, **attributes, mode="avg", position_sensitive=True)


def ps_roi_align_grad(*inputs: Any, **attributes: Any) -> Gradients:
    """The gradients of `sum(dy * ps_roi_align(x, rois, ...))` by `x` and by the stored coordinates in `rois`.

    A sample has the same derivatives as in `roi_align_grad`, and arguments, results and errors are as there.

    Source:
        The derivative of `ps_roi_align`.
    """
    return roi_align_grad(*inputs, **attributes, mode="avg", position_sensitive=True)
