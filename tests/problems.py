# SPDX-License-Identifier: MIT
"""Random RoiAlign problems for the tests: maps, RoIs of every kind, attributes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

Array = np.ndarray[Any, Any]

DTYPES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32), np.dtype(np.float64))
MODES = ("avg", "max", "max_interpolated")
COORDINATES = ("half_pixel", "output_half_pixel")
SHAPES_OF_ROIS = ("inside", "across", "mirrored", "flat", "point", "outside", "huge")


@dataclass(frozen=True)
class Problem:
    """One call of RoiAlign: x [N, C, H, W], rois [R, 4], batch_indices [R] and the attributes."""

    x: Array
    rois: Array
    batch_indices: Array
    attributes: dict[str, Any] = field(default_factory=dict)
    given_dy: Array | None = None

    @property
    def gradient_attributes(self) -> dict[str, Any]:
        return {name: value for name, value in self.attributes.items() if not name.startswith("output_")}

    @property
    def dy(self) -> Array:
        """A gradient with respect to the output, where none is given always the same for a problem."""
        if self.given_dy is not None:
            return self.given_dy
        a = self.attributes
        shape = (len(self.rois), self.x.shape[1], a["output_height"], a["output_width"])
        return np.random.default_rng(len(self.rois)).uniform(-1, 1, shape).astype(self.x.dtype)

    def astype(self, dtype: Any) -> Problem:
        return replace(self, x=self.x.astype(dtype), rois=self.rois.astype(dtype))


def make_problem(
    seed: int, dtype: Any, attributes: dict[str, Any], kinds: tuple[str, ...], size: tuple[int, ...]
) -> Problem:
    """RoIs of the given kinds, one each, on random maps [N, C, H, W]; coordinates are continuous, so ties are rare."""
    rng = np.random.default_rng(seed)
    images, _, height, width = size
    # Distinct values that all types hold exactly: no two pixels tie in a maximum.
    x = (rng.permutation(int(np.prod(size))).reshape(size) % 251 - 125) / 64
    extent = np.array([width, height, width, height]) / float(np.float32(attributes["spatial_scale"]))
    rois = np.empty((len(kinds), 4))
    for r, kind in enumerate(kinds):
        low, high = sorted((rng.uniform(0, 1, 2), rng.uniform(0, 1, 2)), key=lambda pair: pair[0])
        roi = np.concatenate([np.minimum(low, high), np.maximum(low, high)])
        rois[r] = {
            "inside": roi,
            "across": roi * 2 - 0.5,
            "mirrored": roi[[2, 3, 0, 1]],
            "flat": roi[[0, 1, 2, 1]],
            "point": roi[[0, 1, 0, 1]],
            "outside": roi + 3,
            "huge": (roi - 0.5) * 1e6,
        }[kind]
    rois = np.clip(rois * extent, -6e4, 6e4) if dtype == np.float16 else rois * extent
    return Problem(x.astype(dtype), rois.astype(dtype), rng.integers(0, images, len(kinds)), attributes)


@st.composite
def problems(draw: st.DrawFn, /, kinds: tuple[str, ...] = SHAPES_OF_ROIS, **fixed: Any) -> Problem:
    """Any problem; `fixed` sets dtype or an attribute."""
    attributes = {
        "output_height": draw(st.integers(1, 4)),
        "output_width": draw(st.integers(1, 4)),
        "sampling_ratio": draw(st.integers(0, 3)),
        "spatial_scale": draw(st.sampled_from([1.0, 0.5, 0.3, 1 / 16, 1.7])),
        "mode": draw(st.sampled_from(MODES)),
        "coordinate_transformation_mode": draw(st.sampled_from(COORDINATES)),
    }
    dtype = fixed.pop("dtype", None) or draw(st.sampled_from(DTYPES))
    size = tuple(draw(st.integers(1, most)) for most in (3, 3, 9, 9))
    chosen = tuple(draw(st.lists(st.sampled_from(kinds), max_size=4)))
    return make_problem(draw(st.integers(0, 2**32 - 1)), dtype, attributes | fixed, chosen, size)
