# SPDX-License-Identifier: MIT OR Apache-2.0
"""A backend for the conformance suite that computes RoiAlign in NumPy. Call your runtime instead.

It runs without changes. docs/conformance.md in the suite's sources explains what else a backend can do:

    python -m conformance --backend MODULE:answer
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

MAX_SAMPLES = 10**6
"""Samples of a bin along one axis."""


def answer(op_type: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any], outputs: Sequence[str]) -> Any:
    """Run one node once. The suite calls this for all of its operators and element types.

    op_type: RoiAlign, MaxRoiPool or GridSample (ONNX's, of any opset; the attributes show that of RoiAlign), PSRoIAlign,
        RoIAlignRotated, DmlRoiAlign, DmlResample, MSDeformAttn, or one of these but GridSample with Grad appended.
    inputs: all inputs by name, in the operator's order; None for an input that the node does not have. They are copies,
        but a backend that writes to them fails the case.
    attributes: all attributes by name, with defaults for those that the node does not have. Pass wrong values on, because
        your runtime must refuse them.
    outputs: the names of the wanted outputs, in the operator's order.

    Return an array, or several in the order of `outputs`, or a mapping by name. Element types and shapes are compared, too.
    """
    # Raise NotImplementedError for what the runtime lacks: the case is then unsupported and does not count. For an element
    # type, compare `inputs["X"].dtype.name` with its name, such as "bfloat16".
    if op_type != "RoiAlign":
        raise NotImplementedError(f"no {op_type}")
    if attributes["mode"] != "avg":
        raise NotImplementedError(f"no mode {attributes['mode']}")
    # Every other exception is a refusal. It passes a case that expects an error if the valid twin gets a right answer.
    x, rois, indices = inputs["X"], inputs["rois"], inputs["batch_indices"]
    if x.ndim != 4 or rois.shape != (len(indices), 4) or not np.all(np.isfinite(rois)):
        raise ValueError(f"X {x.shape}, rois {rois.shape}: must have 4 axes, and a finite RoI for each batch index")
    sizes = attributes["output_height"], attributes["output_width"]
    y = np.zeros((len(rois), x.shape[1], *sizes))
    for r, (x1, y1, x2, y2) in enumerate(rois.astype(np.float64)):
        of_rows = _weights(y1, y2, sizes[0], x.shape[2], attributes)
        of_columns = _weights(x1, x2, sizes[1], x.shape[3], attributes)
        image = x[indices[r]].astype(np.float64)
        for i, j in np.ndindex(sizes):
            # Leave out pixels of weight 0, because NaN and infinity times 0 are NaN.
            rows, columns = np.flatnonzero(of_rows[i]), np.flatnonzero(of_columns[j])
            y[r, :, i, j] = image[:, rows][:, :, columns] @ of_columns[j, columns] @ of_rows[i, rows]
    return y.astype(x.dtype)


# The cases that your runtime is known to fail: globs of ids with reasons. The list is strict: a listed case that passes
# fails the run. A TOML file for --expected-failures can replace it, and can also have `crashes = true`.
answer.EXPECTED_FAILURES = {  # type: ignore[attr-defined]
    "roi_align/refusal/batch_index_negative/*": "NumPy takes -1 for the last image",
}


def _weights(start: float, end: float, bins: int, length: int, attributes: Mapping[str, Any]) -> Any:
    """[bins, length]: the weight of each pixel of an axis in the average of each bin."""
    scale, ratio = attributes["spatial_scale"], attributes["sampling_ratio"]
    is_half = attributes["coordinate_transformation_mode"] == "half_pixel"
    size = (end - start) * scale if is_half else max((end - start) * scale, 1.0)
    count = ratio or max(int(np.ceil(size / bins)), 0)
    if count > MAX_SAMPLES:
        raise NotImplementedError(f"no {count} samples")
    weights = np.zeros((bins, length))
    for i in range(bins):
        c = start * scale - 0.5 * is_half + (i + (np.arange(count) + 0.5) / max(count, 1)) * size / bins
        c = np.clip(c[(c >= -1) & (c <= length)], 0, length - 1)
        low = np.floor(c).astype(int)
        np.add.at(weights[i], low, (1 - (c - low)) / count)
        np.add.at(weights[i], np.minimum(low + 1, length - 1), (c - low) / count)
    return weights
