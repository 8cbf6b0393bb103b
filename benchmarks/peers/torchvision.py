# SPDX-License-Identifier: MIT
"""torchvision's roi_align, and its gradient."""

from __future__ import annotations

from functools import partial

import torch
from torchvision.ops import roi_align

from benchmarks.measure import Peer
from benchmarks.peers import torch as of_torch

if not hasattr(torch.ops.torchvision, "_cuda_version"):  # only the library itself defines this operator
    raise ImportError("needs torchvision with its compiled operators")

prepare: Peer = partial(of_torch.roi_align, roi_align)
