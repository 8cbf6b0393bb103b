# SPDX-License-Identifier: MIT
"""Reads the nodes of a model in ONNX Runtime's own format (`.ort`), by the classes that ONNX Runtime's wheel has for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx

from ortops.foreign.protos import normalize_domain

_SINCE = 1
"""The version of each custom operator. So ONNX Runtime writes it for a node that a custom operator computes."""


def is_ort_format(content: Any) -> bool:
    """Whether the bytes of a model, or a map of its file, are in ONNX Runtime's own format."""
    return bool(content[4:8] == b"ORTM")


def read_nodes(content: Any) -> tuple[int, list[onnx.NodeProto]]:
    """The opset of ONNX's domain, and the nodes that custom operators compute, also in subgraphs; none of damaged content.

    A node has its name, operator, domain and outputs, but no inputs and attributes. A node that ONNX Runtime's own kernel
    computed when the model was written is left out, since ONNX Runtime then accepts no other kernel.
    """
    from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs.InferenceSession import InferenceSession

    try:
        model = InferenceSession.GetRootAs(content).Model()
        imports = [model.OpsetImport(i) for i in range(model.OpsetImportLength())]
        opsets = [item.Version() for item in imports if not normalize_domain(item.Domain().decode())]
        return max(opsets, default=0), list(_nodes(model.Graph(), set()))
    except Exception:  # noqa: BLE001  # flatbuffers checks nothing: offsets lead anywhere
        return 0, []


def _nodes(graph: Any, seen: set[int]) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph; a graph is read once, wherever it lies in a damaged file."""
    if graph is None or graph._tab.Pos in seen:  # noqa: SLF001 - where the graph lies
        return
    seen.add(graph._tab.Pos)  # noqa: SLF001
    for node in map(graph.Nodes, range(graph.NodesLength())):
        if node.SinceVersion() == _SINCE:
            outputs = [node.Outputs(i) for i in range(node.OutputsLength())]
            texts = {"name": node.Name(), "op_type": node.OpType(), "domain": node.Domain()}
            yield onnx.NodeProto(**texts, output=outputs)
        for attribute in map(node.Attributes, range(node.AttributesLength())):
            for inner in (attribute.G(), *map(attribute.Graphs, range(attribute.GraphsLength()))):
                yield from _nodes(inner, seen)
