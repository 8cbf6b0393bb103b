"""The kernels of RoIAlignRotated: their bits in any company, and tables that do not fit at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import ortops
from ortops.functional.roi_align_rotated import roi_align_rotated, roi_align_rotated_grad
from problems import DTYPES, Array

KINDS = ("inside", "across", "mirrored", "flat", "point", "outside", "thin")


@dataclass(frozen=True)
class Rotated:
    """One call of RoIAlignRotated."""

    x: Array
    rois: Array
    batch_indices: Array
    attributes: dict[str, Any]

    @property
    def gradient_attributes(self) -> dict[str, Any]:
        return {name: value for name, value in self.attributes.items() if not name.startswith("output_")}

    @property
    def dy(self) -> Array:
        a = self.attributes
        shape = (len(self.rois), self.x.shape[1], a["output_height"], a["output_width"])
        return np.random.default_rng(len(self.rois)).uniform(-1, 1, shape).astype(self.x.dtype)

    def forward(self) -> Array:
        return roi_align_rotated(self.x, self.rois, self.batch_indices, **self.attributes)

    def gradient(self, dy: Array | None = None) -> tuple[Array, Array]:
        dy = self.dy if dy is None else dy
        dx, drois = roi_align_rotated_grad(
            dy, self.rois, self.batch_indices, self.x.shape, self.x, **self.gradient_attributes
        )
        assert dx is not None
        assert drois is not None
        return dx, drois

    def part(self, rois: slice) -> Rotated:
        return replace(self, rois=self.rois[rois], batch_indices=self.batch_indices[rois])


def make(
    seed: int, dtype: Any, kinds: tuple[str, ...], size: tuple[int, int, int, int], attributes: dict[str, Any]
) -> Rotated:
    """RoIs of the given kinds at any angle on maps [N, C, H, W] of numbers that all types have."""
    rng = np.random.default_rng(seed)
    x = (rng.permutation(int(np.prod(size))).reshape(size) % 251 - 125) / 64
    extent = np.array([size[3], size[2]]) / float(np.float32(attributes["spatial_scale"]))
    rois = np.empty((len(kinds), 5))
    for r, kind in enumerate(kinds):
        centre, sides = rng.uniform(0.2, 0.8, 2), rng.uniform(0.05, 0.8, 2)
        centre, sides = {
            "inside": (centre, sides / 3),
            "across": (centre * 2 - 0.5, sides * 2),
            "mirrored": (centre, sides * [-1, 1]),
            "flat": (centre, sides * [1, 0]),
            "point": (centre, sides * 0),
            "outside": (centre + 4, sides),
            "thin": (centre, sides * [4, 0.02]),
        }[kind]
        rois[r] = *(centre * extent), *(sides * extent), rng.uniform(-7, 7)
    return Rotated(x.astype(dtype), rois.astype(dtype), rng.integers(0, size[0], len(kinds)), attributes)


def mixed(dtype: Any = np.float64, channels: int = 20, count: int = 28, **given: Any) -> Rotated:
    """RoIs of every kind."""
    attributes = {"output_height": 3, "output_width": 5, "sampling_ratio": 0, "spatial_scale": 0.3, "aligned": 1}
    kinds = (KINDS * count)[:count]
    return make(5, dtype, kinds, (2, channels, 30, 40), attributes | {"clockwise": 0} | given)


def same_bits(actual: Array, expected: Array) -> None:
    assert actual.shape == expected.shape
    assert np.ascontiguousarray(actual).tobytes() == np.ascontiguousarray(expected).tobytes()


@pytest.mark.parametrize("channels", [1, 17, 130])
def test_a_roi_has_the_same_bits_alone_and_among_others(channels: int) -> None:
    problem = mixed(np.float32, channels, 70)
    y, (_, drois) = problem.forward(), problem.gradient()
    for r in range(0, 70, 9):
        alone, dy = problem.part(slice(r, r + 1)), problem.dy[r : r + 1]
        same_bits(alone.forward(), y[r : r + 1])
        same_bits(alone.gradient(dy)[1], drois[r : r + 1])


@pytest.mark.parametrize(("dtype", "channels"), [(DTYPES[0], 9), (DTYPES[2], 1), (DTYPES[3], 9)], ids=str)
def test_more_rois_than_tables_have_room_for_are_the_sum_of_their_parts(dtype: Any, channels: int) -> None:
    # 49 bins of 12 to 16 pixels of 12 bytes or more each: 16 MiB are full after some 2000 of them.
    kinds = ("inside", "across", "inside", "inside") * 750
    attributes = {"output_height": 7, "output_width": 7, "sampling_ratio": 2, "spatial_scale": 1.0}
    problem = make(3, dtype, kinds, (2, channels, 20, 30), attributes | {"aligned": 1, "clockwise": 0})
    y, dy = problem.forward(), problem.dy
    dx, drois = problem.gradient()
    parts = [slice(start, start + 1000) for start in range(0, len(kinds), 1000)]
    total = np.zeros(problem.x.shape)
    for rois in parts:
        part = problem.part(rois)
        same_bits(part.forward(), y[rois])
        part_dx, part_drois = part.gradient(dy[rois])
        same_bits(part_drois, drois[rois])
        total += part_dx.astype(np.float64)
    rounding = 2.0**-7 if dtype.itemsize == 2 else 1e-3 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(dx.astype(np.float64), total, rtol=rounding, atol=rounding * len(parts))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_bins_that_tables_have_no_room_for_are_made_in_turn(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 9, 50, 60)).astype(dtype)
    rois, boxes = np.array([[30, 25, 56, 44, 0]], dtype), np.array([[2, 3, 58, 47]], dtype)
    sizes: dict[str, Any] = {"output_height": 501, "output_width": 303, "sampling_ratio": 2}
    y, expected = roi_align_rotated(x, rois, [0], **sizes), ortops.roi_align(x, boxes, [0], **sizes)
    # Roundings of the type, and of coordinates up to 60 pixels in float64.
    error = max(16 * float(np.finfo(dtype).eps), 1e-12)
    np.testing.assert_allclose(y.astype(float), expected.astype(float), atol=error)
    dy = rng.standard_normal((1, 9, 501, 303)).astype(dtype)
    dx, drois = roi_align_rotated_grad(dy, rois, [0], x.shape, x, sampling_ratio=2)
    expected_dx, by_corners = ortops.roi_align_grad(dy, boxes, [0], x.shape, x=x, sampling_ratio=2)
    assert dx is not None
    assert expected_dx is not None
    assert drois is not None
    assert by_corners is not None
    np.testing.assert_allclose(dx.astype(float), expected_dx.astype(float), rtol=100 * error, atol=100 * error)
    both = by_corners.astype(float)[0, :2] + by_corners.astype(float)[0, 2:]
    np.testing.assert_allclose(drois.astype(float)[0, :2], both, rtol=100 * error, atol=2e4 * error)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("sampling_ratio", [0, 5])
@pytest.mark.parametrize("far", [1e9, 1e30, 1.7e308])
def test_huge_rois_take_no_more_than_the_map(far: float, sampling_ratio: int, aligned: int) -> None:
    x = np.ones((1, 2, 20, 30))
    rois = np.array(
        [
            [5, 5, far, far, 0.3],
            [5, 5, far, 8, 0.0],
            [5, 5, 8, far, far],
            [far, far, far, far, 0.7],
            [far, -far, 2 * far if far < 1e308 else far, 1e10, np.pi / 4],
            [-far, 5, 2 * far if far < 1e308 else far, 9, 1e-9],
            [5, 5, -far, far, -far],
        ]
    )
    of, attributes = np.zeros(len(rois), int), {"sampling_ratio": sampling_ratio, "aligned": bool(aligned)}
    for height, width in ((1, 1), (7, 100)):
        y = roi_align_rotated(x, rois, of, output_height=height, output_width=width, **attributes)  # type: ignore[arg-type]
        assert np.all((y >= 0) & (y <= 1 + 1e-12))
        dx, _ = roi_align_rotated_grad(np.ones_like(y), rois, of, x.shape, x, **attributes)  # type: ignore[arg-type]
        assert dx is not None
        assert np.all(np.isfinite(dx))
        np.testing.assert_allclose(dx.sum(), y.sum(), rtol=1e-9)


def test_a_sample_at_the_centre_of_any_roi_is_the_pixel_there() -> None:
    x = np.arange(42.0).reshape(1, 1, 6, 7)
    rois = [[3.5, 2.5, size, size, angle] for size in (0.0, 1.0, -3.0, 1e300, 1.7e308) for angle in (0.0, 0.7, 1e300)]
    y = roi_align_rotated(x, rois, [0] * len(rois), output_height=1, output_width=1, sampling_ratio=1)
    np.testing.assert_array_equal(y.ravel(), np.full(len(rois), x[0, 0, 2, 3]))


def test_an_overflow_is_off_the_map() -> None:
    x, rois = np.ones((1, 1, 5, 5)), [[2.0, 2.0, 1.7e308, 3.0, 0.0], [1.7e308, 2.0, 3.0, 3.0, 0.0]]
    for ratio in (0, 1, 3):
        y = roi_align_rotated(x, rois, [0, 0], output_height=3, output_width=3, spatial_scale=8.0, sampling_ratio=ratio)
        np.testing.assert_array_equal(y, np.zeros((2, 1, 3, 3)))
