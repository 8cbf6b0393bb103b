"""A random case of an operator. Its seed and its number make it, so any process can make it again.

A part of the cases is exact: coordinates are short binary fractions and everything on the way to a sample is one, so
that borders, ties and whole numbers of samples can be met. All others take any numbers.

Sizes are those of the field, a length of one or two axes at a time, since the reference computes every sample in Python:
a case that would take it too long is drawn again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

import ortops
from conformance.bounds.growth import least
from conformance.case import Array, Case, Source
from conformance.fuzz.hostile import spoil
from conformance.question import question_of
from ortops.operators import OPERATORS
from ortops.operators.dml_roi_align import UINT32_MAX
from ortops.shapes import output_shapes
from ortops.spec import ELEMENT_DTYPES, AttributeValue, Operator

BY_REFERENCE = Source("ortops/reference", f"ortops {ortops.__version__}", "any input")

EXACT, HOSTILE, LEFT_OUT, LARGE, WILD = 0.35, 0.15, 0.1, 0.5, 0.3
"""The part of the cases that is exact, that has something wrong; of attributes left out; of cases that are large along
one or two axes; of right ones that may have infinities, NaN and numbers at either end of their type's range."""

MOST_WORK = 15_000
"""Samples of a channel that the reference computes for a case: 0.1 to 0.2 s."""

MOST_ELEMENTS = 2**18
"""Of a tensor."""

LARGEST = {
    "images": 300,
    "channels": 300,
    "height": 1000,
    "width": 1000,
    "rois": 300,
    "bins_y": 70,
    "bins_x": 70,
    "ratio": 33,
}
"""Lengths of the field."""

OFTEN = (*LARGEST, "images", "channels", "channels", "rois", "rois")
"""What is large, some more often."""

SCALES = (1.0, 0.5, 0.25, 2.0, 8.0)

KINDS = ("inside", "across", "mirrored", "flat", "point", "outside", "huge")

Attributes = dict[str, AttributeValue]
Inputs = dict[str, Array]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Draw:
    """Random choices.

    exact: whether short binary fractions are wanted.
    tame: whether infinities, NaN and what is near either end of the type's range are not.
    types: which element type each type of a tensor is.
    """

    rng: np.random.Generator
    exact: bool
    tame: bool
    types: Mapping[str, str]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of maps and gradients."""
        return ELEMENT_DTYPES[next(iter(self.types.values()))]

    def chance(self, part: float) -> bool:
        """True in `part` of all draws."""
        return bool(self.rng.random() < part)

    def whole(self, least: int, most: int) -> int:
        """A whole number, both limits included."""
        return int(self.rng.integers(least, most + 1))

    def one(self, choices: Sequence[T]) -> T:
        """One of them."""
        return choices[self.whole(0, len(choices) - 1)]

    def length(self, most: int) -> int:
        """A large one: any order of magnitude, or near the largest, so that what wraps or is cut there is met."""
        if self.chance(0.4):
            return self.whole(math.ceil(0.86 * most), most)
        return round(math.exp(self.rng.uniform(math.log(min(12, most / 4)), math.log(most))))

    def scale(self) -> float:
        """Pixels to a unit."""
        if self.exact:
            return self.one(SCALES)
        return float(np.float32(self.one((1.0, 0.3, 0.0625, 1.7, self.rng.uniform(0.2, 12.0)))))

    def offset(self) -> float:
        """Of pixels or samples."""
        return self.whole(-4, 4) / 4 if self.exact else float(np.float32(self.rng.uniform(-1.5, 1.5)))

    def values(self, shape: Sequence[int]) -> Array:
        """A map, or a gradient."""
        values = self._finite_values(shape)
        if values.size and not self.tame and self.chance(0.3):
            if self.chance(0.2):
                return np.full(shape, -np.inf)
            odd = self.one(((np.nan,), (np.inf,), (-np.inf,), (np.nan, np.inf, -np.inf)))
            for _ in range(math.ceil(values.size / 10) if self.chance(0.3) else self.whole(1, 3)):
                values.flat[self.whole(0, values.size - 1)] = self.one(odd)
        return values

    def _finite_values(self, shape: Sequence[int]) -> Array:
        info = ml_dtypes.finfo(self.dtype)  # type: ignore[no-untyped-call]
        # The reference computes in double, and overflows there with sums that are as large as this allows.
        largest, smallest = min(float(info.max), 1e300), max(least(self.dtype), 1e-290)
        if not self.tame and self.chance(0.2):
            return largest * self.rng.uniform(0.4, 1.0, shape) * (1.0 if self.chance(0.6) else self.rng.choice([-1, 1]))
        if not self.tame and self.chance(0.2):
            return smallest * np.round(self.rng.normal(size=shape) * 2.0 ** self.whole(2, int(info.nmant)))
        if self.exact:
            return self.rng.integers(-64, 65, shape) / 32
        kind = self.one(("normal", "normal", "normal", "whole", "constant", "large", "small"))
        if kind == "whole":
            return self.rng.integers(-3, 4, shape).astype(np.float64)
        if kind == "constant":
            return np.full(shape, self.offset())
        factor = {"normal": 1.0, "large": 500.0, "small": 1e-6}[kind]
        return factor * self.rng.normal(size=shape)


def generate(seed: int, number: int, names: Sequence[str] = ()) -> Case:
    """Case `number` of a campaign with this seed over the operators of these names, over all where there are none."""
    rng = np.random.default_rng([seed, number])
    operators = [operator for operator in OPERATORS if not names or operator.name in names]
    operator = operators[int(rng.integers(len(operators)))]
    is_hostile = bool(rng.random() < HOSTILE)
    case = _case(rng, operator, f"{operator.function}/fuzz/{seed}/{number}", tame=is_hostile)
    while not _is_quick(case):
        case = _case(rng, operator, case.id, tame=is_hostile)
    return spoil(case, rng) if is_hostile else case


def _case(rng: np.random.Generator, operator: Operator, id_: str, *, tame: bool) -> Case:
    types: dict[str, str] = {variable: str(rng.choice(allowed)) for variable, allowed in operator.types.items()}
    draw = Draw(rng, bool(rng.random() < EXACT), tame or bool(rng.random() >= WILD), types)
    attributes, inputs, outputs = MAKERS[operator.function](draw, operator)
    typed = {}
    for tensor in operator.inputs:
        if tensor.name in inputs:
            with np.errstate(over="ignore", invalid="ignore"):
                typed[tensor.name] = inputs[tensor.name].astype(ELEMENT_DTYPES[types.get(tensor.type, tensor.type)])
    return Case(
        id=id_,
        source=BY_REFERENCE,
        operator=operator.name,
        attributes={name: value for name, value in attributes.items() if not draw.chance(LEFT_OUT)},
        inputs=typed,
        outputs=outputs,
        note="a random case",
    )


def _is_quick(case: Case) -> bool:
    """Whether the reference can compute the case in little time."""
    if case.definition.family == "dml_resample":
        return True
    question = question_of(case)
    _, channels, height, width = question.x_shape
    rois = len(question.rois)
    # For each RoI the reference makes a list of its image; it has the corners of a sample once for all channels.
    work = rois * channels * height * width / 300
    work += sum(y.on_map * x.on_map for y, x in question.placed()) * (channels + 2)
    return work <= MOST_WORK


@dataclass(slots=True)
class _Sizes:
    """Of a problem with RoIs; ratio is the number of samples of a bin along an axis."""

    images: int
    channels: int
    height: int
    width: int
    rois: int
    bins_y: int
    bins_x: int
    ratio: int

    @staticmethod
    def drawn(draw: Draw) -> _Sizes:
        """Small ones; of some cases one or two of the field's, and the others are smaller still."""
        is_large = draw.chance(LARGE)
        bins, ratios = ((1, 2, 4), (0, 1, 2)) if draw.exact else ((1, 2, 3, 4, 7), (0, 0, 1, 2, 3, 5))
        few = 2 if is_large else len(ratios)
        sizes = _Sizes(
            draw.whole(1, 3),
            draw.whole(0, few) or 1,
            draw.whole(1, 9),
            draw.whole(1, 9),
            draw.whole(is_large, few),
            draw.one(bins[:few]),
            draw.one(bins[:few]),
            draw.one(ratios[: few + 1]),
        )
        names = [draw.one(OFTEN) for _ in range(draw.whole(1, 2) if is_large else 0)]
        if is_large and draw.chance(0.1):
            names = ["height", "width"]
        for name in names:
            # Two that are large at once are less so, but for the sides of a map.
            is_side = name in ("height", "width")
            setattr(sizes, name, draw.length(LARGEST[name] // (1 if len(names) == 1 else 3 if is_side else 4) + 1))
        return sizes

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of the map."""
        return self.images, self.channels, self.height, self.width

    @property
    def bins(self) -> tuple[int, int]:
        """Height and width of the output."""
        return self.bins_y, self.bins_x


def _rois(draw: Draw, sizes: _Sizes, scale_y: float, scale_x: float) -> Array:
    """[R, 4] in stored coordinates."""
    count, ends = sizes.rois, np.array([sizes.width, sizes.height] * 2)
    corners = np.sort(draw.rng.uniform(0, 1, (count, 2, 2)), axis=1)
    if draw.chance(0.5):  # of any size, as they are in large maps
        middle = corners.mean(axis=1, keepdims=True)
        corners = middle + (corners - middle) * np.exp(draw.rng.uniform(-4, 0, (count, 1, 1)))
    kinds = ("inside", draw.one(KINDS), draw.one(KINDS))
    rois = np.array([_moved(draw, roi, draw.one(kinds)) for roi in corners.reshape(-1, 4)]).reshape(-1, 4) * ends
    if draw.exact:
        rois = np.round(np.clip(rois, -512, 512) * 4) / 4
    if draw.chance(0.1):  # bins of a little more than a whole number of pixels: one sample more where samples adapt
        whole = draw.rng.integers(0, 4, (count, 2)) * [sizes.bins_x, sizes.bins_y]
        rois[:, 2:] = rois[:, :2] + whole + draw.one((1 / 64, 1e-3))
    if draw.chance(0.15):  # the same box more than once
        rois = rois[draw.rng.integers(0, max(count // 2, 1), count)]
    largest = 6e4 if draw.dtype == np.float16 else np.inf
    return np.asarray(np.clip(rois / np.array([scale_x, scale_y] * 2), -largest, largest))


def _moved(draw: Draw, roi: Array, kind: str) -> Array:
    """A RoI that lies somewhere else, or has another form, see `KINDS`; the map is from 0 to 1."""
    if kind == "mirrored":
        roi = roi[list(draw.one(((2, 3, 0, 1), (2, 1, 0, 3), (0, 3, 2, 1))))]
    if kind == "flat":
        roi = roi[list(draw.one(((0, 1, 2, 1), (0, 1, 0, 3))))]
    return {
        "across": roi * 2 - 0.5,
        "point": roi[[0, 1, 0, 1]],
        "outside": roi + draw.whole(-3, 3),
        "huge": (roi - 0.5) * draw.one((30.0, 1e3, 1e6)),
    }.get(kind, roi)


def _indices(draw: Draw, images: int, count: int) -> Array:
    """[R]: of any images in any order; or of some alone, so that others have no RoI; or in order."""
    some = draw.rng.choice(images, draw.whole(1, images), replace=False) if draw.chance(0.4) else np.arange(images)
    indices = draw.rng.choice(some, count)
    return np.sort(indices) if draw.chance(0.3) else indices


def _attributes(draw: Draw, operator: Operator, given: Mapping[str, AttributeValue]) -> Attributes:
    """Those of the operator: as given, or any of its choices."""
    drawn = {a.name: given[a.name] if a.name in given else draw.one(a.choices) for a in operator.attributes}
    return {name: value for name, value in drawn.items() if value is not None}


def _without_map(draw: Draw, inputs: Inputs, name: str, outputs: tuple[str, ...], is_average: bool) -> Inputs:
    """Now and then without the map, where a gradient does not need it."""
    if is_average and len(outputs) == 1 and "ROI" not in outputs[0] and outputs[0] != "drois" and draw.chance(0.5):
        return {n: array for n, array in inputs.items() if n != name}
    return inputs


def _roi_align(draw: Draw, operator: Operator) -> tuple[Attributes, Inputs, tuple[str, ...]]:
    scale, sizes = draw.scale(), _Sizes.drawn(draw)
    given = {
        "output_height": sizes.bins_y,
        "output_width": sizes.bins_x,
        "sampling_ratio": sizes.ratio,
        "spatial_scale": scale,
    }
    attributes = _attributes(draw, operator, given)
    inputs = {
        "X": draw.values(sizes.shape),
        "rois": _rois(draw, sizes, scale, scale),
        "batch_indices": _indices(draw, sizes.images, sizes.rois),
    }
    if operator.function == "roi_align":
        return attributes, inputs, ("Y",)
    outputs = draw.one((("dX", "drois"), ("dX",), ("drois",)))
    inputs |= {"dY": draw.values((sizes.rois, sizes.channels, *sizes.bins)), "x_shape": np.array(sizes.shape)}
    return attributes, _without_map(draw, inputs, "X", outputs, attributes["mode"] == "avg"), outputs


def _dml_roi_align(draw: Draw, operator: Operator) -> tuple[Attributes, Inputs, tuple[str, ...]]:
    scales, sizes = (draw.scale(), draw.scale()), _Sizes.drawn(draw)
    least_samples = max(sizes.ratio, 1)
    given: Attributes = {
        "output_height": sizes.bins_y,
        "output_width": sizes.bins_x,
        "spatial_scale_x": scales[1],
        "spatial_scale_y": scales[0],
        "input_pixel_offset": draw.offset(),
        "output_pixel_offset": draw.offset(),
        "out_of_bounds_input_value": draw.one((0.0, 0.0, 2.5, -3.0)),
        "minimum_samples_per_output": least_samples,
        "maximum_samples_per_output": draw.one((UINT32_MAX, least_samples, least_samples + 1)),
        "align_regions_to_corners": draw.whole(0, 1),
    }
    attributes = _attributes(draw, operator, given)
    rois = _rois(draw, sizes, *scales)
    indices = _indices(draw, sizes.images, sizes.rois)
    inputs = {
        "InputTensor": draw.values(sizes.shape),
        "ROITensor": rois.reshape((1,) * draw.whole(0, 2) + rois.shape),
        "BatchIndicesTensor": indices.reshape((1,) * draw.whole(0, 3) + indices.shape),
    }
    if operator.function == "dml_roi_align":
        return attributes, inputs, ("OutputTensor",)
    names = tuple(tensor.name for tensor in operator.outputs)
    outputs = draw.one((names, names[:1], names[1:]))
    dy = draw.values((sizes.rois, sizes.channels, *sizes.bins))
    inputs |= {"InputGradientTensor": dy, "x_shape": np.array(sizes.shape)}
    is_average = attributes["reduction_function"] == "average"
    return attributes, _without_map(draw, inputs, "InputTensor", outputs, is_average), outputs


def _dml_resample(draw: Draw, operator: Operator) -> tuple[Attributes, Inputs, tuple[str, ...]]:
    rank = draw.whole(1, 4)
    lengths = [draw.whole(1, (60, 12, 6, 4)[rank - 1]) for _ in range(rank)]
    if draw.chance(LARGE):
        lengths[draw.whole(0, rank - 1)] = draw.length(1000)
    x_shape = tuple(lengths)
    scales = tuple(draw.scale() if length < 100 and draw.chance(0.8) else 1.0 for length in lengths)
    sizes = tuple(draw.whole(0 if draw.chance(0.1) else 1, (80, 12, 7, 5)[rank - 1]) for _ in range(rank))
    has_scales = draw.chance(0.6)
    given: Attributes = {
        "scales": scales if has_scales else (),
        "output_sizes": sizes if not has_scales or draw.chance(0.4) else (),
        "input_pixel_offsets": tuple(draw.offset() for _ in range(rank)) if draw.chance(0.6) else (),
        "output_pixel_offsets": tuple(draw.offset() for _ in range(rank)) if draw.chance(0.6) else (),
    }
    attributes = _attributes(draw, operator, given)
    if operator.function == "dml_resample":
        return attributes, {"InputTensor": draw.values(x_shape)}, ("OutputTensor",)
    forward = next(operator for operator in OPERATORS if operator.function == "dml_resample")
    (y_shape,) = output_shapes(forward, {"InputTensor": x_shape}, {}, forward.check_attributes(given))
    inputs = {"InputGradientTensor": draw.values(y_shape), "x_shape": np.array(x_shape)}
    return attributes, inputs, ("OutputGradientTensor",)


Maker = Callable[[Draw, Operator], tuple[Attributes, Inputs, tuple[str, ...]]]

MAKERS: Mapping[str, Maker] = {
    "roi_align": _roi_align,
    "roi_align_grad": _roi_align,
    "dml_roi_align": _dml_roi_align,
    "dml_roi_align_grad": _dml_roi_align,
    "dml_resample": _dml_resample,
    "dml_resample_grad": _dml_resample,
}
"""By the operators' function."""
