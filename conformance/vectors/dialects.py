"""Make cases of ONNX's RoiAlign, DirectML's RoiAlign and their gradients from one description of the sampling.

RoIAlignRotated has other RoIs, so its cases are made only where it is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from conformance.case import Array, Case
from conformance.geometry.rois import DIRECTML_NAMES, ONNX_NAMES
from conformance.vectors.expand import expand
from ortops.operators.dml_roi_align import UINT32_MAX
from ortops.spec import AttributeValue

BOTH = ("roi_align", "dml_roi_align")
ROTATED = "roi_align_rotated"
NAMES = dict(zip((*BOTH, ROTATED), (ONNX_NAMES, DIRECTML_NAMES, ONNX_NAMES), strict=True))

OF_THE_OUTPUT = ("output_height", "output_width", "out_of_bounds_input_value")
"""The attributes that gradients do not have."""

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
        if dialect == "roi_align":
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
    rule: Rule,
    tensors: Mapping[str, Array],
    outputs: Sequence[str],
    *,
    bins: tuple[int, int] = (1, 1),
    more: Mapping[str, AttributeValue] = MappingProxyType({}),
    expected: Mapping[str, Array] | None = None,
    dialects: Sequence[str] = BOTH,
    variant: str | None = None,
    **rest: Any,
) -> Iterator[Case]:
    """Make the cases of one scenario. Tensors are named by their roles: x, rois, indices, dy, x_shape, y, dx and drois.

    Args:
        scenario: the part `family/scenario` of the ids.
        rule: how the RoIs are sampled.
        tensors: the inputs; a gradient without drois gets the map x only if its mode needs it.
        outputs: y for the operator, dx and drois for its gradient.
        bins: height and width of the output.
        more: attributes that are not in the rule, or that replace those of the rule.
        expected: the outputs; None if the reference computes them.
        dialects: some of `BOTH`, or `ROTATED`.
        variant: further parts of the id; None for the string attributes of the rule.
        rest: further arguments of `expand`.
    """
    is_map_read = rule.mode not in (None, "avg") or "drois" in outputs
    needed_backward = ["dy", "rois", "indices", "x_shape", *(["x"] if is_map_read else [])]
    for dialect in dialects:
        names, sampling = NAMES[dialect], rule.attributes(dialect)
        words = "/".join(value for value in sampling.values() if isinstance(value, str))
        forward = {**sampling, "output_height": bins[0], "output_width": bins[1], **more}
        backward = {name: value for name, value in forward.items() if name not in OF_THE_OUTPUT}
        for function, needed, roles, attributes in (
            (dialect, ["x", "rois", "indices"], {"y"}, forward),
            (f"{dialect}_grad", needed_backward, {"dx", "drois"}, backward),
        ):
            asked = [role for role in outputs if role in roles]
            if asked:
                yield from expand(
                    scenario,
                    function=function,
                    variant=words if variant is None else variant,
                    attributes=attributes,
                    inputs={names.get(role, role): tensors[role] for role in needed},
                    outputs=[names[role] for role in asked],
                    expected=None if expected is None else {names[role]: expected[role] for role in asked},
                    **rest,
                )
