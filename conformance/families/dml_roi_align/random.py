# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random cases of DmlRoiAlign and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.families.rois import DIRECTML_NAMES
from conformance.families.upright.random import perturbed, random_indices, random_rois, random_sizes, with_tensors, work
from ortops.operators.dml_roi_align import UINT32_MAX
from ortops.spec import Operator

if TYPE_CHECKING:
    from conformance.families.random_draw import DrawnCase, RandomDraw

__all__ = ["perturbed", "random_case", "work"]


def random_case(draw: RandomDraw, operator: Operator) -> DrawnCase:
    """A random case of DmlRoiAlign or its gradient."""
    scale_y, scale_x, sizes = draw.scale(), draw.scale(), random_sizes(draw)
    fewest = max(sizes.ratio, 1)
    given = {
        "output_height": sizes.bins_y,
        "output_width": sizes.bins_x,
        "spatial_scale_x": scale_x,
        "spatial_scale_y": scale_y,
        "input_pixel_offset": draw.offset(),
        "output_pixel_offset": draw.offset(),
        "out_of_bounds_input_value": draw.choice((0.0, 0.0, 2.5, -3.0)),
        "minimum_samples_per_output": fewest,
        "maximum_samples_per_output": draw.choice((UINT32_MAX, fewest, fewest + 1)),
        "align_regions_to_corners": draw.integer(0, 1),
    }
    attributes = draw.attributes(operator, given)
    rois, indices = random_rois(draw, sizes, scale_y, scale_x), random_indices(draw, sizes.images, sizes.rois)
    x = draw.values(sizes[:4])
    rois = rois.reshape((1,) * draw.integer(0, 2) + rois.shape)
    indices = indices.reshape((1,) * draw.integer(0, 3) + indices.shape)
    return with_tensors(draw, operator, attributes, DIRECTML_NAMES, sizes, x, rois, indices)
