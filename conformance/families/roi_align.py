"""RoiAlign and its gradient: what is not the same for DirectML's operators."""

from __future__ import annotations

from conformance.explain.rois import explanation
from conformance.families import Drawn
from conformance.fuzz.draw import Draw, chosen
from conformance.rois.growth import growth
from conformance.rois.question import ONNX_NAMES, samples
from conformance.rois.random import random_indices, random_rois, random_sizes, with_tensors, work
from conformance.rois.settled import is_settled
from ortops.spec import Operator

__all__ = ["explanation", "growth", "is_settled", "random_case", "samples", "work"]


def random_case(draw: Draw, operator: Operator) -> Drawn:
    """As `conformance.families.Family` has it."""
    scale, sizes = draw.scale(), random_sizes(draw)
    given = {
        "output_height": sizes.bins_y,
        "output_width": sizes.bins_x,
        "sampling_ratio": sizes.ratio,
        "spatial_scale": scale,
    }
    attributes, x = chosen(draw, operator, given), draw.values(sizes[:4])
    rois, indices = random_rois(draw, sizes, scale, scale), random_indices(draw, sizes.images, sizes.rois)
    return with_tensors(draw, operator, attributes, ONNX_NAMES, sizes, x, rois, indices)
