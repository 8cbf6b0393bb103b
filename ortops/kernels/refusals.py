"""The texts of errors about a call's data."""

from __future__ import annotations

from ortops.calls.messages import write_float, write_int, write_shape, write_text
from ortops.jit.compile import compiled, small
from ortops.jit.elements import Doubles, Words
from ortops.jit.scalar import offset
from ortops.jit.text import text
from ortops.kernels.layout import (
    BOXES_NAME,
    COLUMNS,
    MAP_DIMS,
    NO_BINS,
    NO_PIXELS,
    OF_IMAGES,
    OF_IMAGES_NAME,
    OUTPUT,
    OUTPUT_NAME,
    SOURCE,
    TARGET,
    TRANSPOSED,
    X_NAME,
)


@small
def refuse_rois(call: Words, entry: Words, rule: int, number: int, roi: Doubles, image: int) -> None:
    """Write why an operator on RoIs refuses a call; a `functions.Refuse`.

    Args:
        call: the call.
        entry: the entry's record.
        rule: NO_BINS, NO_PIXELS or BAD_ROI.
        number: the RoI's number.
        roi: the RoI's coordinates.
        image: the RoI's batch index.
    """
    lengths = offset(call, entry[MAP_DIMS])
    if rule == NO_BINS:
        write_text(call, entry[OUTPUT_NAME])
        write_text(call, text(" has shape "))
        write_shape(call, offset(call, entry[OUTPUT]))
        write_text(call, text(": must have an output height and width >= 1"))
    elif rule == NO_PIXELS:
        write_text(call, entry[X_NAME])
        write_text(call, text(" is "))
        write_int(call, lengths[2])
        write_text(call, text(" x "))
        write_int(call, lengths[3])
        write_text(call, text(" pixels: must not be empty where there are RoIs"))
    elif entry[OF_IMAGES] != 0 and not 0 <= image < lengths[0]:
        write_text(call, entry[OF_IMAGES_NAME])
        _write_number(call, number)
        write_int(call, image)
        write_text(call, text(": must be "))
        _write_rule_of_images(call, lengths[0])
    else:
        write_text(call, entry[BOXES_NAME])
        _write_number(call, number)
        is_finite = True
        for k in range(entry[COLUMNS]):
            write_text(call, text(", ") if k else text("["))
            write_float(call, roi[k])
            is_finite = is_finite and roi[k] - roi[k] == 0.0
        if is_finite:
            write_text(call, text("]: batch_id must be a whole number "))
            _write_rule_of_images(call, lengths[0])
        else:
            write_text(call, text("]: must be finite"))


@compiled
def _write_number(call: Words, number: int) -> None:
    write_text(call, text("["))
    write_int(call, number)
    write_text(call, text("] = "))


@compiled
def _write_rule_of_images(call: Words, images: int) -> None:
    write_text(call, text(">= 0 and < "))
    write_int(call, images)
    write_text(call, text(", the number of images"))


@small
def refuse_to_resample(call: Words, entry: Words) -> None:
    """Write that DmlResample has no element to read, or that its gradient has no element to fill."""
    if entry[TRANSPOSED] == 0:
        write_text(call, text("InputTensor has shape "))
        write_shape(call, offset(call, entry[SOURCE]))
        write_text(call, text(": must have elements where OutputTensor has some"))
    else:
        write_text(call, text("x_shape is "))
        write_shape(call, offset(call, entry[TARGET]))
        write_text(call, text(": must not have a 0 where InputGradientTensor has elements"))
