"""Strategies for RoiAlign and MaxRoiPool in the form that github.com/cbourjau/onnx-tests uses, ready to contribute there.

There a strategy takes an element type and spox's module of an opset, and returns `TestCaseDraw(inputs, attribute_kwargs,
spox_fun)`. spox is no dependency of this project: here `op` is any object with the functions `roi_align` and `max_roi_pool`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.extra import numpy as hyn


@dataclass
class TestCaseDraw:
    """What a strategy of onnx-tests draws."""

    __test__ = False
    inputs: dict[str, npt.NDArray[Any]]
    attribute_kwargs: dict[str, Any]
    spox_fun: Callable[..., Any]


@st.composite
def feature_map(draw: st.DrawFn, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """One or two images with up to three channels; numbers that float16 holds exactly, so that no sum is out of range."""
    shape = draw(st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9)), "X-shape")
    return draw(hyn.arrays(np.int8, shape)).astype(dtype)


@st.composite
def boxes(draw: st.DrawFn, dtype: np.dtype[Any], extent: int) -> npt.NDArray[Any]:
    """Up to four boxes, also beyond the border, in quarters of a pixel; none is empty, since the texts leave that open."""
    shape = (draw(st.integers(0, 4), "number of boxes"), 2)
    starts = draw(hyn.arrays(np.int16, shape, elements=st.integers(-8, 4 * extent)))
    sizes = draw(hyn.arrays(np.int16, shape, elements=st.integers(4, 4 * extent + 8)))
    return (np.concatenate([starts, starts + sizes], axis=1) / 4).astype(dtype)


@st.composite
def roi_align(draw: st.DrawFn, dtype: np.dtype[Any], op: Any) -> TestCaseDraw:
    """A node of RoiAlign, from opset 16."""
    x = draw(feature_map(dtype))
    rois = draw(boxes(dtype, max(x.shape)))
    images = draw(hyn.arrays(np.int64, len(rois), elements=st.integers(0, len(x) - 1)))
    attributes = {
        "mode": draw(st.sampled_from(["avg", "max"]), "mode"),
        "coordinate_transformation_mode": draw(st.sampled_from(["half_pixel", "output_half_pixel"]), "coordinates"),
        "sampling_ratio": draw(st.integers(0, 3), "sampling_ratio"),
        "spatial_scale": draw(st.sampled_from([0.25, 0.5, 1.0, 2.0]), "spatial_scale"),
        **{name: draw(st.integers(1, 4), name) for name in ("output_height", "output_width")},
    }
    return TestCaseDraw({"X": x, "rois": rois, "batch_indices": images}, attributes, op.roi_align)


@st.composite
def max_roi_pool(draw: st.DrawFn, dtype: np.dtype[Any], op: Any) -> TestCaseDraw:
    """A node of MaxRoiPool, whose RoIs begin with the index of the image and name their last pixels."""
    x = draw(feature_map(dtype))
    corners = np.floor(draw(boxes(dtype, max(x.shape))))
    images = draw(hyn.arrays(np.int64, len(corners), elements=st.integers(0, len(x) - 1)))
    rois = np.concatenate([images[:, None], corners], axis=1).astype(dtype)
    pooled = [draw(st.integers(1, 4), "pooled height"), draw(st.integers(1, 4), "pooled width")]
    return TestCaseDraw({"X": x, "rois": rois}, {"pooled_shape": pooled, "spatial_scale": 1.0}, op.max_roi_pool)
