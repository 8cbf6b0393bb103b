"""Random RoiAlign problems for the tests: maps, RoIs of every kind, attributes; and how far two right answers may differ."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

Array = np.ndarray[Any, Any]

finfo: Any = ml_dtypes.finfo

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

    def samples(self) -> list[tuple[Array, int]]:
        """For each RoI and axis the coordinates of all samples (of a RoI with few), and the map's length."""
        a, found = self.attributes, []
        scale = float(np.float32(a["spatial_scale"]))
        for x1, y1, x2, y2 in self.rois.astype(np.float64):
            for r1, r2, bins, length in (
                (y1, y2, a["output_height"], self.x.shape[2]),
                (x1, x2, a["output_width"], self.x.shape[3]),
            ):
                start, size = r1 * scale, (r2 - r1) * scale
                if a["coordinate_transformation_mode"] == "half_pixel":
                    start -= 0.5
                else:
                    size = max(size, 1.0)
                per_bin = a["sampling_ratio"] or max(int(np.ceil(size / bins)), 0)
                n = bins * min(per_bin, 10_000)
                found.append((start + (np.arange(n) + 0.5) * size / max(bins * per_bin, 1), length))
        return found

    def clear_of_borders(self, margin: float) -> bool:
        """Whether no sample is so near to the place where samples start to count as 0 that rounding decides on it."""
        return all(
            not np.any((np.abs(c + 1) < margin) & (c != -1))
            and not np.any((np.abs(c - length) < margin) & (c != length))
            for c, length in self.samples()
        )


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


def epsilon(dtype: Any) -> float:
    """Half the distance between 1 and the next number of a type: the relative error of one rounding."""
    return float(finfo(dtype).eps) / 2


def reach(rois: Array, scale: float) -> float:
    """The largest coordinate of any RoI in pixels, by which roundings of coordinates are measured."""
    return float(np.abs(rois.astype(np.float64)).max(initial=1.0)) * scale


def assert_close(actual: Array, expected: Array, terms: int, magnitude: float, reach: float) -> None:
    """`actual` is `expected` but for roundings.

    Those are of sums of `terms` numbers below `magnitude` in float32, of float64 coordinates up to `reach` pixels, and one
    to the type.
    """
    assert actual.shape == expected.shape, f"actual.shape = {actual.shape}, expected.shape = {expected.shape}"
    if not actual.size:
        return
    sums = epsilon(np.float64 if actual.dtype == np.float64 else np.float32)
    tiny = float(finfo(actual.dtype).smallest_subnormal)
    drift = 16 * epsilon(np.float64) * reach
    allowed = ((terms + 8) * sums + drift) * magnitude + 1.01 * epsilon(actual.dtype) * np.abs(expected) + tiny
    error = np.abs(actual.astype(np.float64) - expected)
    worst = np.unravel_index(np.argmax(error - allowed), error.shape)
    assert np.all(error <= allowed), (
        f"actual{list(map(int, worst))} = {actual[worst]}, expected {expected[worst]} within {allowed[worst]:.3g}"
    )
