# SPDX-License-Identifier: MIT
"""The bodies of PSRoIAlign and of its gradient: those of RoiAlign, of whose bins each channel keeps one.

Each channel of the map is pooled in all bins, but only one of these is read, so this takes up to PH PW times the work of
the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx_models.portable.attributes import BodyRequest
from onnx_models.portable.graph import Value, arange
from onnx_models.portable.roi_align import onnx_rule, pool


def outputs(given: Mapping[str, Value], request: BodyRequest) -> dict[str, Value]:
    """Return the wanted outputs by name."""
    rule = onnx_rule(request, "avg")
    if request.operator.is_gradient:
        return pool({**given, "dY": _spread(given["dY"].cast(request.sums))}, request, rule)
    return {"Y": _picked(pool(given, request, rule)["Y"])}


def _picked(y: Value) -> Value:
    """Take bin k of each channel c*PH*PW + k, from [R, C, PH, PW]."""
    count, channels, bins_y, bins_x = y.lengths(4)
    bins = bins_y * bins_x
    each = y.reshape(count, channels // bins, bins * bins).gather(arange(bins) * (bins + 1), axis=2)
    return each.reshape(count, channels // bins, bins_y, bins_x)


def _spread(dy: Value) -> Value:
    """The transpose of `_picked`: [R, C, PH, PW] with 0 in all other bins."""
    count, channels, bins_y, bins_x = dy.lengths(4)
    bins = bins_y * bins_x
    is_own = arange(bins).unsqueeze(1).equals(arange(bins))
    each = is_own.where(dy.reshape(count, channels, 1, bins), 0.0)
    return each.reshape(count, channels * bins, bins_y, bins_x)
