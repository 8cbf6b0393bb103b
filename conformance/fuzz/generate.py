"""A random case of an operator. Its seed and its number make it, so any process can make it again.

A part of the cases is exact: coordinates are short binary fractions and everything on the way to a sample is one, so
that borders, ties and whole numbers of samples can be met. All others take any numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

import ortops
from conformance.case import Array, Case, Source
from conformance.fuzz.hostile import spoil
from ortops.operators import OPERATORS
from ortops.operators.dml_roi_align import UINT32_MAX
from ortops.shapes import output_shapes
from ortops.spec import ELEMENT_DTYPES, AttributeValue, Operator

BY_REFERENCE = Source("ortops/reference", f"ortops {ortops.__version__}", "any input")

EXACT, HOSTILE, LEFT_OUT, LARGE = 0.4, 0.2, 0.15, 0.05
"""The part of the cases that is exact, that has something wrong; of attributes left out; of cases with large tensors."""

SCALES = (1.0, 0.5, 0.25, 2.0)

KINDS = ("inside", "across", "mirrored", "flat", "point", "outside", "huge")

Attributes = dict[str, AttributeValue]
Inputs = dict[str, Array]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Draw:
    """Random choices; `exact` says which numbers are wanted."""

    rng: np.random.Generator
    exact: bool

    def chance(self, part: float) -> bool:
        """True in `part` of all draws."""
        return bool(self.rng.random() < part)

    def whole(self, least: int, most: int) -> int:
        """A whole number, both limits included."""
        return int(self.rng.integers(least, most + 1))

    def one(self, choices: Sequence[T]) -> T:
        """One of them."""
        return choices[self.whole(0, len(choices) - 1)]

    def scale(self) -> float:
        """Pixels to a unit."""
        if self.exact:
            return self.one(SCALES)
        return float(np.float32(self.one((1.0, 0.3, 0.0625, 1.7, self.rng.uniform(0.2, 4.0)))))

    def offset(self) -> float:
        """Of pixels or samples."""
        return self.whole(-4, 4) / 4 if self.exact else float(np.float32(self.rng.uniform(-1.5, 1.5)))

    def values(self, shape: Sequence[int]) -> Array:
        """A map, or a gradient."""
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
    draw = Draw(rng, bool(rng.random() < EXACT))
    operator = draw.one([operator for operator in OPERATORS if not names or operator.name in names])
    attributes, inputs, outputs = MAKERS[operator.function](draw, operator)
    attributes = {name: value for name, value in attributes.items() if not draw.chance(LEFT_OUT)}
    case = Case(
        id=f"{operator.function}/fuzz/{seed}/{number}",
        source=BY_REFERENCE,
        operator=operator.name,
        attributes=attributes,
        inputs=_typed(draw, operator, inputs),
        outputs=outputs,
        note="a random case",
    )
    return spoil(case, rng) if draw.chance(HOSTILE) else case


def _typed(draw: Draw, operator: Operator, inputs: Mapping[str, Array]) -> Inputs:
    """The inputs in types that the operator has, in its order."""
    types = {variable: draw.one(allowed) for variable, allowed in operator.types.items()}
    typed = {}
    for tensor in operator.inputs:
        if tensor.name in inputs:
            dtype = ELEMENT_DTYPES[types.get(tensor.type, tensor.type)]
            limit = 6e4 if dtype == np.float16 else np.inf
            array = inputs[tensor.name]
            typed[tensor.name] = (np.clip(array, -limit, limit) if array.dtype.kind == "f" else array).astype(dtype)
    return typed


def _map_shape(draw: Draw) -> tuple[int, int, int, int]:
    if draw.chance(LARGE):
        return draw.whole(1, 2), draw.whole(1, 20), draw.whole(1, 20), draw.whole(1, 40)
    return draw.whole(1, 3), draw.whole(0, 3) or 1, draw.whole(1, 9), draw.whole(1, 9)


def _rois(draw: Draw, count: int, x_shape: Sequence[int], scale_y: float, scale_x: float) -> Array:
    height, width = x_shape[2:]
    rois = np.array([_roi(draw, width, height) for _ in range(count)]).reshape(-1, 4)
    if draw.exact:
        rois = np.round(np.clip(rois, -64, 64) * 4) / 4
    return np.asarray(rois / np.array([scale_x, scale_y, scale_x, scale_y]))


def _roi(draw: Draw, width: int, height: int) -> Array:
    """A RoI in pixels."""
    low, high = np.sort(draw.rng.uniform(0, 1, (2, 2)), axis=0)
    roi = np.concatenate([low, high])
    kind = draw.one(KINDS)
    moved = {
        "inside": roi,
        "across": roi * 2 - 0.5,
        "mirrored": roi[list(draw.one(((2, 3, 0, 1), (2, 1, 0, 3), (0, 3, 2, 1))))],
        "flat": roi[list(draw.one(((0, 1, 2, 1), (0, 1, 0, 3))))],
        "point": roi[[0, 1, 0, 1]],
        "outside": roi + draw.whole(-3, 3),
        "huge": (roi - 0.5) * draw.one((30.0, 1e3, 1e6)),
    }[kind]
    return np.asarray(moved * np.array([width, height, width, height]))


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
    scale, shape, count = draw.scale(), _map_shape(draw), draw.whole(0, 4)
    sizes = (1, 2, 4) if draw.exact else (1, 2, 3, 4, 7)
    bins = draw.one(sizes), draw.one(sizes)
    given = {
        "output_height": bins[0],
        "output_width": bins[1],
        "sampling_ratio": draw.one((0, 1, 2) if draw.exact else (0, 0, 1, 2, 3)),
        "spatial_scale": scale,
    }
    attributes = _attributes(draw, operator, given)
    inputs = {
        "X": draw.values(shape),
        "rois": _rois(draw, count, shape, scale, scale),
        "batch_indices": draw.rng.integers(0, shape[0], count),
    }
    if operator.function == "roi_align":
        return attributes, inputs, ("Y",)
    outputs = draw.one((("dX", "drois"), ("dX",), ("drois",)))
    inputs |= {"dY": draw.values((count, shape[1], *bins)), "x_shape": np.array(shape)}
    return attributes, _without_map(draw, inputs, "X", outputs, attributes["mode"] == "avg"), outputs


def _dml_roi_align(draw: Draw, operator: Operator) -> tuple[Attributes, Inputs, tuple[str, ...]]:
    scales, shape, count = (draw.scale(), draw.scale()), _map_shape(draw), draw.whole(0, 4)
    sizes = (1, 2, 4) if draw.exact else (1, 2, 3, 4, 7)
    bins = draw.one(sizes), draw.one(sizes)
    least = draw.one((1, 1, 1, 2, 3))
    given: Attributes = {
        "output_height": bins[0],
        "output_width": bins[1],
        "spatial_scale_x": scales[1],
        "spatial_scale_y": scales[0],
        "input_pixel_offset": draw.offset(),
        "output_pixel_offset": draw.offset(),
        "out_of_bounds_input_value": draw.one((0.0, 0.0, 2.5, -3.0)),
        "minimum_samples_per_output": least,
        "maximum_samples_per_output": draw.one((UINT32_MAX, least, least + 1)),
        "align_regions_to_corners": draw.whole(0, 1),
    }
    attributes = _attributes(draw, operator, given)
    rois = _rois(draw, count, shape, *scales)
    inputs = {
        "InputTensor": draw.values(shape),
        "ROITensor": rois.reshape((1,) * draw.whole(0, 2) + rois.shape),
        "BatchIndicesTensor": draw.rng.integers(0, shape[0], (1,) * draw.whole(0, 3) + (count,)),
    }
    if operator.function == "dml_roi_align":
        return attributes, inputs, ("OutputTensor",)
    names = tuple(tensor.name for tensor in operator.outputs)
    outputs = draw.one((names, names[:1], names[1:]))
    inputs |= {"InputGradientTensor": draw.values((count, shape[1], *bins)), "x_shape": np.array(shape)}
    is_average = attributes["reduction_function"] == "average"
    return attributes, _without_map(draw, inputs, "InputTensor", outputs, is_average), outputs


def _dml_resample(draw: Draw, operator: Operator) -> tuple[Attributes, Inputs, tuple[str, ...]]:
    rank = draw.whole(1, 4)
    x_shape = tuple(draw.whole(1, (60, 12, 6, 4)[rank - 1]) for _ in range(rank))
    scales = tuple(draw.scale() if draw.chance(0.8) else 1.0 for _ in range(rank))
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
