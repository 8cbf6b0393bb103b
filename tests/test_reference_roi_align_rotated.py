"""What the reference of RoIAlignRotated computes, against RoiAlign on turned maps, a dense formula and published numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from ortops.operators import BY_NAME
from ortops.operators.roi_align_rotated import MAX_SAMPLING_RATIO
from ortops.reference import evaluate
from ortops.reference.roi_align_rotated import Region, region_of

Array = npt.NDArray[np.float64]

ROTATED, ROTATED_GRAD = BY_NAME["RoIAlignRotated"], BY_NAME["RoIAlignRotatedGrad"]
ROI_ALIGN, ROI_ALIGN_GRAD = BY_NAME["RoiAlign_22"], BY_NAME["RoiAlignGrad"]

RAMP = (np.arange(25.0) + 1).reshape(1, 1, 5, 5)
"""At (y, x) it is 5y + x + 1, between pixels too."""


class Problem(NamedTuple):
    """x [N, C, H, W], rois [R, 5], batch_indices [R], dy [R, C, PH, PW] and the attributes of the gradient."""

    x: Array
    rois: Array
    batch_indices: npt.NDArray[np.int64]
    dy: Array
    attributes: dict[str, Any]

    @property
    def sizes(self) -> dict[str, int]:
        return {"output_height": self.dy.shape[2], "output_width": self.dy.shape[3]}


def problem(seed: int, *, least: float = 0.5, **attributes: Any) -> Problem:
    """Five RoIs on and across the border of two random maps of 9 by 7, of random angles, sizes from `least` pixels."""
    rng = np.random.default_rng(seed)
    given = {"aligned": 1, "clockwise": 0, "sampling_ratio": 2, "spatial_scale": 1.0} | attributes
    scale = float(np.float32(given["spatial_scale"]))
    centers, sizes = rng.uniform(-1, 9, (5, 2)) / scale, rng.uniform(least, 7, (5, 2)) / scale
    rois = np.concatenate([centers, sizes, rng.uniform(-4, 4, (5, 1))], axis=1)
    dy = rng.standard_normal((5, 2, 3, 2))
    return Problem(rng.standard_normal((2, 2, 9, 7)), rois, rng.integers(0, 2, 5), dy, given)


def forward(p: Problem, rois: Array | None = None) -> Array:
    inputs = [p.x, p.rois if rois is None else rois, p.batch_indices]
    (y,) = evaluate(ROTATED, inputs, {**p.attributes, **p.sizes})
    assert y is not None
    return y


def backward(p: Problem) -> tuple[Array, Array]:
    dx, drois = evaluate(ROTATED_GRAD, [p.dy, p.rois, p.batch_indices, np.array(p.x.shape), p.x], p.attributes)
    assert dx is not None
    assert drois is not None
    return dx, drois


def one(roi: Sequence[float], x: Array = RAMP, size: tuple[int, int] = (1, 1), **attributes: Any) -> Problem:
    """One RoI on the first image, with a gradient of ones."""
    given = {"aligned": 1, "clockwise": 0, "sampling_ratio": 1, "spatial_scale": 1.0} | attributes
    dy = np.ones((1, x.shape[1], *size))
    return Problem(x, np.array([roi], np.float64), np.zeros(1, np.int64), dy, given)


ALIGNED = pytest.mark.parametrize("aligned", [0, 1])
CLOCKWISE = pytest.mark.parametrize("clockwise", [0, 1])
RATIO = pytest.mark.parametrize("ratio", [0, 1, 3])


# --- a dense formula -----------------------------------------------------------------------------------------------


def places(p: Problem, r: int) -> npt.NDArray[np.complex128]:
    """[PH, KH, PW, KW]: where the samples of a RoI lie, x the real part and y the imaginary one."""
    scale = float(np.float32(p.attributes["spatial_scale"]))
    cx, cy, w, h, angle = p.rois[r]
    sides = np.array([h, w]) * scale
    if not p.attributes["aligned"]:
        sides = np.maximum(sides, 1)
    bins = p.dy.shape[2:]
    counts = [
        p.attributes["sampling_ratio"] or max(math.ceil(side / n), 0) for side, n in zip(sides, bins, strict=True)
    ]
    v, u = (
        side * (np.linspace(0, 1, 2 * n * k + 1)[1::2] - 0.5) for side, n, k in zip(sides, bins, counts, strict=True)
    )
    # Seen with y upwards, which is what conjugation does, a product with exp(i*t) turns counter-clockwise.
    upright = np.conj(u[np.newaxis, :] + 1j * v[:, np.newaxis])
    turned = np.conj(upright * np.exp(1j * (-angle if p.attributes["clockwise"] else angle)))
    found = complex(cx * scale, cy * scale) - (complex(0.5, 0.5) if p.attributes["aligned"] else 0) + turned
    return np.asarray(found.reshape(bins[0], counts[0], bins[1], counts[1]))


def tents(c: Array, length: int) -> Array:
    """[..., length]: the weight of each pixel at `c`: a tent of two pixels' width on each of them."""
    distances = np.abs(np.clip(c, 0, length - 1)[..., np.newaxis] - np.arange(length))
    return np.asarray(np.maximum(1 - distances, 0), np.float64)


def dense_weights(p: Problem, r: int) -> Array:
    """[PH, PW, H, W]: the weight of each pixel in each output."""
    z = places(p, r)
    height, width = p.x.shape[2:]
    inside = (z.imag >= -1) & (z.imag <= height) & (z.real >= -1) & (z.real <= width)
    samples = np.einsum("piqj,piqjh,piqjw->pqhw", inside.astype(float), tents(z.imag, height), tents(z.real, width))
    return np.asarray(samples / max(z.shape[1] * z.shape[3], 1))


@pytest.mark.parametrize("scale", [1.0, 0.3])
@RATIO
@CLOCKWISE
@ALIGNED
def test_output_and_dx_equal_a_dense_formula_with_complex_numbers(
    aligned: int, clockwise: int, ratio: int, scale: float
) -> None:
    p = problem(7, aligned=aligned, clockwise=clockwise, sampling_ratio=ratio, spatial_scale=scale)
    weights = np.array([dense_weights(p, r) for r in range(len(p.rois))])
    np.testing.assert_allclose(
        forward(p), np.einsum("rpqhw,rchw->rcpq", weights, p.x[p.batch_indices]), rtol=1e-12, atol=1e-12
    )
    expected = np.zeros_like(p.x)
    np.add.at(expected, p.batch_indices, np.einsum("rpqhw,rcpq->rchw", weights, p.dy))
    np.testing.assert_allclose(backward(p)[0], expected, rtol=1e-12, atol=1e-12)


@ALIGNED
def test_mirrored_regions_equal_the_dense_formula(aligned: int) -> None:
    p = problem(8, aligned=aligned)
    p.rois[:, 2:4] *= np.array([[-1, 1], [1, -1], [-1, -1], [-1, 1], [1, -1]])
    weights = np.array([dense_weights(p, r) for r in range(len(p.rois))])
    expected = np.einsum("rpqhw,rchw->rcpq", weights, p.x[p.batch_indices])
    np.testing.assert_allclose(forward(p), expected, rtol=1e-12, atol=1e-12)


# --- RoiAlign ------------------------------------------------------------------------------------------------------


def upright(p: Problem) -> tuple[list[Any], dict[str, Any]]:
    """The inputs x1 y1 x2 y2 and the attributes with which RoiAlign has the same regions, were their angles 0."""
    (cx, cy, w, h, _), mode = p.rois.T, "half_pixel" if p.attributes["aligned"] else "output_half_pixel"
    corners = np.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], axis=1)
    kept = {name: p.attributes[name] for name in ("sampling_ratio", "spatial_scale")}
    return [corners, p.batch_indices], {**kept, "mode": "avg", "coordinate_transformation_mode": mode}


def roi_align(p: Problem) -> Array:
    inputs, attributes = upright(p)
    (y,) = evaluate(ROI_ALIGN, [p.x, *inputs], {**attributes, **p.sizes})
    assert y is not None
    return y


@pytest.mark.parametrize("scale", [1.0, 0.25])
@RATIO
@ALIGNED
def test_without_an_angle_it_is_roi_align_and_so_are_its_gradients(aligned: int, ratio: int, scale: float) -> None:
    # Not aligned, RoiAlign raises a size from the corner and RoIAlignRotated from the centre.
    p = problem(9, least=1.1, aligned=aligned, sampling_ratio=ratio, spatial_scale=scale)
    p.rois[:, 4] = 0
    np.testing.assert_allclose(forward(p), roi_align(p), rtol=1e-12, atol=1e-12)

    corners, attributes = upright(p)
    of_x, of_corners = evaluate(ROI_ALIGN_GRAD, [p.dy, *corners, np.array(p.x.shape), p.x], attributes)
    assert of_x is not None
    assert of_corners is not None
    dx, drois = backward(p)
    np.testing.assert_allclose(dx, of_x, rtol=1e-12, atol=1e-12)
    first, second = of_corners[:, :2], of_corners[:, 2:]
    np.testing.assert_allclose(drois[:, :2], first + second, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(drois[:, 2:4], (second - first) / 2, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("turns", [-3, -2, -1, 1, 2, 3, 4, 5])
@RATIO
@CLOCKWISE
@ALIGNED
def test_quarter_turns_are_roi_align_on_a_map_turned_back(aligned: int, clockwise: int, ratio: int, turns: int) -> None:
    p = problem(10, least=1.1, aligned=aligned, clockwise=clockwise, sampling_ratio=ratio)
    p.rois[:, 4] = turns * math.pi / 2
    x, (cx, cy) = p.x, p.rois[:, :2].T
    for _ in range(-turns % 4 if clockwise else turns % 4):
        # Clockwise, so that the top row becomes the last column: the distance from the bottom is the new x.
        cx, cy = (x.shape[2] if aligned else x.shape[2] - 1) - cy, cx
        x = np.rot90(x, -1, axes=(2, 3))
    turned = p._replace(x=x, rois=np.stack([cx, cy, *p.rois[:, 2:].T], axis=1))
    np.testing.assert_allclose(forward(p), roi_align(turned), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("side", [2, 3])
def test_a_raised_size_grows_from_the_centre(side: int) -> None:
    p = problem(11, least=1.1, aligned=0)
    p.rois[:, side] = [0.9, 0.5, 0, -0.5, -9]
    raised = p._replace(rois=p.rois.copy())
    raised.rois[:, side] = 1
    np.testing.assert_array_equal(forward(p), forward(raised))
    drois, drois_of_raised = backward(p)[1], backward(raised)[1]
    assert np.all(drois[:, side] == 0)
    assert np.any(drois_of_raised[:, side] != 0)
    np.testing.assert_array_equal(np.delete(drois, side, axis=1), np.delete(drois_of_raised, side, axis=1))


# --- gradients -----------------------------------------------------------------------------------------------------

STEP = 1e-6


def clear_of_kinks(p: Problem) -> bool:
    """Whether a step moves no sample over a pixel, where the slope changes, nor a bin to another number of samples."""
    coordinates = np.concatenate([places(p, r).ravel() for r in range(len(p.rois))])
    found = np.concatenate([coordinates.real, coordinates.imag])
    sizes = p.rois[:, 2:4] * float(np.float32(p.attributes["spatial_scale"]))
    bins = np.concatenate([(sizes / p.dy.shape[:1:-1]).ravel(), sizes.ravel()])
    return all(np.all(np.abs(c - np.round(c)) > 50 * STEP) for c in (found, bins))


@pytest.mark.parametrize("scale", [1.0, 0.25])
@pytest.mark.parametrize("coordinate", range(5), ids=["cx", "cy", "w", "h", "angle"])
@pytest.mark.parametrize("ratio", [0, 2])
@CLOCKWISE
@ALIGNED
def test_drois_is_the_slope_of_the_output(
    aligned: int, clockwise: int, ratio: int, coordinate: int, scale: float
) -> None:
    drawn = (
        problem(seed, aligned=aligned, clockwise=clockwise, sampling_ratio=ratio, spatial_scale=scale)
        for seed in itertools.count(12)
    )
    p = next(candidate for candidate in itertools.islice(drawn, 100) if clear_of_kinks(candidate))
    move = np.zeros(5)
    move[coordinate] = STEP
    difference = (forward(p, p.rois + move) - forward(p, p.rois - move)) / (2 * STEP)
    expected = np.sum(p.dy * difference, axis=(1, 2, 3))
    assert np.any(expected != 0)
    np.testing.assert_allclose(backward(p)[1][:, coordinate], expected, rtol=1e-6, atol=1e-7)


@RATIO
@CLOCKWISE
@ALIGNED
def test_dx_is_the_adjoint_of_the_output(aligned: int, clockwise: int, ratio: int) -> None:
    p = problem(13, aligned=aligned, clockwise=clockwise, sampling_ratio=ratio)
    assert np.sum(p.dy * forward(p)) == pytest.approx(np.sum(backward(p)[0] * p.x), rel=1e-12)


# --- where samples lie ---------------------------------------------------------------------------------------------

MAX32, MAX64 = float(np.finfo(np.float32).max), float(np.finfo(np.float64).max)

HUGE = [
    [2.5, 2.5, 1e9, 1e9, 0.3],
    [0, 0, 2e18, 2e18, 0.3],
    [5e17, 5e17, 1e18, 1e18, 0],
    [5e17, 5e17, 1e18, 1e18, 2.0],
    [1.5e38, 0, 3e38, 1e6, 0],
    [1.5e38, -0.3e38, 3e38, 1e6, 0.1973955598498808],
    [1.5e38, -0.3e38, 3e38, 1e18, 0.1973955598498808],
    [MAX32 / 2, MAX32 / 2, MAX32, MAX32, MAX32],
    [MAX64 / 2, MAX64 / 2, MAX64, MAX64, math.pi / 4],
    [MAX64, -MAX64, MAX64, MAX64, 1],
    [0, 0, MAX64, 5e-324, MAX64],
    [0, 0, 5e-324, MAX64, -1],
    [-1e18, 1e30, -1e30, 1e40, 3],
    [2.5, 2.5, 1e300, 1e-300, 1],
]


def listed(region: Region, p: int, q: int) -> int:
    """Samples of a bin that are looked at."""
    height = region.height
    return sum(len(region.columns(q, height.size * height.along(k))) for k in region.rows(p))


@pytest.mark.parametrize("scale", [1.0, 3e38])
@pytest.mark.parametrize("ratio", [0, 3])
@ALIGNED
@pytest.mark.parametrize("roi", HUGE)
def test_a_huge_region_has_no_more_samples_to_look_at_than_its_map(
    roi: list[float], aligned: int, ratio: int, scale: float
) -> None:
    region = region_of(roi, (2, 3), (5, 5), aligned, 0, ratio, scale)
    # Samples are half a pixel apart or more; the map's diagonal and what rounding may move them by is 200 pixels.
    assert sum(listed(region, p, q) for p in range(2) for q in range(3)) <= (2 * 200) ** 2
    p = one(roi, size=(2, 3), aligned=aligned, sampling_ratio=ratio, spatial_scale=scale)
    dx, drois = backward(p)
    assert np.isfinite(forward(p)).all()
    assert np.isfinite(dx).all()
    assert np.isfinite(drois).all()


def test_a_huge_region_around_the_map_has_one_sample_a_pixel() -> None:
    # Of 1e9 samples an axis, those in the middle lie at whole numbers and a half from the centre.
    steps = np.arange(-40, 40) + 0.5
    turned = (steps[:, np.newaxis] + 1j * steps) * np.exp(0.3j) + (2.0 + 2.25j)
    inside = np.sum((abs(turned.real - 2) <= 3) & (abs(turned.imag - 2) <= 3))
    p = one([2.5, 2.75, 1e9, 1e9, 0.3], np.ones((1, 1, 5, 5)), sampling_ratio=0)
    assert forward(p).item() == inside / 1e18


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("size", [5e-324, 1e-320, 1e-3, 1.0, 37.0, 3e4, 1e14])
def test_no_sample_on_the_map_is_skipped(size: float, sign: float) -> None:
    rng = np.random.default_rng(14)
    for _ in range(20):
        # One of the samples, at one of 18 by 27 places in the region, lies at a random place on the map.
        w, h, angle = sign * size, size * rng.uniform(0.1, 1), rng.uniform(-7, 7)
        along = (rng.integers(27) + 0.5) / 27 - 0.5, (rng.integers(18) + 0.5) / 18 - 0.5
        center = complex(*rng.uniform(-0.4, 5.4, 2)) - complex(w * along[0], h * along[1]) * np.exp(-1j * angle)
        p = one([center.real, center.imag, w, h, angle], size=(2, 3), sampling_ratio=9)
        z = places(p, 0)
        expected = np.sum((z.imag >= -1) & (z.imag <= 5) & (z.real >= -1) & (z.real <= 5), axis=(1, 3))
        assert expected.sum() > 0
        region = region_of(p.rois[0].tolist(), (2, 3), (5, 5), 1, 0, 9, 1.0)
        found = [[len(list(region.samples(i, j))) for j in range(3)] for i in range(2)]
        np.testing.assert_array_equal(found, expected)


def test_a_long_row_through_the_map_is_met_where_it_lies_on_it() -> None:
    # A row of 1e6 samples a pixel apart ends in the middle of the map.
    half = 1e6 / 2 / math.sqrt(2)
    for turn, (cx, cy) in ((-math.pi / 4, (half, half)), (math.pi / 4, (half, -half)), (0.0, (5e5, 0.0))):
        region = region_of([cx + 2.5, cy + 2.5, 1e6, 1.0, turn], (1, 1), (5, 5), 1, 0, 0, 1.0)
        lengths = [abs(complex(s.x - 2, s.y - 2)) for s in region.samples(0, 0)]
        reach = 3 * math.sqrt(2) if turn else 3.0
        np.testing.assert_allclose(lengths, np.arange(0.5, reach, 1.0), atol=1e-6)


@pytest.mark.slow
def test_the_most_samples_of_a_bin_are_all_met() -> None:
    y = forward(one([1.0, 1.0, 1.0, 1.0, 0.5], np.ones((1, 0, 2, 2)), sampling_ratio=MAX_SAMPLING_RATIO))
    assert y.shape == (1, 0, 1, 1)
    region = region_of([2.5, 2.5, 1, 1, 0.5], (1, 1), (5, 5), 1, 0, MAX_SAMPLING_RATIO, 1.0)
    assert listed(region, 0, 0) == MAX_SAMPLING_RATIO**2


# --- data ----------------------------------------------------------------------------------------------------------


def test_nan_reaches_every_output_that_reads_it_and_no_other() -> None:
    x = RAMP.copy()
    x[0, 0, 2, 2] = np.nan
    p = one([2.5, 2.5, 4, 4, math.pi / 4], x, size=(3, 3), sampling_ratio=1)
    read = dense_weights(p, 0)[:, :, 2, 2] > 0
    assert read.any()
    assert not read.all()
    np.testing.assert_array_equal(np.isnan(forward(p)[0, 0]), read)
