"""RoiAlign as ONNX defines it at opsets 10, 16 and 22. Attributes, defaults and types are read from `onnx.defs`.

ONNX's text gives no rules for attribute values; they are stated here. `max_interpolated` is this project's third mode.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import onnx

from ortops.spec import Attribute, AttributeType, AttributeValue, ElementType, Operator, Tensor

RULES: dict[str, dict[str, object]] = {
    "mode": {"choices": ("avg", "max", "max_interpolated")},
    "coordinate_transformation_mode": {"choices": ("half_pixel", "output_half_pixel")},
    "output_height": {"minimum": 1},
    "output_width": {"minimum": 1},
    "sampling_ratio": {"minimum": 0},
    "spatial_scale": {"positive": True},
}

AXES: dict[str, tuple[int | str, ...]] = {
    "X": ("N", "C", "H", "W"),
    "rois": ("num_rois", 4),
    "batch_indices": ("num_rois",),
    "Y": ("num_rois", "C", "output_height", "output_width"),
}


def _attribute(schema: onnx.defs.OpSchema.Attribute) -> Attribute:
    value = onnx.helper.get_attribute_value(schema.default_value)
    default = cast(AttributeValue, value.decode() if isinstance(value, bytes) else value)
    kind = cast(AttributeType, schema.type.name)  # type: ignore[attr-defined]
    return replace(Attribute(schema.name, kind, default, schema.description.strip()), **RULES[schema.name])  # type: ignore[arg-type]


def _tensor(schema: onnx.defs.OpSchema.FormalParameter) -> Tensor:
    return Tensor(schema.name, schema.type_str, AXES[schema.name], doc=schema.description.strip())


def from_onnx(opset: int, **constants: AttributeValue) -> Operator:
    """The definition of RoiAlign at `opset`; `constants` are the arguments that this opset has no attribute for."""
    schema = onnx.defs.get_schema("RoiAlign", opset)
    return Operator(
        name=f"RoiAlign_{opset}",
        family="roi_align",
        function="roi_align",
        doc=(schema.doc or "").strip(),
        attributes=tuple(_attribute(a) for _, a in sorted(schema.attributes.items())),
        inputs=tuple(map(_tensor, schema.inputs)),
        outputs=tuple(map(_tensor, schema.outputs)),
        types={
            constraint.type_param_str: tuple(
                cast(ElementType, name.removeprefix("tensor(").removesuffix(")"))
                for name in constraint.allowed_type_strs
            )
            for constraint in schema.type_constraints
        },
        constants=constants,
        standard=("RoiAlign", opset),
        gradient="RoiAlignGrad",
    )


ROI_ALIGN_10 = from_onnx(10, coordinate_transformation_mode="output_half_pixel")
ROI_ALIGN_16 = from_onnx(16)
ROI_ALIGN_22 = from_onnx(22)
