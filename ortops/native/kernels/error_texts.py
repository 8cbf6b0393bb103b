# SPDX-License-Identifier: MIT
"""The texts of errors about a call's data."""

from __future__ import annotations

from ortops.compiler.compile import compiled, optimize_for_size
from ortops.compiler.text import text
from ortops.native.elements import Doubles
from ortops.native.kernels.layout import NO_BINS, NO_PIXELS
from ortops.native.kernels.types import ResampleEntry, RoiEntry
from ortops.native.node.messages import write_float, write_int, write_shape, write_text
from ortops.native.types import NONE, Call


@optimize_for_size
def write_rois_error(call: Call, entry: RoiEntry, rule: int, number: int, roi: Doubles, image: int) -> None:
    """Write why an operator on RoIs refuses a call; a `types.WriteRoisError`. The rule is NO_BINS, NO_PIXELS or BAD_ROI."""
    lengths = call.lengths if entry.has_lengths else call.tensors[entry.x].dims
    if rule == NO_BINS:
        write_text(call, entry.output_name)
        write_text(call, text(" has shape "))
        write_shape(call, call.tensors[entry.output])
        write_text(call, text(": must have an output height and width >= 1"))
    elif rule == NO_PIXELS:
        write_text(call, entry.x_name)
        write_text(call, text(" is "))
        write_int(call, lengths[2])
        write_text(call, text(" x "))
        write_int(call, lengths[3])
        write_text(call, text(" pixels: must not be empty where there are RoIs"))
    elif entry.batch_indices != NONE and not 0 <= image < lengths[0]:
        write_text(call, entry.batch_indices_name)
        _write_number(call, number)
        write_int(call, image)
        write_text(call, text(": must be "))
        _write_image_rule(call, lengths[0])
    else:
        write_text(call, entry.rois_name)
        _write_number(call, number)
        is_finite = True
        for k in range(entry.columns):
            write_text(call, text(", ") if k else text("["))
            write_float(call, roi[k])
            is_finite = is_finite and roi[k] - roi[k] == 0.0
        if is_finite:
            write_text(call, text("]: batch_id must be a whole number "))
            _write_image_rule(call, lengths[0])
        else:
            write_text(call, text("]: must be finite"))


@compiled
def _write_number(call: Call, number: int) -> None:
    write_text(call, text("["))
    write_int(call, number)
    write_text(call, text("] = "))


@compiled
def _write_image_rule(call: Call, images: int) -> None:
    write_text(call, text(">= 0 and < "))
    write_int(call, images)
    write_text(call, text(", the number of images"))


@optimize_for_size
def write_resample_error(call: Call, entry: ResampleEntry) -> None:
    """Write that DmlResample has no element to read, or that its gradient has no element to fill."""
    if entry.transposed == 0:
        write_text(call, text("InputTensor has shape "))
        write_shape(call, call.tensors[entry.source])
        write_text(call, text(": must have elements where OutputTensor has some"))
    else:
        write_text(call, text("x_shape is "))
        write_shape(call, call.tensors[entry.target])
        write_text(call, text(": must not have a 0 where InputGradientTensor has elements"))
