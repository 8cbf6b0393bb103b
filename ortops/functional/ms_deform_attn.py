# SPDX-License-Identifier: MIT
"""Multi-scale deformable attention and its gradient on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from numpy.typing import ArrayLike

from ortops.functional.call import Array, computes
from ortops.operators.ms_deform_attn import MS_DEFORM_ATTN, MS_DEFORM_ATTN_GRAD


@computes(MS_DEFORM_ATTN)
def ms_deform_attn(
    value: ArrayLike,
    spatial_shapes: ArrayLike,
    level_start_index: ArrayLike | None,
    sampling_locations: ArrayLike,
    attention_weights: ArrayLike,
) -> Array:
    """Multi-scale deformable attention as in Deformable DETR: weighted sums of samples at each query's points.

    y[n, q, m*D + d] is the sum over the points (l, p) of attention_weights[n, q, m, l, p] times the bilinear sample of level
    l at sampling_locations[n, q, m, l, p]. Pixels off the map are 0, as in `torch.nn.functional.grid_sample` with
    padding_mode "zeros" and align_corners False.

    Args:
        value: the pixels of all levels [N, S, M, D], for M heads of D channels; float16, bfloat16, float32 or float64.
        spatial_shapes: [L, 2], the height and the width of each level in pixels; integers >= 1.
        level_start_index: [L], the first of each level's pixels; each level must lie in 0..S, and all levels together have
            at most S pixels. None if the levels follow each other and fill S.
        sampling_locations: [N, Q, M, L, P, 2] as x, y in fractions of the level, 0 its left or upper edge and 1 its right or
            lower one; same type as value. A point may be off the map; one that is NaN or infinite is.
        attention_weights: [N, Q, M, L, P]; same type as value.

    Returns:
        [N, Q, M*D] with the type of value, accumulated in float32 (float64 for float64). Bits do not depend on the number of
        threads.

    Raises:
        TypeError: an array has a wrong type.
        ValueError: a shape, a level's size or its first pixel breaks its rule; the message names it.

    Source: Zhu et al. 2020, Deformable DETR (arXiv 2010.04159); its function `ms_deform_attn_core_pytorch`.
    """


@computes(MS_DEFORM_ATTN_GRAD)
def ms_deform_attn_grad(
    dy: ArrayLike,
    value: ArrayLike,
    spatial_shapes: ArrayLike,
    level_start_index: ArrayLike | None,
    sampling_locations: ArrayLike,
    attention_weights: ArrayLike,
    *,
    outputs: Sequence[Literal["dvalue", "dlocations", "dweights"]] = ("dvalue", "dlocations", "dweights"),
) -> tuple[Array | None, Array | None, Array | None]:
    """The gradient of `ms_deform_attn` with respect to value, sampling_locations and attention_weights.

    With L = sum(dy * ms_deform_attn(value, ...)), the results are the derivatives of L. Those with respect to the stored
    locations include the level's width and height. Between pixels they are the interpolation's slopes; at a pixel, the slope
    to the right or downwards; 0 for a point off the map.

    Args:
        dy: gradient with respect to the output [N, Q, M*D]; one of the types of value.
        value: as in `ms_deform_attn`, same type as dy.
        spatial_shapes: as in `ms_deform_attn`.
        level_start_index: as in `ms_deform_attn`.
        sampling_locations: as in `ms_deform_attn`, same type as dy.
        attention_weights: as in `ms_deform_attn`, same type as dy.
        outputs: the gradients to compute, at least one.

    Returns:
        dvalue [N, S, M, D], dlocations [N, Q, M, L, P, 2] and dweights [N, Q, M, L, P] with the type of dy, accumulated at
        least in float32 (float64 for float64); None for a gradient that is not in outputs. Bits do not depend on the number
        of threads.

    Raises:
        TypeError: an array has a wrong type.
        ValueError: a shape, a level's size or its first pixel breaks its rule; the message names it.

    Source: the derivative of `ms_deform_attn`.
    """
