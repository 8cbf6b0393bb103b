"""The suite's part of RoIAlignRotated: gradients, bounds, what settles a case, random cases, pictures."""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner
from rich.console import Console

from conformance import backends
from conformance.__main__ import main
from conformance.backends.external import OnnxBackend
from conformance.case import Array, Case, Source
from conformance.compare import allowed_errors, compare
from conformance.error_bounds import unit_roundoff
from conformance.error_bounds.rotated import Roundings
from conformance.expected_values import expected_outputs, reference
from conformance.explain import explain, page
from conformance.explain.draw import MOST_CELLS, MOST_SAMPLES
from conformance.explain.tables import write
from conformance.families import roi_align_rotated as family
from conformance.fuzz.corrupt import corrupt
from conformance.fuzz.generate import generate
from conformance.fuzz.well_posed import is_well_posed
from conformance.geometry.rotated import coordinates, geometry_of, samples
from conformance.mutants.roi_align_rotated import Control
from conformance.run import Answer, ask, judge
from conformance.vectors import rotated_field, rotated_matrix
from conformance.vectors.scenes import scatter
from ortops.operators.roi_align_rotated import MAX_SAMPLING_RATIO as MOST_RATIO
from ortops.operators.roi_align_rotated import ROI_ALIGN_ROTATED
from pages import column, parsed, shapes

MATRIX = tuple(rotated_matrix.cases())
CASES = (*MATRIX, *rotated_field.cases())
SOURCE = Source("a test", "1", "none")
NAMES = ("RoIAlignRotated", "RoIAlignRotatedGrad")


def of_type(element_type: str, operator: str) -> list[Case]:
    return [case for case in CASES if case.element_type == element_type and case.operator == operator]


def named(part: str, operator: str = "RoIAlignRotated", element_type: str = "float") -> Case:
    return next(case for case in of_type(element_type, operator) if part in case.id)


def forward(x: Array, *rois: list[float], **attributes: Any) -> Case:
    tensors = {"X": x, "rois": np.array(rois, x.dtype).reshape(-1, 5), "batch_indices": np.zeros(len(rois), np.int64)}
    return Case("test/rotated/x", SOURCE, "RoIAlignRotated", attributes, tensors, ("Y",), "a test")


def map_of(height: int, width: int) -> Array:
    return scatter((1, 1, height, width), seed=3)


def oracle(case: Case) -> Answer:
    return ask(backends.load("reference"), case)


# The gradients that the generated cases expect, confirmed without the reference's gradient.

GRADIENTS = [
    case for case in MATRIX if case.operator == NAMES[1] and case.element_type == "double" and "/huge/" not in case.id
]


def loss_per_roi(case: Case, x: npt.NDArray[Any], rois: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[R]: the sum of dY * Y for each RoI."""
    dy = case.inputs["dY"]
    attributes = {**case.attributes, "output_height": dy.shape[2], "output_width": dy.shape[3]}
    inputs = {"X": x, "rois": rois, "batch_indices": case.inputs["batch_indices"]}
    return np.asarray((dy * reference(ROI_ALIGN_ROTATED, attributes, inputs, ["Y"])["Y"]).sum(axis=(1, 2, 3)))


@pytest.mark.parametrize("case", [pytest.param(c, id=c.id) for c in GRADIENTS if "dX" in c.outputs])
def test_dx_is_the_adjoint(case: Case) -> None:
    x = case.inputs.get("X", scatter(tuple(case.inputs["x_shape"]), seed=7))
    ahead = float(loss_per_roi(case, x, case.inputs["rois"]).sum())
    assert ahead == pytest.approx(float((expected_outputs(case)["dX"] * x).sum()), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("case", [pytest.param(c, id=c.id) for c in GRADIENTS if "drois" in c.outputs])
def test_drois_is_the_derivative(case: Case) -> None:
    x, rois, drois = case.inputs["X"], case.inputs["rois"], expected_outputs(case)["drois"]
    for k in range(5):
        step = np.zeros(5)
        step[k] = 1e-6
        difference = loss_per_roi(case, x, rois + step) - loss_per_roi(case, x, rois - step)
        np.testing.assert_allclose(drois[:, k], difference / 2e-6, rtol=1e-6, atol=1e-7)


# The cases keep away from where the last bit of a coordinate decides.


@pytest.mark.parametrize("scene", rotated_matrix.SCENES, ids=lambda scene: scene.name)
def test_rois_are_exact_in_every_type_that_they_are_asked_in(scene: rotated_matrix.Scene) -> None:
    for variant in scene.variants:
        rois = scene.tensors(*variant)["rois"]
        for dtype in () if scene.types else (np.float16, ml_dtypes.bfloat16):
            np.testing.assert_array_equal(rois.astype(dtype).astype(np.float64), rois)


def test_rounding_moves_no_sample_of_a_case_over_a_border_or_a_pixel() -> None:
    for case in (case for case in MATRIX if case.element_type == "float"):
        geometry = geometry_of(case)
        for roi, region in zip(geometry.rois, geometry.regions(), strict=True):
            delta = 8 * max(Roundings(region, float(roi[4]), unit_roundoff(np.dtype(np.float32))).delta)
            for c, length in zip(coordinates(region), geometry.sampling.lengths, strict=True):
                inside = c[(c > -delta) & (c < length - 1 + delta)]
                far = [np.abs(c + 1), np.abs(c - length), np.abs(inside - np.round(inside))]
                assert min(float(np.min(one, initial=1.0)) for one in far) > delta, case.id


def test_a_scene_whose_samples_cannot_keep_away_is_an_error() -> None:
    scene = replace(rotated_matrix.SCENES[0], rois=((2.0, 2.0, 1.0, 3.0, 0.0, 0),))
    with pytest.raises(ValueError, match=r"angles: no centre near 2\.0, 2\.0"):
        scene.tensors(0, 0)


def test_angles_are_about_the_degrees_that_they_are_named_by() -> None:
    degrees = [math.degrees(angle) for angle in (rotated_matrix.OF_30, rotated_matrix.OF_45, rotated_matrix.OF_90)]
    np.testing.assert_allclose(degrees, [30, 45, 90], atol=0.05)
    np.testing.assert_allclose(math.degrees(rotated_matrix.OF_135), 135, atol=0.2)
    np.testing.assert_allclose(math.degrees(rotated_matrix.OF_180), 180, atol=0.1)


# Bounds: a runtime that computes coordinates in float32 passes, one that is a little off does not.

Turn = Callable[[Any], tuple[Any, Any]]
F = np.float32


class Placed(NamedTuple):
    """The samples of one RoI, all in float32.

    y, x: [k of y, k of x], on the map. v, u: [k of y, 1] and [1, k of x], on the upright region.
    sizes: height and width; are_raised: whether they are the least size. per_bin: samples of a bin, of y and x.
    """

    y: npt.NDArray[Any]
    x: npt.NDArray[Any]
    v: npt.NDArray[Any]
    u: npt.NDArray[Any]
    cos: Any
    sin: Any
    sizes: list[Any]
    are_raised: list[bool]
    per_bin: list[int]


def placed_in_float32(case: Case, r: int, bins: tuple[int, int], turn: Turn, shift: float) -> Placed:
    """In the order of mmcv's loops: from a corner, bin by bin."""
    a, (cx, cy, w, h, angle) = case.attributes, case.inputs["rois"][r]
    scale, ratio, offset = F(a["spatial_scale"]), int(a["sampling_ratio"]), F(0.5 if a["aligned"] else 0.0)
    cos, sin = map(F, turn(-angle if a["clockwise"] else angle))
    are_raised = [not a["aligned"] and size * scale < 1 for size in (h, w)]
    sizes = [F(1) if raised else size * scale for size, raised in zip((h, w), are_raised, strict=True)]
    per_bin = [ratio or max(math.ceil(size / F(count)), 0) for size, count in zip(sizes, bins, strict=True)]
    v, u = (
        np.array(
            [
                -size / F(2) + F(p) * (size / F(count)) + (F(i) + F(0.5)) * (size / F(count)) / F(each)
                for p in range(count)
                for i in range(each)
            ],
            F,
        )
        for size, count, each in zip(sizes, bins, per_bin, strict=True)
    )
    v, u = v[:, None], u[None, :]
    x = u * cos + v * sin + (cx * scale - offset) + F(shift)
    return Placed(v * cos - u * sin + (cy * scale - offset), x, v, u, cos, sin, sizes, are_raised, per_bin)


class Cell(NamedTuple):
    """The pixels around samples, where these are in their cell, whether they are on the map and within cells."""

    top: npt.NDArray[Any]
    left: npt.NDArray[Any]
    bottom: npt.NDArray[Any]
    right: npt.NDArray[Any]
    fy: npt.NDArray[Any]
    fx: npt.NDArray[Any]
    inside: npt.NDArray[Any]
    slopes: tuple[npt.NDArray[Any], npt.NDArray[Any]]


def cell_of(at: Placed, height: int, width: int) -> Cell:
    inside = (at.y >= -1) & (at.y <= height) & (at.x >= -1) & (at.x <= width)
    y, x = np.clip(at.y, 0, height - 1), np.clip(at.x, 0, width - 1)
    top, left = np.floor(y).astype(int), np.floor(x).astype(int)
    slopes = inside & (y == at.y) & (top < height - 1), inside & (x == at.x) & (left < width - 1)
    bottom, right = np.minimum(top + 1, height - 1), np.minimum(left + 1, width - 1)
    return Cell(top, left, bottom, right, y - top.astype(F), x - left.astype(F), inside, slopes)


def forward_in_float32(case: Case, turn: Turn, shift: float) -> dict[str, Array]:
    given, bins = case.inputs, (case.attributes["output_height"], case.attributes["output_width"])
    y = np.zeros((len(given["rois"]), given["X"].shape[1], *bins), F)
    for r, n in enumerate(given["batch_indices"]):
        at, x = placed_in_float32(case, r, bins, turn, shift), given["X"][n]
        cell = cell_of(at, *x.shape[1:])
        above = x[:, cell.top, cell.left] * (1 - cell.fx) + x[:, cell.top, cell.right] * cell.fx
        below = x[:, cell.bottom, cell.left] * (1 - cell.fx) + x[:, cell.bottom, cell.right] * cell.fx
        values = np.where(cell.inside, above * (1 - cell.fy) + below * cell.fy, F(0))
        parts = values.reshape(len(x), bins[0], at.per_bin[0], bins[1], at.per_bin[1])
        y[r] = parts.sum(axis=(2, 4), dtype=F) / F(max(math.prod(at.per_bin), 1))
    return {"Y": y}


def gradient_in_float32(case: Case, turn: Turn, shift: float) -> dict[str, Array]:
    given, scale = case.inputs, F(case.attributes["spatial_scale"])
    shape, bins = tuple(given["x_shape"].tolist()), given["dY"].shape[2:]
    dx, drois, map_ = np.zeros(shape, F), np.zeros((len(given["rois"]), 5), F), given.get("X", np.zeros(shape, F))
    sign = F(-1 if case.attributes["clockwise"] else 1)
    for r, n in enumerate(given["batch_indices"]):
        at, x = placed_in_float32(case, r, bins, turn, shift), map_[n]
        cell, share = cell_of(at, *shape[2:]), given["dY"][r] / F(max(math.prod(at.per_bin), 1))
        dy = np.where(cell.inside, share.repeat(at.per_bin[0], 1).repeat(at.per_bin[1], 2), F(0))
        below, beside = (cell.bottom - cell.top) * cell.fy, (cell.right - cell.left) * cell.fx
        for row, in_y in ((cell.top, 1 - below), (cell.bottom, below)):
            for column_, in_x in ((cell.left, 1 - beside), (cell.right, beside)):
                np.add.at(dx[n].transpose(1, 2, 0), (row, column_), np.moveaxis(dy * (in_y * in_x).astype(F), 0, -1))
        of = {
            (i, j): x[:, i_at, j_at]
            for i, i_at in enumerate((cell.top, cell.bottom))
            for j, j_at in enumerate((cell.left, cell.right))
        }
        by_y = dy * np.where(
            cell.slopes[0], (of[1, 0] - of[0, 0]) * (1 - cell.fx) + (of[1, 1] - of[0, 1]) * cell.fx, F(0)
        )
        by_x = dy * np.where(
            cell.slopes[1], (of[0, 1] - of[0, 0]) * (1 - cell.fy) + (of[1, 1] - of[1, 0]) * cell.fy, F(0)
        )
        b, a = (place / size for place, size in zip((at.v, at.u), at.sizes, strict=True))
        along_w, along_h = by_x * at.cos - by_y * at.sin, by_x * at.sin + by_y * at.cos
        drois[r] = [
            scale * by_x.sum(dtype=F),
            scale * by_y.sum(dtype=F),
            0 if at.are_raised[1] else scale * (along_w * a).sum(dtype=F),
            0 if at.are_raised[0] else scale * (along_h * b).sum(dtype=F),
            sign * (by_x * (at.v * at.cos - at.u * at.sin) - by_y * (at.u * at.cos + at.v * at.sin)).sum(dtype=F),
        ]
    return {"dX": dx, "drois": drois}


def in_float32(case: Case, *, turn: Turn = lambda t: (np.cos(t), np.sin(t)), shift: float = 0.0) -> dict[str, Array]:
    """What a runtime answers that has float32 from the first number to the last."""
    compute = gradient_in_float32 if case.definition.is_gradient else forward_in_float32
    return compute(case, turn, shift)


OF_FLOAT = [case for case in CASES if case.element_type == "float" and "/values/" not in case.id and not case.before]
OF_FLOAT = [
    c for c in OF_FLOAT if "aligned" in c.attributes and min((len(c.inputs["rois"]), *map(np.size, c.inputs.values())))
]


@pytest.mark.parametrize("operator", NAMES)
def test_a_runtime_that_computes_in_float32_passes(operator: str) -> None:
    # Derivatives by a size of 0 need the places of samples without it.
    own = [case for case in OF_FLOAT if case.operator == operator and "/no_extent/" not in case.id]
    assert len(own) > 60
    assert [case.id for case in own if not compare(case, in_float32(case))[0]] == []


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("a centre off by a thousandth of a pixel", {"shift": 1e-3}),
        ("an angle off by a thousandth of a radian", {"turn": lambda t: (np.cos(t + 1e-3), np.sin(t + 1e-3))}),
        ("a table of sines", {"turn": lambda t: (np.cos(np.round(t, 3)), np.sin(np.round(t, 3)))}),
        ("sines in half precision", {"turn": lambda t: (np.float16(np.cos(t)), np.float16(np.sin(t)))}),
    ],
)
@pytest.mark.parametrize("operator", NAMES)
def test_a_runtime_that_is_a_little_off_fails(operator: str, words: str, change: dict[str, Any]) -> None:
    case = named("/angles/aligned/counter", operator)
    assert not compare(case, in_float32(case, **change))[0], words


def test_what_is_allowed_is_small() -> None:
    for case in (case for case in MATRIX if case.element_type == "float"):
        for name, allowed in allowed_errors(case).items():
            size = float(np.abs(expected_outputs(case)[name]).max(initial=0.0)) + 1
            assert float(allowed.max(initial=0.0)) < 2e-3 * size, (case.id, name)


# What settles a case.

EXACT = {"sampling_ratio": 1, "aligned": 0, "output_height": 2, "output_width": 2}


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (forward(map_of(5, 5), [0.0, 2.0, 2.0, 2.0, 0.0], **EXACT), True),
        (forward(map_of(5, 5), [-0.5, 2.0, 1.0, 1.0, 0.0], **{**EXACT, "output_width": 1}), True),
        (forward(map_of(5, 5), [2.25, 2.25, 2.0, 2.0, 0.5], **EXACT), True),
        # A sample at -1, or turned about a point on the border: rounding decides whether it is inside.
        (forward(map_of(5, 5), [-1.0, 2.25, 0.0, 2.0, 0.5], **{**EXACT, "aligned": 1, "spatial_scale": 0.7}), True),
        (forward(map_of(5, 5), [-1.0, 2.25, 1.0, 1.0, 0.5], **{**EXACT, "output_height": 1, "output_width": 1}), False),
        # A bin of a whole number of pixels, where the scale is no power of two: two samples of it, or three.
        (
            forward(
                map_of(7, 7).astype(np.float32),
                [20.0, 20.0, 40.0, 40.0, 0.5],
                **{**EXACT, "sampling_ratio": 0, "spatial_scale": 0.1},
            ),
            False,
        ),
        (forward(map_of(7, 7), [3.25, 3.0, 4.0, 4.0, 0.5], **{**EXACT, "sampling_ratio": 0}), True),
    ],
)
def test_a_case_is_well_posed_unless_rounding_decides(case: Case, expected: bool) -> None:
    assert is_well_posed(case, oracle) is expected


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_weight_of_0_times_no_number_settles_nothing(value: float) -> None:
    x = map_of(5, 5)
    x[0, 0, 2, 3] = value
    on_a_pixel = [2.0, 2.0, 1.0, 1.0, 0.0]
    assert not is_well_posed(forward(x, on_a_pixel, sampling_ratio=1, aligned=0), oracle)
    assert is_well_posed(forward(x, [1.25, 1.25, 1.0, 1.0, 0.5], sampling_ratio=1, aligned=0), oracle)


# Random cases.


@functools.cache
def random_cases() -> tuple[Case, ...]:
    return tuple(generate(7, number, NAMES) for number in range(300))


def test_random_cases_are_of_every_kind() -> None:
    right = [case for case in random_cases() if case.twin is None]
    angles = np.concatenate([case.inputs["rois"][:, 4].astype(np.float64) for case in right])
    assert {case.operator for case in right} == set(NAMES)
    assert 0 < np.mean(angles == 0) < 1
    assert np.any(np.abs(angles) > 2 * math.pi)
    assert np.any((np.abs(angles) > 0.2) & (np.abs(angles) < 1.4))
    for name in ("aligned", "clockwise"):
        assert {case.attributes[name] for case in right if name in case.attributes} == {0, 1}
    assert {len(case.outputs) for case in right if case.operator == NAMES[1]} == {1, 2}
    assert any(float(np.abs(case.inputs["rois"].astype(np.float64)).max(initial=0.0)) > 1e4 for case in right)


def test_random_cases_that_are_right_are_answered() -> None:
    for case in random_cases()[::3]:
        if case.twin is None:
            assert oracle(case).outputs is not None, case.id


def test_random_cases_that_are_well_posed_are_answered_alike_by_a_second_implementation() -> None:
    right = [case for case in random_cases()[:24] if case.twin is None]
    failed = [case for case in right if judge(case, ask(OnnxBackend(Control), case)).outcome.is_bad]
    assert [case.id for case in failed if is_well_posed(case, oracle)] == []
    assert len(failed) < len(right) / 10


def test_the_work_of_a_case_is_about_its_samples_on_the_map() -> None:
    small = forward(map_of(9, 9), [4.5, 4.5, 8.0, 8.0, 0.5], sampling_ratio=2, output_height=3, output_width=3)
    huge = forward(map_of(9, 9), [4.5, 4.5, 1e9, 1e9, 0.5])
    assert samples(small) == 36
    assert samples(huge) == 1e18
    assert 36 * 3 <= family.work(small) < 36 * 3 + 20
    assert 81 <= family.work(huge) < 2000


def test_a_random_change_may_be_to_the_numbers_of_a_roi() -> None:
    case, rng = named("/angles/"), np.random.default_rng(0)
    changed = [corrupt(case, rng).inputs.get("rois") for _ in range(300)]
    odd = [rois for rois in changed if rois is not None and rois.shape == (9, 5) and not np.isfinite(rois).all()]
    assert odd
    assert any(not np.isfinite(rois[:, 4]).all() for rois in odd)


def test_the_largest_sampling_ratio_is_a_right_one() -> None:
    case = forward(map_of(3, 3), [1.25, 1.25, 1e-3, 1e-3, 0.5], sampling_ratio=MOST_RATIO)
    assert samples(case) == MOST_RATIO**2


# Pictures.


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.id) for case in {case.family: case for case in reversed(CASES)}.values()]
)
def test_a_case_has_a_page_and_its_own_reading_gives_what_is_expected(case: Case) -> None:
    answer = oracle(case)
    explanation = explain(case, answer=answer, result=judge(case, answer), backend="reference")
    parsed(page.render(explanation))
    write(explanation, Console(file=io.StringIO()))
    if explanation.values is not None:
        assert column(explanation, explanation.conventions[0].convention.short) == column(explanation, "expected")


def test_readings_are_mixed_up_one_thing_at_a_time() -> None:
    explanation = explain(named("/angles/aligned/counter"), roi=2)
    names = [shown.convention.name for shown in explanation.conventions]
    assert names == ["aligned 1, clockwise 0", "aligned 0, clockwise 0", "aligned 1, clockwise 1", "angle in degrees"]
    assert [shown.convention.is_own for shown in explanation.conventions] == [True, False, False, False]
    (table,) = explanation.coordinates
    own, not_aligned, clockwise, degrees = (
        np.array([[float(one) for one in row.cells[k].split(", ")] for row in table.rows]) for k in (2, 3, 4, 5)
    )
    np.testing.assert_allclose(not_aligned - own, 0.5, atol=1e-4)
    # The middle stays where it is, and a sample on one side of it as far away.
    middle = own.mean(axis=0)
    np.testing.assert_allclose(clockwise.mean(axis=0), middle, atol=1e-4)
    np.testing.assert_allclose(np.hypot(*(clockwise - middle).T), np.hypot(*(own - middle).T), atol=1e-4)
    assert np.ptp(degrees[:, 1]) < np.ptp(own[:, 1])
    assert "29.9908 degrees" in explanation.roi


def test_a_quarter_turn_shows_in_the_picture() -> None:
    case = forward(map_of(6, 6), [3.0, 2.0, 3.0, 1.0, math.pi / 2], output_width=3, sampling_ratio=1, aligned=0)
    dots = shapes(explain(case).conventions[0].drawing, "dot")
    xs, ys = ([float(each.at[name]) for each in dots] for name in ("cx", "cy"))
    assert np.ptp(xs) < 0.1
    assert ys[0] > ys[1] > ys[2], "the first bin is below where positive angles turn counter-clockwise"
    cell = float(shapes(explain(case).conventions[0].drawing, "cell")[0].at["width"])
    np.testing.assert_allclose(np.diff(ys), -cell, atol=0.1)


def test_the_lines_of_a_region_are_turned_with_it() -> None:
    case = forward(
        map_of(8, 8), [3.5, 3.5, 4.0, 2.0, math.pi / 6], output_height=2, output_width=3, aligned=0, sampling_ratio=1
    )
    picture = explain(case).conventions[0].drawing
    sides, inner = shapes(picture, "roi"), shapes(picture, "bin")
    assert (len(sides), len(inner)) == (4, 3)
    cell = float(shapes(picture, "cell")[0].at["width"])

    def ends(at: Any) -> npt.NDArray[Any]:
        return np.array([[float(at[f"x{k}"]), float(at[f"y{k}"])] for k in (1, 2)]) / cell

    lengths = [float(np.hypot(*np.diff(ends(side.at), axis=0)[0])) for side in sides]
    np.testing.assert_allclose(sorted(lengths), [2, 2, 4, 4], atol=0.01)
    along = np.diff(ends(sides[0].at), axis=0)[0]
    assert math.degrees(math.atan2(-along[1], along[0])) == pytest.approx(30, abs=0.2)


def test_a_sample_names_its_pixels_and_weights() -> None:
    x = np.arange(16, dtype=np.float64).reshape(1, 1, 4, 4)
    (dot,) = shapes(explain(forward(x, [1.75, 2.0, 1.0, 1.0, 1.25], sampling_ratio=1)).conventions[0].drawing, "dot")
    reads = "reads [1, 1] x 0.375, [1, 2] x 0.125, [2, 1] x 0.375, [2, 2] x 0.125; value 7.25"
    assert dot.title == f"bin (0, 0) sample (0, 0) at y 1.5, x 1.25; {reads}"


def test_no_number_is_written_under_a_sample() -> None:
    picture = explain(named("/angles/aligned/counter"), roi=2).conventions[0].drawing
    dots, texts = shapes(picture, "dot"), shapes(picture, "value")
    assert len(texts) > 40
    for text in texts:
        apart = [
            (abs(float(d.at["cx"]) - float(text.at["x"])), abs(float(d.at["cy"]) - float(text.at["y"]))) for d in dots
        ]
        assert not [one for one in apart if one[0] < 15 and one[1] < 8]


def test_derivatives_are_by_the_five_numbers_of_a_roi() -> None:
    case = next(c for c in of_type("double", NAMES[1]) if c.outputs == ("dX", "drois") and "/matrix/" in c.id)
    explanation = explain(case)
    assert column(explanation, "by") == ["cx", "cy", "w", "h", "angle"]
    assert [part.title.split("[")[0] for part in explanation.outputs] == ["dX", "drois"]
    own, clockwise = (column(explanation, f"aligned 1, clockwise {k}") for k in (0, 1))
    assert own != clockwise


def test_the_worst_element_is_marked_and_its_roi_shown() -> None:
    case = named("/angles/aligned/counter")
    answer = oracle(case)
    assert answer.outputs is not None
    answer.outputs["Y"][5, 1, 1, 2] += 1
    explanation = explain(case, answer=answer, result=judge(case, answer), backend="wrong")
    assert explanation.roi.startswith("RoI 5 of 9")
    assert explanation.values is not None
    assert [row.cells[0] for row in explanation.values.rows if row.marked] == ["(1, 2)"]
    picture = explanation.conventions[0].drawing
    assert sum("marked" in dot.at["class"] for dot in shapes(picture, "dot")) == 4
    assert len(shapes(picture, "worst")) == 4


def test_a_wrong_pixel_of_dx_shows_a_roi_of_its_image() -> None:
    case = next(c for c in MATRIX if "images_and_channels" in c.id and c.operator == NAMES[1] and "dX" in c.outputs)
    answer = oracle(case)
    assert answer.outputs is not None
    answer.outputs["dX"][2, 1, 3, 3] += 1
    explanation = explain(case, answer=answer, result=judge(case, answer), backend="wrong")
    assert "image 2, channel 1" in explanation.roi


@pytest.mark.parametrize(
    ("length", "roi", "ratio"),
    [
        (300, [150.0, 140.0, 280.0, 270.0, 0.7], 12),
        (60, [0.0, 0.0, 2e9, 2e9, 0.7], 0),
        (60, [1e15, 0.0, 1e16, 50.0, 0.1], 0),
        (60, [1e300, 0.0, 1e300, 1e300, 3.0], 2),
    ],
)
def test_huge_regions_and_maps_stay_small(length: int, roi: list[float], ratio: int) -> None:
    case = forward(map_of(length, length), roi, output_height=6, output_width=6, sampling_ratio=ratio)
    explanation = explain(case)
    for shown in explanation.conventions:
        assert len(shapes(shown.drawing, "cell")) <= MOST_CELLS**2
        assert len(shapes(shown.drawing, "dot")) <= MOST_SAMPLES
        assert "left out" in shown.drawing.left_out
    html = page.render(explanation)
    assert len(html) < 1_500_000
    parsed(html)


@pytest.mark.parametrize("roi", [-1, 2])
def test_a_roi_that_is_not_there_is_an_error(roi: int) -> None:
    case = forward(map_of(4, 4), [1.0, 1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0, 0.0])
    with pytest.raises(ValueError, match=f"RoI {roi}: the case has 2"):
        explain(case, roi)


def test_a_case_without_rois_has_nothing_to_draw() -> None:
    explanation = explain(named("/empty/no_rois"))
    assert explanation.conventions == ()
    assert explanation.notes == ("The case has no RoIs to draw.",)


# Commands.


def test_the_command_explains_runs_and_exports(tmp_path: Path) -> None:
    case, file = "roi_align_rotated/matrix/angles/aligned/counter_clockwise/float", tmp_path / "case.html"
    explained = CliRunner().invoke(main, ["explain", case, "--roi", "2", "--out", str(file)])
    assert explained.exit_code == 0
    assert "aligned 1, clockwise 0: half a pixel is subtracted from the centre" in explained.output
    assert parsed(file.read_text("utf-8")).counts["svg"] == 5
    wrong = "conformance.mutants.roi_align_rotated:ClockwiseIgnored"
    some = ["--select", "roi_align_rotated/matrix/angles/*/float"]
    run = CliRunner().invoke(main, ["--backend", wrong, *some])
    assert run.exit_code == 1
    assert "2 passed, 2 failed" in run.output
    exported = CliRunner().invoke(main, ["export", str(tmp_path / "data"), "--dialect", "ortops", *some])
    assert exported.exit_code == 0
    assert len(list((tmp_path / "data" / "ortops").iterdir())) == 4
