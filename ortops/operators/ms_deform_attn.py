# SPDX-License-Identifier: MIT
"""MSDeformAttn, the multi-scale deformable attention of Deformable DETR, and its gradient.

Each query reads a few points of each level of a feature pyramid. The projections before and after it are layers of their own
in a model.
"""

from __future__ import annotations

from dataclasses import replace

from ortops.operators.roi_align import ROI_ALIGN_22
from ortops.spec import Operator, Quotient, Tensor

_VALUE = ("N", "S", "M", "D")
_LOCATIONS = ("N", "Q", "M", "L", "P", 2)
_WEIGHTS = ("N", "Q", "M", "L", "P")
_OUTPUT = ("N", "Q", "channels")
_EQUATIONS = (Quotient("D", "channels", ("M",)),)

_FORMULA = """\
Y[n, q, m*D + d] = sum over l and p of attention_weights[n, q, m, l, p] * interpolate(V, y, x), where
    H, W = spatial_shapes[l]
    V[h, w] = value[n, level_start_index[l] + h*W + w, m, d]
    x = sampling_locations[n, q, m, l, p, 0]*W - 0.5
    y = sampling_locations[n, q, m, l, p, 1]*H - 0.5

Without level_start_index, the levels follow each other and fill S: level_start_index[l] is the sum of H*W over the
levels before l.

interpolate(V, y, x) is bilinear: the sum of weight * pixel over the pixels
(floor(y), floor(x)), (floor(y), floor(x) + 1), (floor(y) + 1, floor(x)), (floor(y) + 1, floor(x) + 1).
A pixel off the map is 0; a pixel on the map counts even where its weight is 0. A point is off the map, and its sample
is 0, unless -1 <= x < W and -1 <= y < H, as where x or y is NaN or infinite."""

_GRADIENT_FORMULA = """\
With L = sum(dY * Y), where Y = MSDeformAttn(value, ...) with the same inputs:
    dvalue[n, s, m, d] is the derivative of L by value[n, s, m, d]
    dlocations[n, q, m, l, p, k] is the derivative of L by the stored sampling_locations[n, q, m, l, p, k]
    dweights[n, q, m, l, p] is the derivative of L by attention_weights[n, q, m, l, p]

For each point on the map, with a = attention_weights[n, q, m, l, p], g[d] = dY[n, q, m*D + d] and
H, W = spatial_shapes[l]:
    dvalue of a pixel is the sum of a * g[d] * (weight of the pixel) over the points that read it
    dlocations is W * a * sum(g * (slope along x)), H * a * sum(g * (slope along y)), with the slopes in the cell
        [floor(x), floor(x) + 1] x [floor(y), floor(y) + 1], in which pixels off the map are 0
    dweights is sum(g * sample)
A point off the map adds nothing to dvalue, and its dlocations are 0; its dweights are sum(g * 0)."""

URL = "https://arxiv.org/abs/2010.04159"
CODE = "https://github.com/fundamentalvision/Deformable-DETR/blob/main/models/ops/functions/ms_deform_attn_func.py"

_INPUTS = (
    Tensor(
        "value", "T1", _VALUE, doc="Feature maps: the S pixels of all levels, each with D channels for each of M heads."
    ),
    Tensor("spatial_shapes", "int64", ("L", 2), doc="Height and width of each level, >= 1."),
    Tensor(
        "level_start_index",
        "int64",
        ("L",),
        optional=True,
        doc=(
            "The first of each level's pixels in value; each level must lie in 0..S, and all levels together must have at "
            "most S pixels. Without it, the levels follow each other and must fill S."
        ),
    ),
    Tensor(
        "sampling_locations",
        "T1",
        _LOCATIONS,
        doc=(
            "Each query's points, [x, y] as fractions of the level: 0 is its left or upper edge, 1 its right or lower "
            "edge. Points may lie off the map."
        ),
    ),
    Tensor(
        "attention_weights", "T1", _WEIGHTS, doc="Each point's weight; models normalise them over levels and points."
    ),
)

MS_DEFORM_ATTN = Operator(
    name="MSDeformAttn",
    family="ms_deform_attn",
    function="ms_deform_attn",
    doc="Multi-scale deformable attention: weighted sums of bilinear samples at each query's points on several maps.",
    attributes=(),
    inputs=_INPUTS,
    outputs=(Tensor("Y", "T1", _OUTPUT, doc="The weighted sums: channels is M*D, the channels of head 0 first."),),
    types={"T1": ROI_ALIGN_22.types["T1"]},
    equations=_EQUATIONS,
    gradient="MSDeformAttnGrad",
    formula=_FORMULA,
    source=f"Zhu et al. 2020, Deformable DETR: {URL}; its ms_deform_attn_core_pytorch: {CODE}",
)

MS_DEFORM_ATTN_GRAD = replace(
    MS_DEFORM_ATTN,
    name="MSDeformAttnGrad",
    function="ms_deform_attn_grad",
    doc="Gradient of MSDeformAttn with respect to value, sampling_locations and attention_weights.",
    inputs=(Tensor("dY", "T1", _OUTPUT, doc="Gradient with respect to the output."), *_INPUTS),
    outputs=(
        Tensor("dvalue", "T1", _VALUE, optional=True, doc="Gradient with respect to value."),
        Tensor(
            "dlocations",
            "T1",
            _LOCATIONS,
            optional=True,
            doc="Gradient with respect to the stored sampling_locations; on a pixel, by the slopes to the right and below.",
        ),
        Tensor("dweights", "T1", _WEIGHTS, optional=True, doc="Gradient with respect to attention_weights."),
    ),
    gradient=None,
    formula=_GRADIENT_FORMULA,
    source=f"The derivative of MSDeformAttn: {URL}",
)
