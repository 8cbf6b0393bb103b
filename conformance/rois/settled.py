"""Whether a case with sampled RoIs has one right answer.

It has one where every number on the way to a sample is exact in float32. It also has one where no output changes by more
than it is allowed when the coordinates move by what rounding may move them, and for a winner's gradient the candidates.

Where no rule says what comes of infinities and NaN, it has none: of a weight of 0 times one, of NaN among the candidates
of a maximum whose gradient is asked for, and of one in the differences that a RoI's gradient takes.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from conformance.case import Array, Case
from conformance.fuzz.steady import MOST_EXACT, STEPS, Moves, are_short, is_power_of_2, is_steady
from conformance.growth import arithmetic, unit
from conformance.rois.question import Placed, Question, question_of
from conformance.run import AnswerFunction
from ortops.reference.sampling import points_inside

FEW = 4
"""With so many RoIs or fewer, all are moved in every direction, with more each in some."""

ROUNDINGS = 16.0
"""Of a maximum's candidate, which is a sum of products of products."""


def is_settled(case: Case, oracle: AnswerFunction) -> bool:
    """As `conformance.families.Family` has it."""
    question = question_of(case)
    floats = [a.astype(np.float64) for a in case.inputs.values() if a.dtype.kind not in "iu"]
    are_finite = all(np.isfinite(a).all() for a in floats)
    placed = question.placed()
    if not are_finite and any(_is_unruled(question, r, *lines) for r, lines in enumerate(placed)):
        return False
    is_exact = are_finite and all(_is_exact(line) for lines in placed for line in lines)
    if not is_exact and not is_steady(case, question.names["rois"], _moved(question, placed, are_finite), oracle):
        return False
    if question.sampling.mode == "avg" or question.dy is None or (is_exact and all(are_short(a) for a in floats)):
        return True
    assert question.x is not None  # noqa: S101  # a maximum's gradient has it
    rng, error = np.random.default_rng(0), ROUNDINGS * unit(arithmetic(case))
    noise = (rng.uniform(-1.0, 1.0, question.x.shape) for _ in range(6))
    return is_steady(case, question.names["x"], ((1.0, question.x * (1 + error * one)) for one in noise), oracle)


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
    are_powers = is_power_of_2(line.axis.bins) and is_power_of_2(line.scale)
    return line.size == 0 or (are_powers and are_short([line.first, line.size]))


def _is_exact(line: Placed) -> bool:
    """Whether all that leads to its samples is exact."""
    if not (_has_exact_size(line) and line.steps < MOST_EXACT and is_power_of_2(max(line.steps, 1))):
        return False
    samples = itertools.product(range(line.axis.bins), range(line.axis.per_bin))
    return are_short([line.first, *line.offsets, *(line.axis.coordinate(p, i) for p, i in samples)])


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
