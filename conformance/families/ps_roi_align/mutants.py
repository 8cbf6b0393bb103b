# SPDX-License-Identifier: MIT OR Apache-2.0
"""The mutants of PSRoIAlign and its gradient."""

from __future__ import annotations

from conformance.mutants.base import Category, Table, edit
from conformance.mutants.shared import OF_ENDS, OF_ONNX, OF_SAMPLES, ROIS_ALONE, SAMPLED
from conformance.mutants.steps import before_checks
from ortops.reference.roi_align import channel_read, pool_grad

READ = "(c * size[0] + bin_.p) * size[1] + bin_.q"

table = Table(SAMPLED, ROIS_ALONE, OF_SAMPLES, OF_ENDS, OF_ONNX)
table.add(
    Category.INDEXING,
    "BinsOutermost: The channels of the map are ordered by bins, and those of a bin by channels of the result.",
    edit(channel_read, READ, "(bin_.p * size[1] + bin_.q) * (call().x_shape[1] // (size[0] * size[1])) + c"),
    "BinsByColumns: The channels of the map that a channel of the result reads are ordered by columns of bins.",
    edit(channel_read, READ, "(c * size[1] + bin_.q) * size[0] + bin_.p"),
    "BinsAlike: Every bin reads the channel of the first bin.",
    edit(channel_read, READ, "c * size[0] * size[1]"),
    "ChannelsAsInRoiAlign: Every bin of channel c reads channel c of the map.",
    edit(channel_read, READ, "c"),
)
table.add(
    Category.GRADIENTS,
    "DxAsInRoiAlign: The gradient of every bin of channel c goes to channel c of the map.",
    edit(pool_grad, "channel_read(bin_, c, dy.shape[2:]) if position_sensitive else c", "c"),
)
table.add(
    Category.DEFAULTS,
    "RemainderIgnored: Channels of the map that are left over are ignored instead of refused.",
    before_checks(
        "if not operator.is_gradient and 'X' in arrays and arrays['X'].ndim == 4: "
        "bins = arguments['output_height'] * arguments['output_width']; "
        "arrays['X'] = arrays['X'][:, : arrays['X'].shape[1] // bins * bins]"
    ),
)
MUTANTS = table.of("ps_roi_align")
del MUTANTS["PixelsIn16Bits"]  # RoiAlign's average has no case with so large a map
__getattr__ = MUTANTS.find
