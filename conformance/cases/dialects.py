"""Make the cases of an operator and of its gradient from tensors that are named by their roles.

The roles are x, rois, indices, dy, x_shape, y, dx and drois. A `Rule` describes the sampling of ONNX's and DirectML's
RoiAlign at once. RoIAlignRotated has other RoIs, so it gets cases only where it is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from conformance.case import Array, Case
from conformance.cases.expand import FLOATS, expand
from conformance.cases.scenes import Scene
from conformance.families.rois import DIRECTML_NAMES, ONNX_NAMES
from ortops.operators import OPERATORS
from ortops.operators.dml_roi_align import UINT32_MAX
from ortops.spec import ELEMENT_DTYPES, AttributeValue

BOTH = ("roi_align", "dml_roi_align")
ROTATED = "roi_align_rotated"
POOL = "max_roi_pool"
RESAMPLE = "dml_resample"
NAMES = {
    operator.function: {**(DIRECTML_NAMES if operator.name.startswith("Dml") else ONNX_NAMES), "x_shape": "x_shape"}
    for operator in OPERATORS
    if not operator.is_gradient
}
"""The names of tensors by role, for each operator."""

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

    def attributes(self, dialect: str) -> dict[str, AttributeValue]:
        """The attributes of a node: of RoiAlign for "roi_align", of DmlRoiAlign for "dml_roi_align", and so on."""
        if dialect == ROTATED:
            return {"spatial_scale": self.scale, "sampling_ratio": self.ratio}
        if not dialect.startswith("dml"):
            words = {"mode": self.mode, "coordinate_transformation_mode": self.coordinates}
            given = {name: value for name, value in words.items() if value is not None}
            return {**given, "spatial_scale": self.scale, "sampling_ratio": self.ratio}
        return {
            "reduction_function": "average" if self.mode in (None, "avg") else "max",
            "spatial_scale_x": self.scale,
            "spatial_scale_y": self.scale,
            "input_pixel_offset": INPUT_OFFSETS[self.coordinates],
            "minimum_samples_per_output": self.ratio or 1,
            "maximum_samples_per_output": self.ratio or UINT32_MAX,
        }


def make_cases(
    scenario: str,
    operator: str,
    attributes: Attributes,
    tensors: Mapping[str, Array],
    outputs: Sequence[str] = (),
    *,
    expected: Mapping[str, Array] = NO_ARRAYS,
    types: Sequence[str] = FLOATS,
    **rest: Any,
) -> Iterator[Case]:
    """Make the cases of one scenario for an operator and its gradient.

    Args:
        scenario: the part `family/scenario` of the ids.
        operator: the function of the operator: a key of `NAMES`.
        attributes: those of the operator; the gradient gets those that it has.
        tensors: the inputs by role. A gradient gets x only if its outputs or its attributes need it.
        outputs: y for the operator, dx and drois for its gradient; empty for those of `expected`.
        expected: the outputs by role; empty if the reference computes them.
        types: element types; those that cannot represent the RoIs exactly are left out.
        rest: further arguments of `expand`.
    """
    names = NAMES[operator]
    for function, roles in ((operator, ("y",)), (f"{operator}_grad", ("dx", "drois"))):
        asked = [role for role in outputs or expected if role in roles]
        if not asked:
            continue
        definition = next(definition for definition in OPERATORS if definition.function == function)
        needed = {
            tensor.name
            for tensor in definition.inputs
            if not tensor.optional or definition.why_required(tensor, attributes, [names[role] for role in asked])
        }
        yield from expand(
            scenario,
            function=function,
            attributes=attributes,
            inputs={names[role]: array for role, array in tensors.items() if names[role] in needed},
            outputs=[names[role] for role in asked],
            expected={names[role]: expected[role] for role in asked} if expected else None,
            types=[name for name in types if _are_held(tensors.get("rois", np.zeros(0)), name)],
            **rest,
        )


def _are_held(rois: Array, element_type: str) -> bool:
    with np.errstate(over="ignore"):
        return np.array_equal(rois.astype(ELEMENT_DTYPES[element_type]), rois)


def of_rule(
    scenario: str,
    rule: Rule,
    tensors: Mapping[str, Array],
    outputs: Sequence[str] = (),
    *,
    bins: tuple[int, int] = (1, 1),
    more: Attributes = NONE,
    dialects: Sequence[str] = BOTH,
    variant: str | None = None,
    **rest: Any,
) -> Iterator[Case]:
    """Make the cases of one scenario whose sampling is given by a rule.

    Args:
        scenario: the part `family/scenario` of the ids.
        rule: how the RoIs are sampled.
        tensors, outputs: see `make_cases`.
        bins: height and width of the output.
        more: attributes that are not in the rule, or that replace those of the rule.
        dialects: some of `BOTH`, or `ROTATED`.
        variant: further parts of the id; None for the string attributes of the rule.
        rest: further arguments of `make_cases`.
    """
    for dialect in dialects:
        sampling = rule.attributes(dialect)
        words = "/".join(value for value in sampling.values() if isinstance(value, str))
        attributes = {**sampling, "output_height": bins[0], "output_width": bins[1], **more}
        yield from make_cases(
            scenario, dialect, attributes, tensors, outputs, variant=words if variant is None else variant, **rest
        )


def of_scene(
    family: str,
    scene: Scene,
    outputs: Sequence[str],
    mode: str | None = None,
    coordinates: str | None = None,
    tensors: Mapping[str, Array] | None = None,
    **rest: Any,
) -> Iterator[Case]:
    """Make the cases of one scene.

    Args:
        family: the first part of the ids after the function; the name of the scene is the second.
        scene: the tensors and the sampling.
        outputs: see `make_cases`.
        mode, coordinates: see `Rule`.
        tensors: other tensors than those of the scene.
        rest: further arguments of `of_rule`.
    """
    rule = Rule(mode, coordinates, scene.spatial_scale, scene.sampling_ratio)
    rest = {"note": scene.note, "basis": scene.basis, **rest}
    yield from of_rule(f"{family}/{scene.name}", rule, tensors or scene.tensors, outputs, bins=scene.bins, **rest)


def pooled(
    scenario: str,
    x: Array,
    rois: Array | Sequence[Sequence[float]],
    dy: Array,
    outputs: Sequence[str] = (),
    *,
    spatial_scale: float = 1.0,
    **rest: Any,
) -> Iterator[Case]:
    """Make the cases of MaxRoiPool and its gradient.

    Args:
        scenario: the part `family/scenario` of the ids.
        x: the map, [N, C, H, W].
        rois: [R, 5].
        dy: the gradient, [R, C, PH, PW]; its shape is also that of Y.
        outputs: see `make_cases`.
        spatial_scale: pixels per unit of the RoIs.
        rest: further arguments of `make_cases`.
    """
    attributes = {"pooled_shape": dy.shape[2:], "spatial_scale": spatial_scale}
    tensors = {"x": x, "rois": np.array(rois, np.float64).reshape(-1, 5), "dy": dy}
    yield from make_cases(scenario, POOL, attributes, tensors, outputs, **rest)
