# SPDX-License-Identifier: MIT OR Apache-2.0
"""PSRoIAlign and its gradient, by analogy to RoiAlign: channels repeated for each bin, and a diagonal of the bins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from conformance.case import Array
from conformance.families.analogy import Analogy, Changes, FamilyByAnalogy, Inputs, Places
from ortops.spec import AttributeValue

FACTORS = np.array([1.0, -0.5, 0.25, -1.0, 0.5, -0.25])
"""Alternating factors of a channel's copies, so that no two neighbours are the same. Products are exact."""


def repeated(attributes: Mapping[str, AttributeValue], inputs: Inputs) -> Changes | None:
    """Each channel of RoiAlign's map is repeated for each bin. A copy has one of `FACTORS`, and so has its bin of Y."""
    if attributes.get("mode", "avg") != "avg":
        return None
    of_node = (int(attributes.get(name, 1)) for name in ("output_height", "output_width"))
    sizes = inputs["dY"].shape[2:] if "dY" in inputs else tuple(of_node)
    bins = math.prod(sizes)

    def of_map(x: Array) -> Array:
        copies = np.repeat(x, bins, axis=1)
        of_channels = np.resize(FACTORS[np.arange(bins) % len(FACTORS)], copies.shape[1])
        factors = of_channels.reshape(-1, *[1] * (x.ndim - 2)).astype(x.dtype)
        return copies if x.dtype.kind in "iu" else copies * factors

    def of_shape(x_shape: Array) -> Array:
        return np.concatenate([x_shape[..., :1], x_shape[..., 1:2] * bins, x_shape[..., 2:]], axis=-1)

    def of_result(y: Array) -> Array:
        return y * np.resize(FACTORS, bins).reshape(sizes)

    return {"X": of_map, "x_shape": of_shape, "Y": of_result}


def diagonal(shape: Sequence[int]) -> Places:
    """Where Y and dY, of a shape [R, C, PH, PW], lie in those of RoiAlign on the same map: [R, C * PH * PW, PH, PW]."""
    r, c, i, j = np.ogrid[tuple(map(slice, shape))]
    rois, channels, height, width = shape
    return Places((rois, channels * height * width, height, width), (r, (c * height + i) * width + j, i, j))


FAMILY = FamilyByAnalogy(__name__, Analogy("roi_align", repeated, {"Y": diagonal, "dY": diagonal}))
