"""RoiAlign as ONNX defines it at opsets 10, 16 and 22, and its gradient, which no ONNX operator computes.

Attributes, defaults and types of RoiAlign are read from `onnx.defs`. ONNX's text gives no rules for attribute values; they
are stated here. `max_interpolated` is this project's third mode.
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


def types_of(schema: onnx.defs.OpSchema) -> dict[str, tuple[ElementType, ...]]:
    """The element types of each type variable of a schema."""
    return {
        constraint.type_param_str: tuple(
            cast(ElementType, name.removeprefix("tensor(").removesuffix(")")) for name in constraint.allowed_type_strs
        )
        for constraint in schema.type_constraints
    }


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
        types=types_of(schema),
        constants=constants,
        standard=("RoiAlign", opset),
        gradient="RoiAlignGrad",
    )


ROI_ALIGN_10 = from_onnx(10, coordinate_transformation_mode="output_half_pixel")
ROI_ALIGN_16 = from_onnx(16)
ROI_ALIGN_22 = from_onnx(22)

ROI_ALIGN_GRAD = Operator(
    name="RoiAlignGrad",
    family="roi_align",
    function="roi_align_grad",
    doc=(
        "Gradient of RoiAlign. dX is the transpose of the forward map, accumulated over RoIs; drois is the derivative "
        "with respect to the stored coordinates, spatial_scale included. X is needed for drois and the max modes only."
    ),
    # The output sizes are dY's.
    attributes=tuple(a for a in ROI_ALIGN_22.attributes if not a.name.startswith("output_")),
    inputs=(
        Tensor("dY", "T1", AXES["Y"], doc="Gradient with respect to Y."),
        Tensor("rois", "T1", AXES["rois"], doc="RoIs of the forward operator, [[x1, y1, x2, y2], ...]."),
        Tensor("batch_indices", "T2", AXES["batch_indices"], doc="Index of the image of each RoI."),
        Tensor("x_shape", "T2", (4,), values=("N", "C", "H", "W"), doc="Shape of X."),
        Tensor(
            "X",
            "T1",
            AXES["X"],
            optional=True,
            needed_for=("drois",),
            needed_unless=("mode", "avg"),
            doc="Feature map; needed for drois and for the max modes.",
        ),
    ),
    outputs=(
        Tensor("dX", "T1", AXES["X"], optional=True, doc="Gradient with respect to X."),
        Tensor("drois", "T1", AXES["rois"], optional=True, doc="Gradient with respect to rois."),
    ),
    types=ROI_ALIGN_22.types,
)
