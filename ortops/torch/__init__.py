# SPDX-License-Identifier: MIT
"""RoIAlign, its rotated and position-sensitive variants, RoIPool and deformable attention for PyTorch on the CPU.

Needs the extra ``torch``.

The functions have the signatures of `torchvision.ops` and mmcv, and use the same kernels as the ONNX Runtime operators:

    y = ortops.torch.roi_align(features, boxes, output_size=7, spatial_scale=1 / 16, sampling_ratio=2, aligned=True)

torchvision has no gradient with respect to the boxes, no second derivatives, no forward mode and no bfloat16. It uses one
thread, and reads out of bounds where these functions raise an error. Results have the same bits for any number of threads
(`torch.get_num_threads`) and in every run. Contiguous tensors share their memory with the kernels; others are copied.
"""

try:
    import torch
except ImportError as error:
    raise ImportError(f"ortops.torch needs PyTorch ({error}): pip install torch") from error

from ortops.torch.functions import (
    PSRoIAlign,
    RoIAlign,
    RoIAlignRotated,
    RoIPool,
    ms_deform_attn,
    ps_roi_align,
    roi_align,
    roi_align_rotated,
    roi_pool,
)
from ortops.torch.patch import patch_torchvision

__all__ = [
    "PSRoIAlign",
    "RoIAlign",
    "RoIAlignRotated",
    "RoIPool",
    "ms_deform_attn",
    "patch_torchvision",
    "ps_roi_align",
    "roi_align",
    "roi_align_rotated",
    "roi_pool",
]

del torch
