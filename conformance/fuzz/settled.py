"""Whether a case has one right answer, or several because the last bit of a coordinate or of a product decides.

A case is settled where every number on the way to a sample is exact in float32, or where moving the coordinates by what
rounding may move them, and for a winner's gradient the candidates, changes no output by more than it is allowed. It is
asked of cases that failed only: it costs some dozens of evaluations.

Where no rule says what comes of infinities and NaN, the case is not settled: of a weight of 0 times one, of NaN among the
candidates of a maximum, and of one in the differences that a RoI's gradient takes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from conformance.bounds import GROWTH
from conformance.bounds.growth import arithmetic, limit, unit
from conformance.case import Array, Case
from conformance.compare import allowed_errors
from conformance.expect import Floats, expected_outputs
from conformance.question import Placed, Question, question_of
from conformance.run import Asker
from ortops.operators.dml_resample import INPUT_PIXEL_OFFSET, OUTPUT_PIXEL_OFFSET
from ortops.reference.sampling import points_inside
from ortops.shapes import output_shapes

GRAIN = 64
"""Exact coordinates and values are whole multiples of 1/GRAIN: products of two weights and a value fit in float32."""

MOST_EXACT = 1024.0
"""Pixels. Exact coordinates are not larger."""

STEPS = (1.0, 8.0)
"""By how many times their rounding coordinates are moved."""

FEW = 4
"""RoIs. Of as many as this all are moved in every direction, of more each in some."""

ROUNDINGS = 16.0
"""Of a winner's candidate, a sum of products of products."""


def is_settled(case: Case, oracle: Asker) -> bool:
    """Whether the case has one right answer.

    Args:
        case: with the values that it expects, or the error.
        oracle: the reference.
    """
    if case.expects_error:
        return True
    if not _fits(case):
        return False
    if case.definition.family == "dml_resample":
        return _is_resample_settled(case)
    question = question_of(case)
    is_maximum, is_gradient = question.sampling.mode != "avg", question.dy is not None
    floats = [a.astype(np.float64) for a in case.inputs.values() if a.dtype.kind not in "iu"]
    are_finite = all(np.isfinite(a).all() for a in floats)
    placed = question.placed()
    if not are_finite and any(_is_unruled(question, r, *lines) for r, lines in enumerate(placed)):
        return False
    is_exact = are_finite and all(_is_exact(line) for lines in placed for line in lines)
    if not is_exact and not _is_steady(case, _moved(question, placed, are_finite), oracle):
        return False
    if not (is_maximum and is_gradient):
        return True
    has_exact_data = all(np.all((a * GRAIN == np.round(a * GRAIN)) & (np.abs(a) <= MOST_EXACT)) for a in floats)
    return (is_exact and has_exact_data) or _is_steady(case, _with_noise(question), oracle)


def in_double(case: Case, changed: Mapping[str, Array] = MappingProxyType({})) -> Case:
    """The case in double, some inputs changed and nothing expected: the reference's answer to it is not rounded."""
    given = {**case.inputs, **changed}
    wide = {name: array if array.dtype.kind in "iu" else array.astype(np.float64) for name, array in given.items()}
    return replace(case, inputs=wide, expected=None, expects_error=None, twin=None)


def _fits(case: Case) -> bool:
    """Whether it is clear of each output that it is beyond its type's range, or that it is not.

    The sums of a gradient must be within the range of the arithmetic; those of a mean need not: it has none that are
    larger than its values unless they are divided too late.
    """
    largest, widest = limit(case.dtype), limit(arithmetic(case))
    growths, allowed = GROWTH[case.definition.function](case), allowed_errors(case)
    for name, y in expected_outputs(case).items():
        size = np.abs(y[np.isfinite(y)])
        error = allowed[name][np.isfinite(y)]
        if np.any((size - error < largest) & (size + error >= largest)):
            return False
        if case.definition.function.endswith("_grad") and np.max(growths[name].magnitude, initial=0.0) >= widest / 2:
            return False
    return True


def _is_unruled(question: Question, r: int, y: Placed, x: Placed) -> bool:
    """Whether RoI `r` meets infinities or NaN in a way of which no rule says what comes of it."""
    (rows, idle_rows), (columns, idle_columns) = _reads(y), _reads(x)
    wants_drois = question.names["drois"] in question.case.outputs
    has_idle = wants_drois or idle_rows.any() or idle_columns.any()
    if has_idle and question.dy is not None and not np.isfinite(question.dy[r]).all():
        return True
    if question.x is None:
        return False
    pixels = question.x[question.indices[r]]
    odd = ~np.isfinite(pixels).all(axis=0) & np.logical_and.outer(rows, columns)
    if question.sampling.mode != "avg" and np.isnan(pixels[:, odd]).any():
        return True
    return bool(np.any(odd if wants_drois else odd & np.logical_or.outer(idle_rows, idle_columns)))


def _reads(line: Placed) -> npt.NDArray[np.bool_]:
    """[2, L]: whether a sample reads a pixel, and whether one does so with the weight 0."""
    reads = np.zeros((2, line.axis.length), bool)
    for p in range(line.axis.bins):
        for point in points_inside(line.axis, p):
            for tap in line.axis.taps(point.coordinate):
                # Beyond the last pixel some read that again.
                pixel = line.axis.length - 1 if tap.pixel is None else tap.pixel
                reads[:, pixel] |= True, tap.weight == 0
    return reads


def _has_exact_size(line: Placed) -> bool:
    """Whether its ends, its size and the number of samples are exact: rounding moves it, but does not stretch it."""
    if line.size == 0:
        return True
    return _is_power_of_2(line.axis.bins) and _is_power_of_2(line.scale) and _are_short(line.first, line.size)


def _is_exact(line: Placed) -> bool:
    """Whether all that leads to its samples is exact."""
    if not (_has_exact_size(line) and line.steps < MOST_EXACT and _is_power_of_2(max(line.steps, 1))):
        return False
    samples = itertools.product(range(line.axis.bins), range(line.axis.per_bin))
    return _are_short(line.first, *line.offsets, *(line.axis.coordinate(p, i) for p, i in samples))


def _are_short(*numbers: float) -> bool:
    """Whether numbers are exact, and few bits long."""
    grains = np.array(numbers) * GRAIN
    return bool(np.all((grains == np.round(grains)) & (np.abs(grains) <= MOST_EXACT * GRAIN)))


def _is_power_of_2(value: float) -> bool:
    return value > 0 and math.frexp(value)[0] == 0.5


def _moved(
    question: Question, placed: list[tuple[Placed, Placed]], are_finite: bool
) -> Iterator[tuple[float, str, Array]]:
    """The RoIs moved and stretched by what rounding may do, and how many times that."""
    by, is_rigid = np.zeros_like(question.rois), np.zeros(question.rois.shape, bool)
    for r, lines in enumerate(placed):
        for line, ends in zip(lines, ([1, 3], [0, 2]), strict=True):
            # The second end moves by the size's error, by which another number of samples may be wanted.
            errors = np.array([10 * line.reach, max(10 * line.reach, 3 * (abs(line.first) + abs(line.last)))])
            moved = unit(arithmetic(question.case)) / line.scale * errors
            if _has_exact_size(line):
                # To a power of two, so that the size stays as it is in float64, too.
                rigid = 2.0 ** math.floor(math.log2(moved[0]))
                moved = np.full(2, 0.0 if are_finite and _is_exact(line) else rigid)
            by[r, ends], is_rigid[r, ends] = moved, _has_exact_size(line)
    for step, signs in itertools.product(STEPS, _directions(len(by))):
        signs[:, 2:] = np.where(is_rigid[:, 2:], signs[:, :2], signs[:, 2:])
        yield step, "rois", question.rois + step * by * signs


def _directions(count: int) -> list[Array]:
    rng = np.random.default_rng(0)
    whole = itertools.product((-1.0, 1.0), repeat=4) if count <= FEW else ()
    return [*(np.tile(signs, (count, 1)) for signs in whole), *(rng.choice([-1.0, 1.0], (count, 4)) for _ in range(4))]


def _with_noise(question: Question) -> Iterator[tuple[float, str, Array]]:
    """Maps whose pixels differ by a few roundings from what they are."""
    assert question.x is not None  # noqa: S101  # a maximum's gradient has it
    rng = np.random.default_rng(0)
    for _ in range(6):
        noise = rng.uniform(-1.0, 1.0, question.x.shape)
        yield 1.0, "x", question.x * (1 + ROUNDINGS * unit(arithmetic(question.case)) * noise)


def _is_steady(case: Case, moved: Iterator[tuple[float, str, Array]], oracle: Asker) -> bool:
    """Whether none of the moved cases differs by more than moving it smoothly does."""
    growths, allowed = GROWTH[case.definition.function](case), allowed_errors(case)
    expected, names = expected_outputs(case), question_of(case).names
    for step, role, array in moved:
        answer = oracle(in_double(case, {names[role]: array.reshape(case.inputs[names[role]].shape)}))
        if answer.outputs is None:
            return False
        for name, y in answer.outputs.items():
            tolerance = allowed[name] + (step - 1) * growths[name].drift
            if not np.all(_is_near(y, expected[name], tolerance)):
                return False
    return True


def _is_near(first: Floats, second: Floats, tolerance: Floats) -> npt.NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):
        is_near = np.abs(first - second) <= tolerance
    return np.asarray(is_near | (first == second) | (np.isnan(first) & np.isnan(second)))


def _is_resample_settled(case: Case) -> bool:
    arguments = case.definition.check_attributes(case.attributes)
    if "x_shape" in case.inputs:
        lengths, outputs = case.inputs["x_shape"].tolist(), case.inputs["InputGradientTensor"].shape
    else:
        lengths = list(case.inputs["InputTensor"].shape)
        (outputs,) = output_shapes(case.definition, {"InputTensor": tuple(lengths)}, {}, arguments)
    rank, rounding = len(lengths), unit(arithmetic(case)) * max(STEPS)
    scales = arguments["scales"] or [many / max(few, 1) for many, few in zip(outputs, lengths, strict=True)]
    before = arguments["input_pixel_offsets"] or [INPUT_PIXEL_OFFSET] * rank
    after = arguments["output_pixel_offsets"] or [OUTPUT_PIXEL_OFFSET] * rank
    is_nearest = arguments["interpolation_mode"] == "nearest_neighbor"
    is_floored = not arguments.get("output_sizes", (0,))
    has_numbers = all(np.isfinite(a.astype(np.float64)).all() for a in case.inputs.values())
    for length, count, scale, i, o in zip(lengths, outputs, scales, before, after, strict=True):
        if is_floored and not _is_power_of_2(scale) and _is_near_whole(np.array([length * scale]), rounding * count):
            return False
        # Where a pixel is infinite or NaN, it matters also whether linear interpolation reads it at all.
        shift = 0.5 if is_nearest and arguments["rounding_direction"] == "half_up" else 0.0
        if (is_nearest or not has_numbers) and not _is_decided(length, count, scale, i, o, shift, rounding):
            return False
    return True


def _is_decided(
    length: int, count: int, scale: float, before: float, after: float, shift: float, rounding: float
) -> bool:
    """Whether the pixel that an output reads does not hinge on a last bit."""
    if not count or scale <= 0 or (_are_short(before, after) and _is_power_of_2(scale)):
        return True
    x = (np.arange(count) - after) / scale - before
    x = x[(x > -1) & (x < length)]
    reach = length + 1.5 + 2 * abs(before) + abs(after) / scale
    return not _is_near_whole(x + shift, 4 * rounding * reach)


def _is_near_whole(numbers: Array, error: float) -> bool:
    return bool(np.any(np.abs(numbers - np.round(numbers)) <= error))
