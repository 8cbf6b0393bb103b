"""Whether a case has one right answer, or several because the last bit of a coordinate or of a product decides.

A case is settled where every number on the way to a sample is exact in float32, or where moving the coordinates by what
rounding may move them, and for a winner's gradient the candidates, changes no output by more than it is allowed. It is
asked of cases that failed only: it costs some dozens of evaluations.

Where no rule says what comes of infinities and NaN, the case is not settled: of a weight of 0 times one, of NaN among the
candidates of a maximum whose gradient is asked for, and of one in the differences that a RoI's gradient takes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from conformance.bounds import GROWTH, dml_resample
from conformance.bounds.growth import arithmetic, limit, unit
from conformance.case import Array, Case
from conformance.compare import allowed_errors
from conformance.expect import expected_outputs
from conformance.question import Placed, Question, question_of
from conformance.run import Asker
from ortops.reference.sampling import points_inside

GRAIN = 64  # times exact coordinates and values are whole: products of two weights and a value fit in float32
MOST_EXACT = 1024.0  # exact coordinates and values are not larger; in pixels where they are coordinates
STEPS = (1.0, 8.0)  # the factors of their rounding by which coordinates are moved
FEW = 4  # with so many RoIs or fewer, all are moved in every direction, with more each in some
ROUNDINGS = 16.0  # the roundings of a maximum's candidate, which is a sum of products of products

Moves = Iterator[tuple[float, Array]]
"""An input moved by what rounding may do, and how many times that."""


def is_settled(case: Case, oracle: Asker) -> bool:
    """Whether a case with the values that it expects, or the error, has one right answer; the oracle is the reference."""
    if case.expects_error:
        return True
    if not _fits(case):
        return False
    if case.definition.family == "dml_resample":
        return _is_resample_settled(case)
    question = question_of(case)
    floats = [a.astype(np.float64) for a in case.inputs.values() if a.dtype.kind not in "iu"]
    are_finite = all(np.isfinite(a).all() for a in floats)
    placed = question.placed()
    if not are_finite and any(_is_unruled(question, r, *lines) for r, lines in enumerate(placed)):
        return False
    is_exact = are_finite and all(_is_exact(line) for lines in placed for line in lines)
    if not is_exact and not _is_steady(question, "rois", _moved(question, placed, are_finite), oracle):
        return False
    if question.sampling.mode == "avg" or question.dy is None or (is_exact and all(_are_short(a) for a in floats)):
        return True
    assert question.x is not None  # noqa: S101  # a maximum's gradient has it
    rng, error = np.random.default_rng(0), ROUNDINGS * unit(arithmetic(case))
    noise = (rng.uniform(-1.0, 1.0, question.x.shape) for _ in range(6))
    return _is_steady(question, "x", ((1.0, question.x * (1 + error * one)) for one in noise), oracle)


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
    growths, allowed = GROWTH[case.definition.family](case), allowed_errors(case)
    for name, y in expected_outputs(case).items():
        size, error = np.abs(y[np.isfinite(y)]), allowed[name][np.isfinite(y)]
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
    if question.dy is not None and question.sampling.mode != "avg" and np.isnan(pixels[:, odd]).any():
        return True  # a maximum is NaN where a candidate is; which of several has won decides about its gradient alone
    return bool(np.any(odd if wants_drois else odd & np.logical_or.outer(idle_rows, idle_columns)))


def _reads(line: Placed) -> Array:
    """[2, L]: whether a sample reads a pixel, and whether one does so with the weight 0."""
    reads = np.zeros((2, line.axis.length), bool)
    for p in range(line.axis.bins):
        for point in points_inside(line.axis, p):
            for tap in line.axis.taps(point.coordinate):
                # Beyond the last pixel some read that again.
                reads[:, -1 if tap.pixel is None else tap.pixel] |= True, tap.weight == 0
    return reads


def _has_exact_size(line: Placed) -> bool:
    """Whether its ends, its size and the number of samples are exact: rounding moves it, but does not stretch it."""
    are_powers = _is_power_of_2(line.axis.bins) and _is_power_of_2(line.scale)
    return line.size == 0 or (are_powers and _are_short([line.first, line.size]))


def _is_exact(line: Placed) -> bool:
    """Whether all that leads to its samples is exact."""
    if not (_has_exact_size(line) and line.steps < MOST_EXACT and _is_power_of_2(max(line.steps, 1))):
        return False
    samples = itertools.product(range(line.axis.bins), range(line.axis.per_bin))
    return _are_short([line.first, *line.offsets, *(line.axis.coordinate(p, i) for p, i in samples)])


def _are_short(numbers: list[float] | Array) -> bool:
    """Whether numbers are exact, and few bits long."""
    grains = np.asarray(numbers) * GRAIN
    return bool(np.all((grains == np.round(grains)) & (np.abs(grains) <= MOST_EXACT * GRAIN)))


def _is_power_of_2(value: float) -> bool:
    return value > 0 and math.frexp(value)[0] == 0.5


def _moved(question: Question, placed: list[tuple[Placed, Placed]], are_finite: bool) -> Moves:
    """The RoIs moved and stretched by what rounding may do."""
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
    rng, shape = np.random.default_rng(0), question.rois.shape
    whole = itertools.product((-1.0, 1.0), repeat=4) if len(by) <= FEW else ()
    directions = [
        *(np.tile(signs, (len(by), 1)) for signs in whole),
        *(rng.choice([-1.0, 1.0], shape) for _ in range(4)),
    ]
    for step, signs in itertools.product(STEPS, directions):
        signs[:, 2:] = np.where(is_rigid[:, 2:], signs[:, :2], signs[:, 2:])
        yield step, question.rois + step * by * signs


def _is_steady(question: Question, role: str, moves: Moves, oracle: Asker) -> bool:
    """Whether none of the moved cases differs by more than moving it smoothly does."""
    case, name = question.case, question.names[role]
    growths, allowed, expected = GROWTH[case.definition.family](case), allowed_errors(case), expected_outputs(case)
    for step, array in moves:
        answer = oracle(in_double(case, {name: array.reshape(case.inputs[name].shape)}))
        if answer.outputs is None:
            return False
        for output, y in answer.outputs.items():
            wanted, tolerance = expected[output], allowed[output] + (step - 1) * growths[output].drift
            with np.errstate(invalid="ignore"):
                is_near = np.abs(y - wanted) <= tolerance
            if not np.all(is_near | (y == wanted) | (np.isnan(y) & np.isnan(wanted))):
                return False
    return True


def _is_resample_settled(case: Case) -> bool:
    """Whether no number of outputs and no pixel that an output reads hinges on a last bit."""
    arguments = case.definition.check_attributes(case.attributes)
    rounding = unit(arithmetic(case)) * max(STEPS)
    is_nearest = arguments["interpolation_mode"] == "nearest_neighbor"
    is_floored = not arguments.get("output_sizes", (0,))
    has_numbers = all(np.isfinite(a.astype(np.float64)).all() for a in case.inputs.values())
    shift = 0.5 if is_nearest and arguments["rounding_direction"] == "half_up" else 0.0
    for axis in dml_resample.axes_of(case):
        is_exact = _is_power_of_2(axis.scale)
        size = np.array([axis.length * axis.scale])
        if is_floored and not is_exact and _is_near_whole(size, rounding * axis.outputs):
            return False
        # Where a pixel is infinite or NaN, it matters also whether linear interpolation reads it at all.
        if (has_numbers and not is_nearest) or (is_exact and _are_short([axis.before, axis.after])):
            continue
        if axis.outputs:
            x = axis.coordinates
            x = x[(x > -1) & (x < axis.length)]
            reach = axis.length + 1.5 + 2 * abs(axis.before) + abs(axis.after) / axis.scale
            if _is_near_whole(x + shift, 4 * rounding * reach):
                return False
    return True


def _is_near_whole(numbers: Array, error: float) -> bool:
    return bool(np.any(np.abs(numbers - np.round(numbers)) <= error))
