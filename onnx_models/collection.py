# SPDX-License-Identifier: MIT
"""The models that `python -m onnx_models write` writes, and their entries in its manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import onnx

from onnx_models.build import model
from ortops.operators import OPERATORS
from ortops.spec import AttributeValue

SIDE = 7
"""The output size of RoiAlign in most detectors' box heads."""

ATTRIBUTES: Mapping[str, AttributeValue] = {
    "output_height": SIDE,
    "output_width": SIDE,
    "pooled_shape": (SIDE, SIDE),
    # Twice the height and width, as in decoders.
    "scales": (1.0, 1.0, 2.0, 2.0),
}
"""Attributes of the written nodes that differ from their defaults."""


def collection() -> Iterator[tuple[str, str, onnx.ModelProto]]:
    """Yield the name, the element type and the model of each file, grouped by name.

    ``roi_align_v16`` has this project's operator, ``standard_roi_align_v16`` ONNX's own.
    """
    for operator in OPERATORS:
        version = f"_v{operator.standard[1]}" if operator.standard else ""
        given = {name: value for name, value in ATTRIBUTES.items() if name in {a.name for a in operator.attributes}}
        for standard in (False, True) if operator.standard else (False,):
            for kind in operator.element_types(operator.inputs[0]):
                name = f"{'standard_' if standard else ''}{operator.function}{version}"
                yield name, kind, model(operator, standard=standard, element_type=kind, attributes=given)


def describe(model: onnx.ModelProto) -> dict[str, object]:
    """Return the manifest's entry for a model: its nodes, inputs and outputs, and the SHA-256 of its bytes."""
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
