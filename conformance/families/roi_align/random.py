# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random cases of RoiAlign and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.families.rois import ONNX_NAMES
from conformance.families.upright.random import perturbed, random_indices, random_rois, random_sizes, with_tensors, work
from ortops.spec import Operator

if TYPE_CHECKING:
    from conformance.families.random_draw import DrawnCase, RandomDraw

__all__ = ["perturbed", "random_case", "work"]


def random_case(draw: RandomDraw, operator: Operator) -> DrawnCase:
    """A random case of RoiAlign or its gradient."""
    scale, sizes = draw.scale(), random_sizes(draw)
    given = {
        "output_height": sizes.bins_y,
        "output_width": sizes.bins_x,
        "sampling_ratio": sizes.ratio,
        "spatial_scale": scale,
    }
    attributes, x = draw.attributes(operator, given), draw.values(sizes[:4])
    rois, indices = random_rois(draw, sizes, scale, scale), random_indices(draw, sizes.images, sizes.rois)
    return with_tensors(draw, operator, attributes, ONNX_NAMES, sizes, x, rois, indices)
