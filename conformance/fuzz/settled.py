"""Whether a case has one right answer, or several because the last bit of a coordinate or of a product decides.

A case is settled where every number on the way to a sample is exact in float32, or where moving the coordinates by what
rounding may move them, and for a winner's gradient the candidates, changes no output by more than it is allowed. It is
asked of cases that failed only: it costs some dozens of evaluations.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conformance.bounds import GROWTH
from conformance.bounds.growth import arithmetic, unit
from conformance.case import Array, Case
from conformance.compare import allowed_errors
from conformance.expect import Floats, expected_outputs, reference
from ortops.operators.dml_resample import INPUT_PIXEL_OFFSET, OUTPUT_PIXEL_OFFSET
from ortops.shapes import output_shapes
from ortops.spec import AttributeValue

GRAIN = 64
"""Exact coordinates and values are whole multiples of 1/GRAIN: products of two weights and a value fit in float32."""

MOST_EXACT = 1024.0
"""Pixels. Exact coordinates are not larger."""

STEPS = (1.0, 8.0)
"""By how many times their rounding coordinates are moved."""

ROUNDINGS = 16.0
"""Of a winner's candidate, a sum of products of products."""

Attributes = dict[str, AttributeValue]


def is_settled(case: Case) -> bool:
    """Whether the case has one right answer."""
    if case.expects_error:
        return True
    if not _fits(case):
        return False
    if case.definition.family == "dml_resample":
        return _is_resample_settled(case)
    lines = list(_lines(case))
    is_exact = all(line.is_exact for line in lines)
    if not is_exact and not _is_steady(case, _moved(case, lines)):
        return False
    return not _has_winners(case) or (is_exact and _has_exact_data(case)) or _is_steady(case, _with_noise(case))


def _fits(case: Case) -> bool:
    """Whether no output overflows its type, nor comes near."""
    largest = float(np.finfo(np.float16 if case.dtype == np.float16 else np.float32).max) / 4
    return all(np.max(np.abs(y[np.isfinite(y)]), initial=0.0) < largest for y in expected_outputs(case).values())


def _has_exact_data(case: Case) -> bool:
    floats = [a.astype(np.float64) for a in case.inputs.values() if a.dtype.kind not in "iu"]
    return all(np.all((a * GRAIN == np.round(a * GRAIN)) & (np.abs(a) <= MOST_EXACT)) for a in floats)


def _has_winners(case: Case) -> bool:
    """Whether a gradient goes where a maximum was."""
    arguments = case.definition.check_attributes(case.attributes)
    is_average = arguments.get("mode") == "avg" or arguments.get("reduction_function") == "average"
    return case.definition.function.endswith("_grad") and not is_average


@dataclass(frozen=True, slots=True)
class _Line:
    """The samples of one RoI along one axis.

    roi, axis: its number, and 0 for x and 1 for y.
    first, size: where it begins, and its size, in pixels; shift is what is subtracted from its coordinates.
    bins, per_bin: outputs, and samples of each; steps are those that divide the size, offset the first in steps.
    """

    roi: int
    axis: int
    first: float
    size: float
    shift: float
    bins: int
    per_bin: float
    steps: float
    offset: float
    length: int
    scale: float

    @property
    def roundings(self) -> tuple[float, float]:
        """Of its two ends, before the unit of the arithmetic: a coordinate on the map errs by no more than between them.

        That of the second is the size's, by which another number of samples may be wanted.
        """
        reach = abs(self.first) + self.length + 1.5 + abs(self.shift)
        ends = abs(self.first) + abs(self.first + self.size)
        return 10 * reach, max(10 * reach, 3 * ends)

    @property
    def has_exact_size(self) -> bool:
        """Whether its ends, its size and the number of samples are exact: rounding moves it, but does not stretch it."""
        if self.size == 0:
            return True
        return _is_power_of_2(self.bins) and _is_power_of_2(self.scale) and _are_short(self.first, self.size)

    @property
    def is_exact(self) -> bool:
        """Whether all that leads to its samples is exact."""
        if not (self.has_exact_size and 0 <= self.steps < MOST_EXACT and _is_power_of_2(max(self.steps, 1))):
            return False
        samples = self.size * (np.arange(self.bins * self.per_bin) + self.offset) / max(self.steps, 1)
        return _are_short(self.first, self.shift, *(self.first + samples - self.shift))


def _are_short(*numbers: float) -> bool:
    """Whether numbers are exact, and few bits long."""
    grains = np.array(numbers) * GRAIN
    return bool(np.all((grains == np.round(grains)) & (np.abs(grains) <= MOST_EXACT * GRAIN)))


def _is_power_of_2(value: float) -> bool:
    return value > 0 and math.frexp(value)[0] == 0.5


def _lines(case: Case) -> Iterator[_Line]:
    arguments = case.definition.check_attributes(case.attributes)
    bins, lengths = _sizes(case, arguments)
    rois = case.inputs[_rois_name(case)].astype(np.float64).reshape(-1, 4)
    make = _dml_line if case.definition.family == "dml_roi_align" else _onnx_line
    for r, roi in enumerate(rois.tolist()):
        for axis in (0, 1):
            yield make(arguments, r, axis, roi[axis], roi[axis + 2], bins[1 - axis], lengths[1 - axis])


def _onnx_line(arguments: Attributes, roi: int, axis: int, r1: float, r2: float, bins: int, length: int) -> _Line:
    scale, ratio = arguments["spatial_scale"], arguments["sampling_ratio"]
    is_half = arguments["coordinate_transformation_mode"] == "half_pixel"
    size = (r2 - r1) * scale if is_half else max((r2 - r1) * scale, 1.0)
    per_bin = float(ratio or max(math.ceil(size / bins), 0))
    return _Line(
        roi,
        axis,
        r1 * scale,
        size,
        0.5 if is_half else 0.0,
        bins,
        per_bin,
        bins * per_bin,
        0.5,
        length,
        scale,
    )


def _dml_line(arguments: Attributes, roi: int, axis: int, r1: float, r2: float, bins: int, length: int) -> _Line:
    scale = arguments["spatial_scale_y" if axis else "spatial_scale_x"]
    least, most = arguments["minimum_samples_per_output"], arguments["maximum_samples_per_output"]
    wanted = (r2 - r1) * scale / bins
    per_bin = float(min(max(math.ceil(wanted), least), most))
    steps = bins * per_bin - (1 if arguments["align_regions_to_corners"] else 0)
    offset = -arguments["output_pixel_offset"] if steps else 0.5
    shift = arguments["input_pixel_offset"]
    size = (r2 - r1) * scale
    return _Line(roi, axis, r1 * scale, size, shift, bins, per_bin, steps, offset, length, scale)


def _sizes(case: Case, arguments: Attributes) -> tuple[tuple[int, int], tuple[int, int]]:
    """Height and width of the output, and those of the map."""
    gradient = case.inputs.get("dY", case.inputs.get("InputGradientTensor"))
    if gradient is None:
        x = case.inputs.get("X", case.inputs.get("InputTensor"))
        lengths = (1, 1) if x is None else x.shape[2:]
        return (arguments["output_height"], arguments["output_width"]), (lengths[0], lengths[1])
    _, _, height, width = case.inputs["x_shape"].tolist()
    return (gradient.shape[2], gradient.shape[3]), (height, width)


def _rois_name(case: Case) -> str:
    return "ROITensor" if "ROITensor" in case.inputs else "rois"


def _moved(case: Case, lines: list[_Line]) -> Iterator[tuple[float, Case]]:
    """The case in float64 with its RoIs moved and stretched by what rounding may do, and how many times that."""
    wide = _widened(case)
    name = _rois_name(case)
    rois = wide.inputs[name].reshape(-1, 4)
    by, is_rigid = np.zeros_like(rois), np.zeros((len(rois), 2), bool)
    for line in lines:
        moved = unit(arithmetic(case)) / line.scale * np.array(line.roundings)
        if line.has_exact_size:
            # To a power of two, so that the size stays as it is in float64, too.
            moved = np.full(2, 0.0 if line.is_exact else 2.0 ** math.floor(math.log2(moved[0])))
        by[line.roi, [line.axis, line.axis + 2]] = moved
        is_rigid[line.roi, line.axis] = line.has_exact_size
    for step, signs in itertools.product(STEPS, _directions(len(rois))):
        signs[:, 2:] = np.where(is_rigid, signs[:, :2], signs[:, 2:])
        array = (rois + step * by * signs).reshape(wide.inputs[name].shape)
        yield step, _replaced(wide, name, array)


def _directions(count: int) -> list[Array]:
    rng = np.random.default_rng(0)
    whole = [np.tile([x1, y1, x2, y2], (count, 1)) for x1, y1, x2, y2 in itertools.product((-1.0, 1.0), repeat=4)]
    return [*whole, *(rng.choice([-1.0, 1.0], (count, 4)) for _ in range(4))]


def _with_noise(case: Case) -> Iterator[tuple[float, Case]]:
    """The case in float64 with a map whose pixels differ by a few roundings from what they are."""
    name = "InputTensor" if "InputTensor" in case.inputs else "X"
    wide, rng = _widened(case), np.random.default_rng(0)
    x = wide.inputs[name]
    for _ in range(6):
        noise = rng.uniform(-1.0, 1.0, x.shape)
        yield 1.0, _replaced(wide, name, x * (1 + ROUNDINGS * unit(arithmetic(case)) * noise))


def _is_steady(case: Case, moved: Iterator[tuple[float, Case]]) -> bool:
    """Whether none of the moved cases differs by more than moving it smoothly does."""
    growths, allowed = GROWTH[case.definition.function](case), allowed_errors(case)
    expected = expected_outputs(case)
    for step, other in moved:
        for name, y in reference(other.definition, other.attributes, other.inputs, other.outputs).items():
            limit = allowed[name] + (step - 1) * growths[name].drift
            if not np.all((np.abs(y - expected[name]) <= limit) | _same(y, expected[name])):
                return False
    return True


def _same(first: Floats, second: Floats) -> npt.NDArray[np.bool_]:
    return np.asarray((first == second) | (np.isnan(first) & np.isnan(second)))


def _widened(case: Case) -> Case:
    inputs = {n: a if a.dtype.kind in "iu" else a.astype(np.float64) for n, a in case.inputs.items()}
    return _with_inputs(case, inputs)


def _replaced(case: Case, name: str, array: Array) -> Case:
    return _with_inputs(case, {**case.inputs, name: array})


def _with_inputs(case: Case, inputs: dict[str, Array]) -> Case:
    return Case(case.id, case.source, case.operator, case.attributes, inputs, case.outputs, case.note)


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
    for length, count, scale, i, o in zip(lengths, outputs, scales, before, after, strict=True):
        if is_floored and not _is_power_of_2(scale) and _is_near_whole(np.array([length * scale]), rounding * count):
            return False
        if is_nearest and _is_undecided(
            length, count, scale, i, o, arguments["rounding_direction"] == "half_up", rounding
        ):
            return False
    return True


def _is_undecided(
    length: int, count: int, scale: float, before: float, after: float, is_half_up: bool, rounding: float
) -> bool:
    """Whether the pixel that an output reads hinges on a last bit."""
    if not count or scale <= 0 or (_are_short(before, after) and _is_power_of_2(scale)):
        return False
    x = (np.arange(count) - after) / scale - before
    x = x[(x > -1) & (x < length)]
    reach = length + 1.5 + 2 * abs(before) + abs(after) / scale
    return _is_near_whole(x + 0.5 if is_half_up else x, 4 * rounding * reach)


def _is_near_whole(numbers: Array, error: float) -> bool:
    return bool(np.any(np.abs(numbers - np.round(numbers)) <= error))
