"""Whether a case with rotated RoIs has one right answer.

It has one where every number on the way to a sample is exact in float32, which no region is that is turned. It also has
one where no output changes by more than it is allowed when the RoIs move by what rounding may move them.

Where no rule says what comes of infinities and NaN, it has none: of a weight of 0 times one, and of one in the differences
that a RoI's gradient takes.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from conformance.case import Case
from conformance.fuzz.steady import MOST_EXACT, STEPS, Moves, are_short, is_power_of_2, is_steady
from conformance.growth import arithmetic, unit
from conformance.rois.settled import FEW
from conformance.rotated.growth import Roundings
from conformance.rotated.question import Question, coordinates, question_of, samples_of
from conformance.run import AnswerFunction
from ortops.reference.roi_align_rotated import Region, Side


def is_settled(case: Case, oracle: AnswerFunction) -> bool:
    """As `conformance.families.Family` has it."""
    question = question_of(case)
    regions = question.regions()
    are_finite = all(np.isfinite(a.astype(np.float64)).all() for a in case.inputs.values())
    if not are_finite and any(_is_unruled(question, r, region) for r, region in enumerate(regions)):
        return False
    are_exact = [_is_exact(region, angle) for region, angle in zip(regions, question.rois[:, 4], strict=True)]
    if are_finite and all(are_exact):
        return True
    return is_steady(case, "rois", _moved(question, regions, are_exact, are_finite), oracle)


def _is_unruled(question: Question, r: int, region: Region) -> bool:
    """Whether RoI `r` meets infinities or NaN in a way of which no rule says what comes of it."""
    samples = samples_of(region)
    # Beyond the last pixel some read that again.
    beyond = (samples.taps < 0).any(axis=1, keepdims=True)
    idle = (samples.taps >= 0) & ((samples.weights == 0) | beyond)
    wants_drois = "drois" in question.case.outputs
    if question.dy is not None and not np.isfinite(question.dy[r]).all() and (wants_drois or idle.any()):
        return True
    if question.x is None:
        return False
    odd = np.append(~np.isfinite(question.x[question.indices[r]]).all(axis=0), False)
    return bool(np.any(odd[samples.taps] & (idle | wants_drois)))


def _has_exact_size(side: Side, scale: float) -> bool:
    """Whether its size and the number of samples are exact."""
    are_powers = is_power_of_2(side.bins) and is_power_of_2(scale)
    return side.size == 0 or (are_powers and are_short([side.size]))


def _is_exact(region: Region, angle: float) -> bool:
    """Whether all that leads to its samples is exact."""
    if angle != 0:
        return False
    for side in (region.height, region.width):
        is_few = side.samples < MOST_EXACT and is_power_of_2(max(side.samples, 1))
        if not (is_few and _has_exact_size(side, region.scale)):
            return False
    shift = [region.center_x, region.center_y]
    return are_short(shift) and all(are_short(c) for c in coordinates(region))


def _moved(question: Question, regions: list[Region], are_exact: list[bool], are_finite: bool) -> Moves:
    """The RoIs moved, stretched and turned by what rounding may do."""
    by = np.zeros_like(question.rois)
    for r, (region, is_exact) in enumerate(zip(regions, are_exact, strict=True)):
        if is_exact and are_finite:
            continue
        error = Roundings(region, float(question.rois[r, 4]), unit(arithmetic(question.case)))
        sides = zip(error.stretch, (region.width, region.height), strict=True)
        stretch = [0.0 if _has_exact_size(side, region.scale) else most for most, side in sides]
        # To a power of two, so that what is exact in float64 stays so.
        shift = [2.0 ** math.floor(math.log2(one)) for one in error.shift]
        by[r] = [*(np.array([*shift, *stretch]) / region.scale), error.turn]
    rng, shape = np.random.default_rng(0), question.rois.shape
    whole = itertools.product((-1.0, 1.0), repeat=5) if len(by) <= FEW else ()
    directions = [
        *(np.tile(signs, (len(by), 1)) for signs in whole),
        *(rng.choice([-1.0, 1.0], shape) for _ in range(4)),
    ]
    for step, signs in itertools.product(STEPS, directions):
        yield step, question.rois + step * by * signs
