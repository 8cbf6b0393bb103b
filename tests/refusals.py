"""Every input that RoiAlign and its gradient refuse, each with the words that its error must contain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Inputs = dict[str, Any]

X = np.arange(60, dtype=np.float32).reshape(2, 1, 5, 6)
ROIS = np.array([[0.0, 0.0, 4.0, 4.0], [1.0, 1.0, 3.0, 2.0]], np.float32)
FORWARD: Inputs = {"X": X, "rois": ROIS, "batch_indices": np.array([0, 1])}
GRADIENT: Inputs = {
    "dY": np.ones((2, 1, 2, 2), np.float32),
    "rois": ROIS,
    "batch_indices": np.array([0, 1]),
    "x_shape": np.array(X.shape),
    "X": X,
}


@dataclass(frozen=True)
class Refusal:
    """An attribute, or inputs in place of the good ones (None: absent), and what the error must say of it."""

    says: str
    inputs: Inputs
    attributes: dict[str, Any]


def _attribute(says: str, **attributes: Any) -> Refusal:
    return Refusal(says, {}, attributes)


def _data(says: str, **inputs: Any) -> Refusal:
    return Refusal(says, inputs, {})


def _with(array: Any, index: Any, value: float) -> Any:
    changed = array.copy()
    changed[index] = value
    return changed


ATTRIBUTES = {
    "unknown mode": _attribute("mode = 'median': must be one of 'avg', 'max', 'max_interpolated'", mode="median"),
    "mode in capitals": _attribute("mode = 'AVG': must be one of", mode="AVG"),
    "unknown coordinates": _attribute(
        "coordinate_transformation_mode = 'HALF_PIXEL': must be one of 'half_pixel', 'output_half_pixel'",
        coordinate_transformation_mode="HALF_PIXEL",
    ),
    "negative sampling_ratio": _attribute("sampling_ratio = -1: must be >= 0", sampling_ratio=-1),
    "spatial_scale 0": _attribute("spatial_scale = 0.0: must be finite and > 0", spatial_scale=0.0),
    "negative spatial_scale": _attribute("spatial_scale = -1.0: must be finite and > 0", spatial_scale=-1.0),
    "infinite spatial_scale": _attribute("spatial_scale = inf: must be finite and > 0", spatial_scale=np.inf),
    "spatial_scale NaN": _attribute("spatial_scale = nan: must be finite and > 0", spatial_scale=np.nan),
}
SIZES = {
    "output_height 0": _attribute("output_height = 0: must be >= 1", output_height=0),
    "negative output_width": _attribute("output_width = -3: must be >= 1", output_width=-3),
}
ROIS_OF_BOTH = {
    "rois of rank 1": _data("rois has shape [8]: must have rank 2, [num_rois, 4]", rois=ROIS.ravel()),
    "rois of 5 columns": _data("rois has shape [2, 5]: shape[1] must be 4", rois=np.zeros((2, 5), np.float32)),
    "batch_indices of rank 2": _data(
        "batch_indices has shape [2, 1]: must have rank 1", batch_indices=np.zeros((2, 1), int)
    ),
    "batch_indices of rank 0": _data("batch_indices has shape []: must have rank 1", batch_indices=np.array(0)),
    "batch_indices of another length": _data(
        "batch_indices has shape [3]: shape[0] must be 2 (num_rois", batch_indices=np.zeros(3, int)
    ),
    "negative batch index": _data("batch_indices[1] = -1: must be >= 0 and < 2", batch_indices=np.array([0, -1])),
    "batch index too large": _data("batch_indices[0] = 2: must be >= 0 and < 2", batch_indices=np.array([2, 0])),
    "RoI with NaN": _data("rois[1] = [1.0, nan, 3.0, 2.0]: must be finite", rois=_with(ROIS, (1, 1), np.nan)),
    "RoI with infinity": _data("rois[0] = [0.0, 0.0, 4.0, inf]: must be finite", rois=_with(ROIS, (0, 3), np.inf)),
}
OF_FORWARD = ROIS_OF_BOTH | {
    "X of rank 3": _data("X has shape [1, 5, 6]: must have rank 4, [N, C, H, W]", X=X[0]),
    "map without rows": _data("X is 0 x 6 pixels: must not be empty", X=X[:, :, :0]),
    "map without columns": _data("X is 5 x 0 pixels: must not be empty", X=X[:, :, :, :0]),
    "no image": _data("batch_indices[0] = 0: must be >= 0 and < 0", X=X[:0]),
}
OF_GRADIENT = ROIS_OF_BOTH | {
    "dY of rank 3": _data("dY has shape [2, 2, 2]: must have rank 4", dY=np.ones((2, 2, 2), np.float32)),
    "dY of other RoIs": _data("shape[0] must be 3 (num_rois of dY)", dY=np.ones((3, 1, 2, 2), np.float32)),
    "dY of other channels": _data("x_shape[1] must be 4 (C of dY)", dY=np.ones((2, 4, 2, 2), np.float32)),
    "dY without rows": _data("dY has shape [2, 1, 0, 2]: must have", dY=np.ones((2, 1, 0, 2), np.float32)),
    "x_shape of 3 lengths": _data("x_shape has shape [3]: shape[0] must be 4", x_shape=np.array([2, 1, 5])),
    "x_shape of rank 2": _data("x_shape has shape [1, 4]: must have rank 1", x_shape=np.array([[2, 1, 5, 6]])),
    "negative length in x_shape": _data("x_shape[2] must be >= 0", x_shape=np.array([2, 1, -5, 6])),
    "X of another shape": _data("X has shape [1, 1, 5, 6]: shape[0] must be 2 (N of x_shape)", X=X[:1]),
    "x_shape without rows": _data(
        "X is 0 x 6 pixels: must not be empty", x_shape=np.array([2, 1, 0, 6]), X=X[:, :, :0]
    ),
    "no X for drois": _data("X is missing: must be given for drois", X=None),
    "no X for a maximum": Refusal("X is missing: must be given for mode = 'max'", {"X": None}, {"mode": "max"}),
}
