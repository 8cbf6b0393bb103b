# SPDX-License-Identifier: MIT OR Apache-2.0
"""Make the cases of a scenario: one for each version of the operators that can express it and each element type.

`make` takes tensors that are named by their roles, which are x, rois, indices, dy, x_shape, y, dx and drois, and makes the
cases of an operator and of its gradient. A `Rule` describes the sampling of ONNX's and DirectML's RoiAlign at once, and what
the other operators with RoIs have of it. `expand` makes the cases of one function from tensors by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from conformance.case import Array, Case, Source
from conformance.cases.scenes import Scene
from conformance.error_terms import unit_roundoff
from conformance.expected_values import by_reference
from conformance.families.rois import DIRECTML_NAMES, ONNX_NAMES
from ortops.operators.asked import OPERATORS
from ortops.operators.dml_roi_align import UINT32_MAX
from ortops.spec import ELEMENT_DTYPES, Attribute, AttributeValue, Operator

BOTH = ("roi_align", "dml_roi_align")
ROTATED = "roi_align_rotated"
POOL = "max_roi_pool"
RESAMPLE = "dml_resample"
ATTENTION = "ms_deform_attn"
FLOATS = ("float16", "bfloat16", "float", "double")
NAMES = {
    operator.function: {**(DIRECTML_NAMES if operator.name.startswith("Dml") else ONNX_NAMES), "x_shape": "x_shape"}
    for operator in OPERATORS
    if not operator.is_gradient and operator.inputs[0].name in (ONNX_NAMES["x"], DIRECTML_NAMES["x"])
}
"""The names of tensors by role, for each operator on one map."""

Attributes = Mapping[str, AttributeValue]
NONE: Attributes = MappingProxyType({})
NO_ARRAYS: Mapping[str, Array] = MappingProxyType({})

INPUT_OFFSETS = {None: 0.5, "half_pixel": 0.5, "output_half_pixel": 0.0}
"""DirectML's input_pixel_offset for ONNX's coordinate modes. DirectML does not raise sizes to 1."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How RoIs are sampled, in ONNX's terms.

    mode: avg, max or max_interpolated; None for the default, avg. DirectML's maximum is max_interpolated.
    coordinates: coordinate_transformation_mode; None for the default of ONNX's opset, and half_pixel for DirectML.
    scale: pixels per unit of the stored coordinates.
    ratio: the number of samples of a bin along an axis; 0 for adaptive sampling.
    """

    mode: str | None = None
    coordinates: str | None = None
    scale: float = 1.0
    ratio: int = 0

    def attributes(self, operator: str, bins: Sequence[int]) -> dict[str, AttributeValue]:
        """The attributes of a node of an operator, a key of `NAMES`, with height and width of the output."""
        sizes: dict[str, AttributeValue] = {"output_height": bins[0], "output_width": bins[1]}
        if operator == POOL:
            return {"pooled_shape": tuple(bins), "spatial_scale": self.scale}
        if operator == ROTATED:
            return {"spatial_scale": self.scale, "sampling_ratio": self.ratio, **sizes}
        if not operator.startswith("dml"):
            words = {"mode": self.mode, "coordinate_transformation_mode": self.coordinates}
            given = {name: value for name, value in words.items() if value is not None}
            return {**given, "spatial_scale": self.scale, "sampling_ratio": self.ratio, **sizes}
        return {
            "reduction_function": "average" if self.mode in (None, "avg") else "max",
            "spatial_scale_x": self.scale,
            "spatial_scale_y": self.scale,
            "input_pixel_offset": INPUT_OFFSETS[self.coordinates],
            "minimum_samples_per_output": self.ratio or 1,
            "maximum_samples_per_output": self.ratio or UINT32_MAX,
            **sizes,
        }


def make(
    scenario: str,
    operators: str | Sequence[str],
    how: Rule | Attributes,
    tensors: Mapping[str, Array],
    outputs: Sequence[str] = (),
    *,
    expected: Mapping[str, Array] = NO_ARRAYS,
    types: Collection[str] = FLOATS,
    more: Attributes = NONE,
    variant: str | None = None,
    **rest: Any,
) -> Iterator[Case]:
    """Make the cases of one scenario for operators and their gradients.

    Args:
        scenario: the part `family/scenario` of the ids.
        operators: the function of an operator, a key of `NAMES`, or several.
        how: the attributes of the operators; a gradient gets those that it has. A rule, whose bins are those of dy or y.
        tensors: the inputs by role. A gradient gets x only if its outputs or its attributes need it.
        outputs: y for the operator, dx and drois for its gradient; empty for those of `expected`.
        expected: the outputs by role; empty if the reference computes them.
        types: element types; those that cannot represent the RoIs exactly are left out.
        more: attributes that are not in the rule, or that replace those of the rule.
        variant: further parts of the id; None for the string attributes of the rule.
        rest: further arguments of `expand`.
    """
    like_y = tensors.get("dy", expected.get("y"))
    bins = (1, 1) if like_y is None else like_y.shape[2:]
    rois = tensors.get("rois", np.zeros(0))
    with np.errstate(over="ignore"):
        types = [name for name in types if np.array_equal(rois.astype(ELEMENT_DTYPES[name]), rois)]
    for operator in [operators] if isinstance(operators, str) else operators:
        attributes = how.attributes(operator, bins) if isinstance(how, Rule) else how
        words = [value for value in attributes.values() if isinstance(value, str)] if isinstance(how, Rule) else []
        attributes, names = {**attributes, **more}, NAMES[operator]
        for function, roles in ((operator, ("y",)), (f"{operator}_grad", ("dx", "drois"))):
            asked = [role for role in outputs or expected if role in roles]
            definition = next(definition for definition in OPERATORS if definition.function == function)
            needed = {
                tensor.name
                for tensor in definition.inputs
                if not tensor.optional or definition.why_required(tensor, attributes, [names[role] for role in asked])
            }
            if asked:
                yield from expand(
                    scenario,
                    function=function,
                    attributes=attributes,
                    inputs={names[role]: array for role, array in tensors.items() if names[role] in needed},
                    outputs=[names[role] for role in asked],
                    expected={names[role]: expected[role] for role in asked} if expected else None,
                    types=types,
                    variant="/".join(words) if variant is None else variant,
                    **rest,
                )


def of_scene(
    family: str,
    scene: Scene,
    outputs: Sequence[str],
    mode: str | None = None,
    coordinates: str | None = None,
    tensors: Mapping[str, Array] = NO_ARRAYS,
    operators: str | Sequence[str] = BOTH,
    **rest: Any,
) -> Iterator[Case]:
    """Make the cases of one scene.

    Args:
        family: the first part of the ids after the function; the name of the scene is the second.
        scene: the tensors and the sampling.
        outputs, operators: see `make`.
        mode, coordinates: see `Rule`.
        tensors: those that replace tensors of the scene.
        rest: further arguments of `make`.
    """
    rule, tensors = Rule(mode, coordinates, scene.spatial_scale, scene.sampling_ratio), {**scene.tensors, **tensors}
    rest = {"note": scene.note, "basis": scene.basis, **rest}
    yield from make(f"{family}/{scene.name}", operators, rule, tensors, outputs, **rest)


def expand(
    scenario: str,
    *,
    function: str,
    note: str,
    attributes: Mapping[str, AttributeValue],
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    source: Source | None = None,
    types: Collection[str] = FLOATS,
    variant: str = "",
    write_defaults: bool = True,
    published_type: str | None = None,
    input_error: float = 0.0,
    **rest: Any,
) -> Iterator[Case]:
    """Make the cases of a scenario.

    Args:
        scenario: the part `family/scenario` of the ids.
        function: the function of the operators; every operator that computes it gets cases.
        note: a description of what the cases test.
        attributes: those of the function; an operator that fixes one to another value gets no case. Words are those of
            the newest version.
        inputs: by name, in float64 or integers. They are rounded to the element type; integers keep a type that the
            operator allows.
        outputs: the names of the outputs.
        source: the source of the expected values; None for the reference.
        types: element types; those that the operator lacks are left out.
        variant: further parts of the id, before the type.
        write_defaults: whether attributes that are left out are written on the node with their defaults.
        published_type: the element type in which the expected values were published; in other types, the rounding of
            the inputs is part of `input_error`.
        input_error: see `Case`.
        rest: further fields of `Case`.
    """
    for operator in OPERATORS:
        is_other = any(attributes.get(name, value) != value for name, value in operator.constants.items())
        if operator.function != function or is_other:
            continue
        given = [a for a in operator.attributes if write_defaults or a.name in attributes]
        version = [f"v{operator.standard[1]}"] if operator.standard else []
        known = dict.fromkeys(name for allowed in operator.types.values() for name in allowed if name in FLOATS)
        for element_type in (name for name in known if name in types):
            dtype = ELEMENT_DTYPES[element_type]
            yield Case(
                id="/".join([function, scenario, *version, *filter(None, [variant]), element_type]),
                source=source or by_reference(function),
                operator=operator.name,
                attributes={a.name: _renamed(function, a, attributes.get(a.name, a.default)) for a in given},
                inputs={name: _rounded(operator, name, array, dtype) for name, array in inputs.items()},
                outputs=tuple(outputs),
                note=note,
                input_error=input_error + _rounding(inputs, element_type, published_type),
                **rest,
            )


def _renamed(function: str, attribute: Attribute, value: AttributeValue) -> AttributeValue:
    """A value of an attribute; a word of the newest version of the function, as the attribute's own version has it."""
    newest = next(operator for operator in reversed(OPERATORS) if operator.function == function)
    words = next((a.choices for a in newest.attributes if a.name == attribute.name), ())
    return attribute.choices[words.index(value)] if value in words else value


def _rounded(operator: Operator, name: str, array: Array, dtype: np.dtype[Any]) -> Array:
    tensor = next(tensor for tensor in operator.inputs if tensor.name == name)
    allowed = [ELEMENT_DTYPES[element_type] for element_type in operator.element_types(tensor)]
    if dtype in allowed:
        return array.astype(dtype)
    # Indices keep their type if the operator allows it; otherwise they get its first one.
    return array if array.dtype in allowed else array.astype(allowed[0])


def _rounding(inputs: Mapping[str, Array], element_type: str, published_type: str | None) -> float:
    if published_type is None or element_type in (published_type, "double"):
        return 0.0
    return unit_roundoff(ELEMENT_DTYPES[element_type]) * float(np.max(np.abs(inputs["X"])))
