# SPDX-License-Identifier: MIT
"""Calls of every operator for all of its tests: ordinary ones, edge cases, and refused ones with their error messages.

Each is made from the operator's definition and from what its family takes, so that an operator of a known family has them.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

import onnx_models
import ortops
from ortops.foreign.standard import onnx_definition
from ortops.operators import OPERATORS
from ortops.shapes import output_shapes
from ortops.spec import ELEMENT_DTYPES, Attribute, Operator
from problems import Array, make_problem

KINDS = ("inside", "across", "mirrored", "flat", "outside")
"""The RoIs of a sample, as `problems.make_problem` makes them."""

X = np.arange(60, dtype=np.float32).reshape(2, 1, 5, 6)
ROIS = np.array([[0.0, 0.0, 4.0, 4.0], [1.0, 1.0, 3.0, 2.0]], np.float32)
FORWARD = {"X": X, "rois": ROIS, "batch_indices": np.array([0, 1])}
GRADIENT = {
    "dY": np.ones((2, 1, 2, 2), np.float32),
    "rois": ROIS,
    "batch_indices": np.array([0, 1]),
    "x_shape": np.array(X.shape),
    "X": X,
}
"""Inputs of RoiAlign and of its gradient, for tests of one call that is easily followed."""


@dataclass(frozen=True)
class Sample:
    """A call of an operator.

    name: what is special about it, in words.
    inputs: by the definition's names; an absent one is left out.
    attributes: those that a node has; others have their defaults.
    """

    operator: Operator
    name: str
    inputs: Mapping[str, Array]
    attributes: Mapping[str, Any]

    def __str__(self) -> str:
        opset = f" of opset {self.operator.standard[1]}" if self.is_of_onnx and self.operator.standard else ""
        return f"{self.operator.name}{opset}: {self.name}"

    @property
    def is_of_onnx(self) -> bool:
        """Whether the node is one of ONNX's own operators, which a session runs as it is."""
        return not self.operator.domain

    @property
    def arrays(self) -> list[Array | None]:
        """All inputs in their order, None for an absent one."""
        return [self.inputs.get(tensor.name) for tensor in self.operator.inputs]

    def function(self) -> list[Array]:
        """The outputs of the function on NumPy arrays."""
        function = getattr(ortops, self.operator.function)
        known = {a.name: a.default for a in self.operator.attributes} | dict(self.operator.constants)
        others = {*known, "outputs", *(a.name for one in OPERATORS for a in one.attributes)}
        names = [name for name in inspect.signature(function).parameters if name not in others]
        given = dict(zip(names, self.arrays, strict=True))
        result = function(**given, **known | dict(self.attributes))
        return list(result) if isinstance(result, tuple) else [result]

    def model(self, **arguments: Any) -> onnx.ModelProto:
        """A model of one node; the arguments are those of `onnx_models.build.model`."""
        operator, types = self.operator, {dtype: name for name, dtype in ELEMENT_DTYPES.items()}
        known: dict[str, Any] = {
            "element_type": types[self.inputs[operator.inputs[0].name].dtype],
            "index_type": "int64",
            "attributes": self.attributes,
            "ranks": {t.name: self.inputs[t.name].ndim for t in operator.inputs if t.has_variable_rank},
            "omit": [t.name for t in operator.inputs if t.name not in self.inputs],
            "outputs": [t.name for t in operator.outputs],
            "standard": self.is_of_onnx,
        }
        built: onnx.ModelProto = onnx_models.build.model(operator, **known | arguments)
        return built


@dataclass(frozen=True)
class Refusal(Sample):
    """A call that the operator refuses with a ValueError.

    says: part of the error.
    by: "attribute" if the attribute alone is wrong, else "data".
    """

    says: str
    by: str


def samples(operator: Operator, element_type: str = "float") -> list[Sample]:
    """Ordinary calls: each value of each string, other attributes at two values, and one or many channels."""
    forward = _forward(operator)
    return [
        _sample(operator, name, _rois_and_map(forward, channels, attributes), attributes, element_type)
        for (name, attributes), channels in zip(_attributes(forward).items(), (3, 17, 1, 20), strict=True)
    ]


def edges(operator: Operator, element_type: str = "float") -> list[Sample]:
    """Empty tensors, the smallest and the farthest, and pixels that are no numbers."""
    attributes = next(iter(_attributes(_forward(operator)).values()))
    if operator.family == "ms_deform_attn":
        return [_sample(operator, name, values, {}, element_type) for name, values in _edges_of_attention().items()]
    x, *of_rois = _rois_and_map(_forward(operator), 9, attributes)
    none = [array[:0] for array in of_rois]
    changed = {
        "no channels": [x[:, :0], *of_rois],
        "one pixel": [x[..., :1, :1], *of_rois],
        "NaN and infinity": [np.where(x > x.max() - 0.1, np.nan, np.where(x < x.min() + 0.1, np.inf, x)), *of_rois],
    }
    if of_rois:
        changed |= {
            "no RoIs": [x, *none],
            "no RoIs and no pixels": [x[:, :, :0], *none],
            "far RoIs": [x, np.where(np.arange(of_rois[0].shape[1]) % 4 == 3, 6e4, of_rois[0]), *of_rois[1:]],
        }
    return [_sample(operator, name, values, attributes, element_type) for name, values in changed.items()]


def _edges_of_attention() -> dict[str, list[Array]]:
    value, shapes, starts, locations, weights = _attention(17)
    return {
        "no channels": [value[..., :0], shapes, starts, locations, weights],
        "no heads": [value[:, :, :0], shapes, starts, locations[:, :, :0], weights[:, :, :0]],
        "no queries": [value, shapes, starts, locations[:, :0], weights[:, :0]],
        "no points": [value, shapes, starts, locations[..., :0, :], weights[..., :0]],
        "no levels": [value[:, :0], shapes[:0], starts[:0], locations[:, :, :, :0], weights[:, :, :, :0]],
        "NaN and infinity": [
            *(np.where(value > 2, np.inf, value), shapes, starts),
            *(np.where(locations > 1.2, np.nan, locations), np.where(weights > 0.9, np.inf, weights)),
        ],
    }


def refusals(operator: Operator) -> list[Refusal]:
    """Calls with one fault."""
    good = samples(operator)[0]
    wrong = [(says, {name: value}) for name, value, says in _wrong_attributes(good)]
    every_value = operator.check_attributes(good.attributes)
    wrong += [(rule.error.format(**{**every_value, **rule.broken}), dict(rule.broken)) for rule in operator.rules]
    refused = [_refusal(good, "attribute", says, attributes=attributes) for says, attributes in wrong]
    own = {"dml_resample": _wrong_resample, "ms_deform_attn": _wrong_attention}
    of_data = own.get(operator.family, _wrong_rois)(good)
    return refused + [_refusal(good, "data", *one) for one in of_data]


def every(make: Any, *, of_onnx: bool = False) -> dict[str, Any]:
    """What `make` gives for all operators, as arguments of `pytest.mark.parametrize` with the name `sample`.

    of_onnx: whether these are also ONNX's own operators, which sessions run as they are.
    """
    made = [sample for group in by_operator(make, of_onnx=of_onnx)["argvalues"] for sample in group]
    return {"argnames": "sample", "argvalues": made, "ids": map(str, made)}


def by_operator(make: Any, *, of_onnx: bool = False) -> dict[str, Any]:
    """Likewise, with the name `calls` for a list of what `make` gives for an operator."""
    own = [onnx_definition(operator) for operator in OPERATORS if operator.standard and of_onnx]
    groups = [make(operator) for operator in OPERATORS]
    groups += [
        [call for call in make(operator) if call.attributes.get("mode") != "max_interpolated"] for operator in own
    ]
    groups = [group for group in groups if group]
    return {"argnames": "calls", "argvalues": groups, "ids": [str(group[0]).partition(":")[0] for group in groups]}


_BINS = {"output_height": 2, "output_width": 3}
_OWN: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "dml_roi_align": {
        "average": {**_BINS, "input_pixel_offset": 0.5, "spatial_scale_x": 0.5},
        "maximum": {**_BINS, "reduction_function": "max", "minimum_samples_per_output": 3, "spatial_scale_y": 0.7},
        "nearest": {**_BINS, "interpolation_mode": "nearest_neighbor", "out_of_bounds_input_value": -2.5},
        "corners": {
            **_BINS,
            "align_regions_to_corners": 1,
            "maximum_samples_per_output": 2,
            "output_pixel_offset": 0.2,
        },
    },
    "dml_resample": {
        "linear": {"scales": (1.0, 1.0, 1.7, 0.5)},
        "nearest": {"output_sizes": (2, 17, 5, 11), "interpolation_mode": "nearest_neighbor"},
        "rounded down": {
            "scales": (1.0, 1.0, 2.0, 3.0),
            "interpolation_mode": "nearest_neighbor",
            "rounding_direction": "decreasing",
            "input_pixel_offsets": (0.0,) * 4,
            "output_pixel_offsets": (0.0,) * 4,
        },
        "rounded up": {
            "scales": (1.0, 1.0, 0.3, 1.0),
            "interpolation_mode": "nearest_neighbor",
            "rounding_direction": "increasing",
            "input_pixel_offsets": (0.5, 0.5, -1.75, 0.3),
        },
    },
}
"""Attributes of four ordinary calls of the families whose attributes depend on each other, by what is special about them."""

_SIZES, _SCALES, _RATIOS = ((2, 3), (3, 1), (1, 1), (4, 5)), (1.0, 0.5, 1.7, 0.3), (0, 2, 20, 3)
_CHOICES = ((0, 1, 2, 0), (0, 0, 1, 1))
"""For each of four calls the sizes of the output, the scale, the number of samples, and the choice of an attribute: of the
one with the most choices and every second one after it, and of the others."""


def _attributes(forward: Operator) -> Mapping[str, Mapping[str, Any]]:
    """Attributes of four ordinary calls of a forward operator, by name: its family's own, or chosen by their rules."""
    return _OWN.get(forward.family) or {f"call {i}": dict(_chosen(forward, i)) for i in range(4)}


def _chosen(forward: Operator, i: int) -> Iterator[tuple[str, Any]]:
    choices, sizes = itertools.cycle(_CHOICES), iter(_SIZES[i])
    for attribute in sorted(forward.attributes, key=lambda a: -len(a.choices)):
        if attribute.axes:
            yield attribute.name, _SIZES[i]
        elif any(attribute.name in tensor.shape for tensor in forward.outputs):
            yield attribute.name, next(sizes)
        elif attribute.choices:
            yield attribute.name, attribute.choices[next(choices)[i] % len(attribute.choices)]
        elif (attribute.minimum, attribute.maximum) == (0, 1):
            yield attribute.name, (attribute.default + next(choices)[i]) % 2
        elif attribute.positive:
            yield attribute.name, _SCALES[i]
        elif attribute.minimum == 0:
            yield attribute.name, _RATIOS[i]


def _rois_and_map(forward: Operator, channels: int, attributes: Mapping[str, Any]) -> list[Array]:
    """The inputs of a forward operator, in float64 and int64, for a map of as many channels as its equations ask for."""
    if forward.family == "ms_deform_attn":
        return _attention(channels)
    for equation in forward.equations:
        channels *= math.prod(attributes[name] for name in equation.by)
    base = make_problem(7, np.dtype(np.float64), {"spatial_scale": 0.5}, KINDS, (2, channels, 7, 9))
    x, rois, of = base.x, np.round(base.rois * 8) / 8, base.batch_indices
    if len(forward.inputs) == 1:
        return [x]
    if len(forward.inputs) == 2:  # the image is in the RoI
        return [x, np.concatenate([of[:, None], rois], axis=1)]
    if forward.inputs[1].shape[-1] == 5:  # a RoI has an angle
        centre, size = (rois[:, :2] + rois[:, 2:]) / 2, rois[:, 2:] - rois[:, :2]
        rois = np.concatenate([centre, size, np.arange(len(rois))[:, None] * 0.7], axis=1)
    return [x, rois, of]


def _attention(channels: int) -> list[Array]:
    """The inputs of MSDeformAttn: points on the map and off it, on levels that do not follow each other."""
    rng = np.random.default_rng(8)
    value, weights = rng.normal(size=(2, 40, 2, channels)), rng.uniform(-1, 1, (2, 21, 2, 2, 3))
    locations = np.round(rng.uniform(-0.3, 1.3, (*weights.shape, 2)) * 256) / 256
    return [value, np.array([[5, 6], [3, 2]]), np.array([9, 1]), locations, weights]


def _forward(operator: Operator) -> Operator:
    """The operator itself, or the newest one whose gradient it computes."""
    if not operator.is_gradient:
        return operator
    return next(one for one in reversed(OPERATORS) if one.gradient == operator.name)


def _sample(
    operator: Operator, name: str, values: list[Array], attributes: Mapping[str, Any], element_type: str
) -> Sample:
    """A call of a forward operator with these inputs, or of its gradient."""
    dtype = ELEMENT_DTYPES[element_type]
    values = [array.astype(dtype) if array.dtype == np.float64 else array for array in values]
    forward = _forward(operator)
    known = {a.name for a in forward.attributes}
    attributes = {key: value for key, value in attributes.items() if key in known}
    inputs = dict(zip((tensor.name for tensor in forward.inputs), values, strict=True))
    if operator.is_gradient:
        shapes = {key: array.shape for key, array in inputs.items()}
        (shape,) = output_shapes(forward, shapes, {}, forward.check_attributes(attributes))
        dy = np.random.default_rng(3).uniform(-1, 1, shape).astype(dtype)
        given = {operator.inputs[0].name: dy, "x_shape": np.array(values[0].shape), **inputs}
        inputs = {tensor.name: given[tensor.name] for tensor in operator.inputs}
        attributes = {a.name: attributes[a.name] for a in operator.attributes if a.name in attributes}
    return Sample(operator, name, inputs, attributes)


def _refusal(
    good: Sample,
    by: str,
    says: str,
    changes: Mapping[str, Array | None] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Refusal:
    """A good call with one fault: an attribute, or inputs, None for one that is missing."""
    inputs = {name: array for name, array in {**good.inputs, **(changes or {})}.items() if array is not None}
    return Refusal(good.operator, says, inputs, {**good.attributes, **(attributes or {})}, says, by)


def _wrong_attributes(good: Sample) -> Iterator[tuple[str, Any, str]]:
    """Attributes with wrong values, and what the errors say."""
    for attribute in good.operator.attributes:
        for value in _wrong_values(attribute):
            if attribute.is_list:
                length = len(attribute.axes) or next(iter(good.inputs.values())).ndim
                right = 1.0 if attribute.type == "FLOATS" else 1
                yield (
                    attribute.name,
                    (value, *(right,) * (length - 1)),
                    f"{attribute.name}[0] = {value}: {attribute.rule}",
                )
            else:
                yield attribute.name, value, f"{attribute.name} = {value!r}: {attribute.rule}"


def _wrong_values(attribute: Attribute) -> Iterator[Any]:
    if attribute.choices:
        yield from ("median", attribute.default.upper())
    if attribute.positive:
        yield from (0.0, -1.0)
    if attribute.positive or attribute.finite:
        yield from (math.inf, math.nan)
    if attribute.minimum is not None:
        yield attribute.minimum - 1
    if attribute.maximum is not None:
        yield attribute.maximum + 1


def _with(array: Array, index: Any, value: float) -> Array:
    changed: Array = array.copy()
    changed[index] = value
    return changed


def _wrong_rois(good: Sample) -> Iterator[tuple[str, dict[str, Array | None]]]:
    """What is wrong with the data of an operator on RoIs, and what the errors say."""
    names = [tensor.name for tensor in good.operator.inputs]
    x_name = next(name for name in names if name in ("X", "InputTensor"))
    rois_name = next(name for name in names if name in ("rois", "ROITensor"))
    of_name = next((name for name in names if name in ("batch_indices", "BatchIndicesTensor")), None)
    x, rois, images = good.inputs[x_name], good.inputs[rois_name], len(good.inputs[x_name])
    columns, count = rois.shape[1], len(rois)
    yield f"{rois_name} has shape [{rois.size}]: must have rank 2", {rois_name: rois.ravel()}
    wide = np.zeros((count, columns + 1), rois.dtype)
    yield f"{rois_name} has shape [{count}, {columns + 1}]: shape[1] must be {columns}", {rois_name: wide}
    for number in (np.nan, np.inf):
        wrong = _with(rois, (1, columns - 1), number)
        yield f"{rois_name}[1] = {wrong[1].tolist()}: must be finite", {rois_name: wrong}
    if of_name is None:
        for image in (-1.0, float(images), 0.5):
            wrong = _with(rois, (1, 0), image)
            yield f"rois[1] = {wrong[1].tolist()}: batch_id must be a whole number >= 0 and < {images}", {"rois": wrong}
    else:
        of = good.inputs[of_name]
        for index in (-1, images):
            yield f"{of_name}[1] = {index}: must be >= 0 and < {images}", {of_name: _with(of, 1, index)}
        yield f"{of_name} has shape []: must have rank 1", {of_name: np.array(0)}
        longer = np.zeros(count + 1, np.int64)
        yield f"{of_name} has shape [{count + 1}]: shape[0] must be {count} (num_rois", {of_name: longer}
    yield f"{x_name} has shape {list(x[0].shape)}: must have rank 4", {x_name: x[0]}
    for empty in (x[:, :, :0], x[:, :, :, :0]):
        height, width = empty.shape[2:]
        changes = {x_name: empty} | ({"x_shape": np.array(empty.shape)} if "x_shape" in names else {})
        yield f"{x_name} is {height} x {width} pixels: must not be empty where there are RoIs", changes
    if good.operator.is_gradient:
        yield from _wrong_gradient(good, x_name, good.operator.inputs[0].name)
        return
    for equation in good.operator.equations:
        more, divisors = np.repeat(x, 2, axis=1)[:, : x.shape[1] + 1], " * ".join(equation.by)
        divisor = math.prod(good.attributes[name] for name in equation.by)
        yield f"{equation.of} = {more.shape[1]} must be a multiple of {divisor} ({divisors})", {x_name: more}


def _wrong_gradient(good: Sample, x_name: str, dy_name: str) -> Iterator[tuple[str, dict[str, Array | None]]]:
    x, dy = good.inputs[x_name], good.inputs[dy_name]
    yield f"{dy_name} has shape {list(dy[0].shape)}: must have rank 4", {dy_name: dy[0]}
    empty = dy[:, :, :0]
    yield f"{dy_name} has shape {list(empty.shape)}: must have an output height and width >= 1", {dy_name: empty}
    more = np.repeat(dy, 2, axis=0)
    yield f"shape[0] must be {len(more)} (num_rois of {dy_name})", {dy_name: more}
    if "x_shape" in good.inputs:
        yield "x_shape has shape [3]: shape[0] must be 4", {"x_shape": np.array(x.shape[1:])}
        yield "x_shape has shape [1, 4]: must have rank 1", {"x_shape": np.array([x.shape])}
        yield "x_shape[2] must be >= 0", {"x_shape": np.multiply(x.shape, (1, 1, -1, 1))}
        yield f"x_shape[1] must be {x.shape[1]} (C of ", {"x_shape": np.add(x.shape, (0, 1, 0, 0))}
        yield f"{x_name} has shape {list(x[:1].shape)}: shape[0] must be 2 (N of x_shape)", {x_name: x[:1]}
        yield f"{x_name} is missing: must be given for {good.operator.outputs[1].name}", {x_name: None}


def _wrong_resample(good: Sample) -> Iterator[tuple[str, dict[str, Array | None]]]:
    """What is wrong with the data of DirectML's Resample or of its gradient, and what the errors say."""
    (first, *_), shape = good.inputs.values(), [2, 3, 7, 9]
    name = good.operator.inputs[0].name
    yield f"{name} has shape {list(first.shape[1:])}: rank must be 4 (rank of scales)", {name: first[0]}
    yield f"{name} has shape {[1, *first.shape]}: must have rank 1 or 2 or 3 or 4", {name: first[None]}
    if good.operator.is_gradient:
        yield "x_shape has shape [3]: shape[0] must be 4", {"x_shape": np.array(shape[1:])}
        yield "x_shape has shape [1, 4]: must have rank 1", {"x_shape": np.array([shape])}
        yield "x_shape[1] must be >= 0", {"x_shape": np.array([2, -1, 7, 9])}
        yield "must not have a 0 where InputGradientTensor has elements", {"x_shape": np.array([2, 0, 7, 9])}


def _wrong_attention(good: Sample) -> Iterator[tuple[str, dict[str, Array | None]]]:
    """What is wrong with the data of MSDeformAttn or of its gradient, and what the errors say."""
    value, weights, of_levels = good.inputs["value"], good.inputs["attention_weights"], "spatial_shapes"
    yield "value has shape [40, 2, 3]: must have rank 4", {"value": value[0]}
    yield "attention_weights has shape [2, 20, 2, 2, 3]: shape[1] must be 21", {"attention_weights": weights[:, 1:]}
    yield "spatial_shapes[1] = [0, 2]: must be >= 1", {of_levels: np.array([[5, 6], [0, 2]])}
    too_large = "spatial_shapes[0] = [6, 6] and level_start_index[0] = 9: must lie in the 40 pixels of value"
    yield too_large, {of_levels: np.array([[6, 6], [3, 2]])}
    beyond = f"spatial_shapes[0] = [{2**62}, 4] and level_start_index[0] = 9: must lie"
    yield beyond, {of_levels: np.array([[2**62, 4], [3, 2]])}
    yield "spatial_shapes[1] = [5, 3] and level_start_index[1] = 1: must lie", {of_levels: np.array([[5, 6], [5, 3]])}
    yield "level_start_index[1] = -1: must lie in the 40 pixels", {"level_start_index": np.array([9, -1])}
    yield "level_start_index[1] = 41: must lie in the 40 pixels", {"level_start_index": np.array([9, 41])}
    yield "spatial_shapes has 36 pixels: must lie in the 40 pixels of value, and fill them", {"level_start_index": None}


def with_attributes(model: onnx.ModelProto, attributes: Mapping[str, Any]) -> onnx.ModelProto:
    """The model with attributes of its node that no builder would write; an empty list, which has no type, is left out."""
    (node,) = model.graph.node
    kept = [attribute for attribute in node.attribute if attribute.name not in attributes]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in attributes.items() if value != ())
    return model


def open_ranks(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the shapes of its inputs and outputs: ONNX Runtime then passes any shape on."""
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.ClearField("shape")
    return model


def right(refusal: Refusal) -> Sample:
    """The same call without the fault."""
    return samples(refusal.operator)[0]
