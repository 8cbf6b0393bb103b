# SPDX-License-Identifier: MIT
"""Casts around GridSample nodes for which ONNX Runtime has no kernel on the CPU.

ONNX Runtime (1.20 to 1.32) has GridSample in float at every opset, and in double from 20 on, always with one type for X and
grid; it casts float16 to float itself. ONNX allows two types, and bfloat16 from opset 22 on. PyTorch's exporter writes a
float X with a double grid.
"""

from __future__ import annotations

import re
from typing import Any

import onnx

from ortops.foreign.protos import attribute, import_domain, normalize_domain, onnx_opset, unused_name

_NO_KERNEL = re.compile(r"(Could not find an implementation|Failed to find kernel) for GridSample\(")
"""ONNX Runtime's messages for a GridSample node that it has no kernel for."""

_FLOAT, _DOUBLE, _HALF, _BFLOAT16 = (
    getattr(onnx.TensorProto, name) for name in ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16")
)
_COMPUTED = {_FLOAT: _FLOAT, _DOUBLE: _DOUBLE, _HALF: _FLOAT, _BFLOAT16: _FLOAT}
"""The type that a node computes in, by the type of X."""

_SAMPLER = "mmcv"
"""The domain of grid_sampler, which sessions compute in double at any opset (`ortops.foreign.onnx_equivalents`)."""

_MODES = {"bilinear": 0, "linear": 0, "nearest": 1, "bicubic": 2, "cubic": 2}
_PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}


def lacks_grid_sample(error: Exception) -> bool:
    """Whether ONNX Runtime refused a model for a GridSample node that it has no kernel for."""
    return bool(_NO_KERNEL.search(str(error)))


def cast_samples(model: onnx.ModelProto) -> bool:
    """Put casts around GridSample nodes of a model's graph that have no kernel, and return whether there are any.

    The nodes then compute in the type of X, and in float if this is float16 or bfloat16. Nodes in subgraphs stay.
    """
    for scope in (*model.opset_import, *model.graph.node):
        scope.domain = normalize_domain(scope.domain)  # ONNX's inference of types does not know the name ai.onnx
    opset = onnx_opset(model) or 0
    types, names = _types(model), {name for node in model.graph.node for name in (*node.input, *node.output)}
    before, nodes = list(model.graph.node), list[onnx.NodeProto]()
    for node in before:
        kinds = [types.get(name, 0) for name in node.input] if node.op_type == "GridSample" and not node.domain else []
        nodes += _with_casts(node, kinds, opset, names) if kinds and set(kinds) <= _COMPUTED.keys() else [node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    if any(node.domain == _SAMPLER for node in nodes):
        import_domain(model, _SAMPLER, 1)
    return nodes != before


def _types(model: onnx.ModelProto) -> dict[str, int]:
    """The element types of a graph's tensors, by name. Shapes are of no use, and could confuse ONNX's inference."""
    graph = model.graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.input)}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    computed = {name for node in graph.node for name in node.output}
    inputs = [
        onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in types.items() if name not in computed
    ]
    bare = onnx.helper.make_model(
        onnx.helper.make_graph(graph.node, "types", inputs, []), opset_imports=model.opset_import
    )
    inferred = onnx.shape_inference.infer_shapes(bare).graph.value_info
    return types | {value.name: value.type.tensor_type.elem_type for value in inferred}


def _with_casts(node: onnx.NodeProto, kinds: list[int], opset: int, names: set[str]) -> list[onnx.NodeProto]:
    """The nodes in place of a GridSample node whose inputs have these types: itself if it has a kernel."""
    kind, is_old_double = _COMPUTED[kinds[0]], kinds[0] == _DOUBLE and opset < 20
    if {_COMPUTED[other] for other in kinds} == {kind} and not is_old_double and _BFLOAT16 not in kinds:
        return [node]
    inputs = [
        name if other == kind else unused_name(f"{name}/Cast", names)
        for name, other in zip(node.input, kinds, strict=True)
    ]
    output = node.output[0] if kinds[0] == kind else unused_name(f"{node.output[0]}/Cast", names)
    pairs = [(old, new) for old, new in zip(node.input, inputs, strict=True) if old != new]
    nodes = [onnx.helper.make_node("Cast", [old], [new], to=kind) for old, new in pairs]
    values: dict[str, Any] = {"mode": "linear", "padding_mode": "zeros", "align_corners": 0}
    values = {name: attribute(node, name, default) for name, default in values.items()}
    if is_old_double:
        values["interpolation_mode"], values["padding_mode"] = (
            _MODES[values.pop("mode")],
            _PADDINGS[values["padding_mode"]],
        )
    op_type, domain = ("grid_sampler", _SAMPLER) if is_old_double else ("GridSample", "")
    nodes.append(onnx.helper.make_node(op_type, inputs, [output], node.name, domain=domain, **values))
    if output != node.output[0]:
        nodes.append(onnx.helper.make_node("Cast", [output], node.output, to=kinds[0]))
    return nodes
