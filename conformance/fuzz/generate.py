"""A random case of an operator. Its seed and its number make it, so any process can make it again.

A part of the cases is exact: coordinates are short binary fractions and everything on the way to a sample is one, so
that borders, ties and whole numbers of samples can be met. All others take any numbers.

Up to two axes of a case are as long as they are in practice, no more, since the reference computes every sample in Python:
a case that would take it too long is drawn again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import ortops
from conformance.bounds.growth import least
from conformance.case import Array, Case, Source
from conformance.fuzz.hostile import T, pick, spoil
from conformance.question import DIRECTML_NAMES, ONNX_NAMES, question_of
from ortops.operators import OPERATORS
from ortops.operators.dml_roi_align import UINT32_MAX
from ortops.shapes import output_shapes
from ortops.spec import ELEMENT_DTYPES, AttributeValue, Operator

BY_REFERENCE = Source("ortops/reference", f"ortops {ortops.__version__}", "any input")

EXACT, HOSTILE, LEFT_OUT, LARGE, WILD = 0.35, 0.15, 0.1, 0.5, 0.3
"""The part of the cases that is exact, that has something wrong; of attributes left out; of cases that are large along
one or two axes; of right ones that may have infinities, NaN and numbers at either end of their type's range."""

MOST_WORK = 15_000  # samples of a channel that the reference computes for a case: 0.1 to 0.2 s


class Sizes(NamedTuple):
    """The lengths of a problem with RoIs; ratio is the number of samples of a bin along an axis."""

    images: int
    channels: int
    height: int
    width: int
    rois: int
    bins_y: int
    bins_x: int
    ratio: int


LARGEST = Sizes(images=300, channels=300, height=1000, width=1000, rois=300, bins_y=70, bins_x=70, ratio=33)
"""The largest lengths that occur in practice."""

OFTEN = (*Sizes._fields, "images", "channels", "channels", "rois", "rois")
"""The axes that a large case is drawn from: some are large more often than others."""

KINDS = ("inside", "across", "mirrored", "flat", "point", "outside", "huge")  # where a RoI lies, or which form it has

Attributes = dict[str, AttributeValue]
Inputs = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Draw:
    """Random choices for one case whose maps and gradients have the type `dtype`.

    exact: whether short binary fractions are wanted.
    tame: whether infinities, NaN and what is near either end of the type's range are not.
    """

    rng: np.random.Generator
    exact: bool
    tame: bool
    dtype: np.dtype[Any]

    def chance(self, part: float) -> bool:
        """True in `part` of all draws."""
        return bool(self.rng.random() < part)

    def whole(self, least: int, most: int) -> int:
        """A whole number, both limits included."""
        return int(self.rng.integers(least, most + 1))

    def one(self, choices: Sequence[T]) -> T:
        """One of the choices."""
        return pick(self.rng, choices)

    def length(self, most: int) -> int:
        """A large length: any order of magnitude, or near the largest, so that what wraps or is cut there is met."""
        if self.chance(0.4):
            return self.whole(math.ceil(0.86 * most), most)
        return round(math.exp(self.rng.uniform(math.log(min(12, most / 4)), math.log(most))))

    def scale(self) -> float:
        """The number of pixels to a unit."""
        if self.exact:
            return self.one((1.0, 0.5, 0.25, 2.0, 8.0))
        return float(np.float32(self.one((1.0, 0.3, 0.0625, 1.7, self.rng.uniform(0.2, 12.0)))))

    def offset(self) -> float:
        """An offset of pixels or samples."""
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
        return {"normal": 1.0, "large": 500.0, "small": 1e-6}[kind] * self.rng.normal(size=shape)


def generate(seed: int, number: int, names: Sequence[str] = ()) -> Case:
    """Case `number` of a campaign with this seed over the operators of these names, over all where there are none."""
    rng = np.random.default_rng([seed, number])
    operator = pick(rng, [operator for operator in OPERATORS if not names or operator.name in names])
    is_hostile = bool(rng.random() < HOSTILE)
    case = None
    while case is None or not _is_quick(case):
        case = _case(rng, operator, f"{operator.function}/fuzz/{seed}/{number}", tame=is_hostile)
    return spoil(case, rng) if is_hostile else case


def _case(rng: np.random.Generator, operator: Operator, id_: str, *, tame: bool) -> Case:
    types: dict[str, str] = {variable: str(rng.choice(allowed)) for variable, allowed in operator.types.items()}
    is_exact = bool(rng.random() < EXACT)
    draw = Draw(rng, is_exact, tame or bool(rng.random() >= WILD), ELEMENT_DTYPES[next(iter(types.values()))])
    attributes, inputs, outputs = (_resample if operator.family == "dml_resample" else _roi_align)(draw, operator)
    dtypes = {t.name: ELEMENT_DTYPES[types.get(t.type, t.type)] for t in operator.inputs if t.name in inputs}
    with np.errstate(over="ignore", invalid="ignore"):
        typed = {name: inputs[name].astype(dtype) for name, dtype in dtypes.items()}
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
    # For each RoI the reference makes a list of its image; it has the corners of a sample once for all channels.
    work = len(question.rois) * channels * height * width / 300
    return work + sum(y.on_map * x.on_map for y, x in question.placed()) * (channels + 2) <= MOST_WORK


def _sizes(draw: Draw) -> Sizes:
    """Small lengths; in a part of the cases one or two are large, and the others smaller still."""
    is_large = draw.chance(LARGE)
    bins, ratios = ((1, 2, 4), (0, 1, 2)) if draw.exact else ((1, 2, 3, 4, 7), (0, 0, 1, 2, 3, 5))
    few = 2 if is_large else len(ratios)
    x_shape = draw.whole(1, 3), draw.whole(0, few) or 1, draw.whole(1, 9), draw.whole(1, 9)
    rois, bins_y, bins_x = draw.whole(is_large, few), draw.one(bins[:few]), draw.one(bins[:few])
    sizes = Sizes(*x_shape, rois, bins_y, bins_x, draw.one(ratios[: few + 1]))
    names = [draw.one(OFTEN) for _ in range(draw.whole(1, 2) if is_large else 0)]
    if is_large and draw.chance(0.1):
        names = ["height", "width"]
    for name in names:
        # Two that are large at once are less so, but for the sides of a map.
        part = 1 if len(names) == 1 else 3 if name in ("height", "width") else 4
        sizes = sizes._replace(**{name: draw.length(getattr(LARGEST, name) // part + 1)})
    return sizes


def _rois(draw: Draw, sizes: Sizes, scale_y: float, scale_x: float) -> Array:
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
    """A RoI of one of `KINDS`; the map is from 0 to 1."""
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
    """The operator's attributes: as given, or any of their choices."""
    return {a.name: given[a.name] if a.name in given else draw.one(a.choices) for a in operator.attributes}


def _roi_align(draw: Draw, operator: Operator) -> tuple[Attributes, Inputs, tuple[str, ...]]:
    """Attributes, inputs and outputs of RoiAlign, DmlRoiAlign, or the gradient of one of them."""
    is_onnx = operator.family == "roi_align"
    scale_x = scale_y = draw.scale()
    if not is_onnx:
        scale_x = draw.scale()
    sizes = _sizes(draw)
    given: Attributes = {"output_height": sizes.bins_y, "output_width": sizes.bins_x}
    if is_onnx:
        given |= {"sampling_ratio": sizes.ratio, "spatial_scale": scale_x}
    else:
        fewest = max(sizes.ratio, 1)
        given |= {
            "spatial_scale_x": scale_x,
            "spatial_scale_y": scale_y,
            "input_pixel_offset": draw.offset(),
            "output_pixel_offset": draw.offset(),
            "out_of_bounds_input_value": draw.one((0.0, 0.0, 2.5, -3.0)),
            "minimum_samples_per_output": fewest,
            "maximum_samples_per_output": draw.one((UINT32_MAX, fewest, fewest + 1)),
            "align_regions_to_corners": draw.whole(0, 1),
        }
    attributes = _attributes(draw, operator, given)
    # The two families draw in another order, which the cases of a seed depend on.
    x = draw.values(sizes[:4]) if is_onnx else None
    rois, indices = _rois(draw, sizes, scale_y, scale_x), _indices(draw, sizes.images, sizes.rois)
    if x is None:
        x = draw.values(sizes[:4])
        rois = rois.reshape((1,) * draw.whole(0, 2) + rois.shape)
        indices = indices.reshape((1,) * draw.whole(0, 3) + indices.shape)
    names = ONNX_NAMES if is_onnx else DIRECTML_NAMES
    inputs = {names["x"]: x, names["rois"]: rois, names["indices"]: indices}
    outputs = tuple(tensor.name for tensor in operator.outputs)
    if not operator.function.endswith("_grad"):
        return attributes, inputs, outputs
    outputs = draw.one((outputs, outputs[:1], outputs[1:]))
    inputs |= {names["dy"]: draw.values((sizes.rois, sizes.channels, *sizes[5:7])), "x_shape": np.array(sizes[:4])}
    # Now and then without the map, where the gradient does not need it.
    is_average = attributes.get("mode", attributes.get("reduction_function")) in ("avg", "average")
    if is_average and outputs == (names["dx"],) and draw.chance(0.5):
        del inputs[names["x"]]
    return attributes, inputs, outputs


def _resample(draw: Draw, operator: Operator) -> tuple[Attributes, Inputs, tuple[str, ...]]:
    """Attributes, inputs and outputs of DmlResample or its gradient."""
    rank = draw.whole(1, 4)
    lengths = [draw.whole(1, (60, 12, 6, 4)[rank - 1]) for _ in range(rank)]
    if draw.chance(LARGE):
        lengths[draw.whole(0, rank - 1)] = draw.length(1000)
    scales = tuple(draw.scale() if length < 100 and draw.chance(0.8) else 1.0 for length in lengths)
    sizes = tuple(draw.whole(0 if draw.chance(0.1) else 1, (80, 12, 7, 5)[rank - 1]) for _ in range(rank))
    has_scales = draw.chance(0.6)
    given: Attributes = {
        "scales": scales if has_scales else (),
        "output_sizes": sizes if not has_scales or draw.chance(0.4) else (),
        "input_pixel_offsets": tuple(draw.offset() for _ in range(rank)) if draw.chance(0.6) else (),
        "output_pixel_offsets": tuple(draw.offset() for _ in range(rank)) if draw.chance(0.6) else (),
    }
    attributes, outputs = _attributes(draw, operator, given), (operator.outputs[0].name,)
    if operator.function == "dml_resample":
        return attributes, {"InputTensor": draw.values(lengths)}, outputs
    forward = next(operator for operator in OPERATORS if operator.function == "dml_resample")
    (y_shape,) = output_shapes(forward, {"InputTensor": tuple(lengths)}, {}, forward.check_attributes(given))
    return attributes, {"InputGradientTensor": draw.values(y_shape), "x_shape": np.array(lengths)}, outputs
