"""DirectML's RoiAlign and its gradient: what is not the same for ONNX's."""

from __future__ import annotations

from conformance.explain.rois import explanation
from conformance.families import Drawn
from conformance.fuzz.draw import Draw, chosen
from conformance.rois.growth import growth
from conformance.rois.question import DIRECTML_NAMES, samples
from conformance.rois.random import random_indices, random_rois, random_sizes, with_tensors, work
from conformance.rois.settled import is_settled
from ortops.operators.dml_roi_align import UINT32_MAX
from ortops.spec import Operator

__all__ = ["explanation", "growth", "is_settled", "random_case", "samples", "work"]


def random_case(draw: Draw, operator: Operator) -> Drawn:
    """As `conformance.families.Family` has it."""
    scale_y, scale_x, sizes = draw.scale(), draw.scale(), random_sizes(draw)
    fewest = max(sizes.ratio, 1)
    given = {
        "output_height": sizes.bins_y,
        "output_width": sizes.bins_x,
        "spatial_scale_x": scale_x,
        "spatial_scale_y": scale_y,
        "input_pixel_offset": draw.offset(),
        "output_pixel_offset": draw.offset(),
        "out_of_bounds_input_value": draw.one((0.0, 0.0, 2.5, -3.0)),
        "minimum_samples_per_output": fewest,
        "maximum_samples_per_output": draw.one((UINT32_MAX, fewest, fewest + 1)),
        "align_regions_to_corners": draw.whole(0, 1),
    }
    attributes = chosen(draw, operator, given)
    rois, indices = random_rois(draw, sizes, scale_y, scale_x), random_indices(draw, sizes.images, sizes.rois)
    x = draw.values(sizes[:4])
    rois = rois.reshape((1,) * draw.whole(0, 2) + rois.shape)
    indices = indices.reshape((1,) * draw.whole(0, 3) + indices.shape)
    return with_tensors(draw, operator, attributes, DIRECTML_NAMES, sizes, x, rois, indices)
