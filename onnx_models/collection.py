"""The models that `python -m onnx_models write` writes, and what its manifest says of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import onnx

from onnx_models.build import GRADIENT
from onnx_models.dml_resample import DML_RESAMPLE, DML_RESAMPLE_GRAD, dml_resample, dml_resample_grad
from onnx_models.dml_roi_align import DML_ROI_ALIGN, DML_ROI_ALIGN_GRAD, dml_roi_align, dml_roi_align_grad
from onnx_models.roi_align import ROI_ALIGN, joint, roi_align, roi_align_grad

# The output size of the box heads that RoiAlign is mostly used in. All other attributes have their defaults.
SIDE = 7

# Images made twice as high and wide, as decoders do.
SCALES = (1.0, 1.0, 2.0, 2.0)

FLOATS, DML_FLOATS = "T1", "T"
"""The type variable of the feature map, the RoIs and the result: in ONNX's operators, and in DirectML's."""


def collection() -> Iterator[tuple[str, str, onnx.ModelProto]]:
    """Name, element type and model of each file, those of one name together.

    ``roi_align_v16`` has this project's operator, ``standard_roi_align_v16`` ONNX's own.
    """
    for opset, operator in ROI_ALIGN.items():
        for prefix, standard in (("", False), ("standard_", True)):
            for kind in operator.types[FLOATS]:
                made = roi_align(opset, standard=standard, element_type=kind, output_height=SIDE, output_width=SIDE)
                yield f"{prefix}roi_align_v{opset}", kind, made
    for kind in GRADIENT.types[FLOATS]:
        yield "roi_align_grad", kind, roi_align_grad(element_type=kind)
    for kind in GRADIENT.types[FLOATS]:
        yield "joint_v22", kind, joint(element_type=kind, output_height=SIDE, output_width=SIDE)
    for kind in DML_ROI_ALIGN.types[DML_FLOATS]:
        yield "dml_roi_align", kind, dml_roi_align(element_type=kind, output_height=SIDE, output_width=SIDE)
    for kind in DML_ROI_ALIGN_GRAD.types[DML_FLOATS]:
        yield "dml_roi_align_grad", kind, dml_roi_align_grad(element_type=kind)
    for kind in DML_RESAMPLE.types[DML_FLOATS]:
        yield "dml_resample", kind, dml_resample(element_type=kind, scales=SCALES)
    for kind in DML_RESAMPLE_GRAD.types[DML_FLOATS]:
        yield "dml_resample_grad", kind, dml_resample_grad(element_type=kind, scales=SCALES)


def describe(model: onnx.ModelProto) -> dict[str, object]:
    """What a manifest says of `model`: its nodes, inputs and outputs, and the SHA-256 of its bytes."""
    opsets = {item.domain: item.version for item in model.opset_import}
    return {
        "ir_version": model.ir_version,
        "nodes": [
            {
                "operator": node.op_type,
                "domain": node.domain,
                "opset": opsets[node.domain],
                "attributes": {item.name: _plain(onnx.helper.get_attribute_value(item)) for item in node.attribute},
            }
            for node in model.graph.node
        ],
        "inputs": [_value(value) for value in model.graph.input],
        "outputs": [_value(value) for value in model.graph.output],
        "sha256": hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest(),
    }


def _plain(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


def _value(value: onnx.ValueInfoProto) -> dict[str, object]:
    tensor = value.type.tensor_type
    return {
        "name": value.name,
        "type": onnx.TensorProto.DataType.Name(tensor.elem_type).lower(),
        "shape": [dim.dim_param if dim.HasField("dim_param") else dim.dim_value for dim in tensor.shape.dim],
    }
