# SPDX-License-Identifier: MIT
"""Upgrade models to a newer opset of ONNX.

ONNX's own converter (onnx.version_converter, of onnx 1.23) is not used: it drops functions and sparse initializers,
silently changes the results of Hardmax and of linear Resize and Upsample, drops the training mode of BatchNormalization,
gives float constants to Clip and Pad of double, and reads no model beyond 2 GiB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import onnx

from onnx_models.tools.nodes import NodeBuilder
from onnx_models.tools.protos import (
    Scope,
    assign,
    copy_model,
    label,
    normalize_domain,
    onnx_opset,
    subgraphs,
    tensor_names,
)
from onnx_models.tools.types import constant_attribute

DEFAULT_IR_VERSION = 10
DEFAULT_OPSET = 21
"""The newest IR version and opset that onnxruntime 1.20 reads, the oldest version that this project supports."""

OLDEST = 7
"""The oldest opset that ONNX Runtime supports. Before it, broadcasting was an attribute."""

NEWEST = 26
"""The newest opset whose changes are known to `CHANGES`."""

_TYPES = {
    "value_ints": onnx.AttributeProto.INTS,
    "value_floats": onnx.AttributeProto.FLOATS,
    "value_int": onnx.AttributeProto.INT,
    "value_float": onnx.AttributeProto.FLOAT,
}
"""The types of the attributes of Constant."""


def upgrade_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Return a copy of a model that, with its functions, has at least the given opset, or the model if it already has.

    The copy computes the same. Nodes in subgraphs are converted as well. The data of initializers is not read, except for
    the scales of Resize before opset 11.

    Args:
        model: a model of opset 7 or later.
        opset: a version of ONNX's own domain, 18 or later.

    Raises:
        ValueError: the model has no opset of ONNX's domain or one before 7, `opset` is newer than `NEWEST`, or a node has
            no equivalent at the new opset.

    Source: ONNX operator specification, changelog of the operators.
    """
    version = onnx_opset(model)
    if version is None:
        raise ValueError("the model has no opset import of ONNX's domain: must have one")
    versions = [known for function in (model, *model.functions) if (known := onnx_opset(function)) is not None]
    if min(versions) >= opset:
        return model
    for known in versions:
        if known < OLDEST:
            raise ValueError(f"opset {known} cannot be converted to {opset}: must be {OLDEST} or later")
    if opset > NEWEST:
        raise ValueError(f"opset {min(versions)} cannot be converted to {opset}: must be to {NEWEST} or an older one")
    upgraded = copy_model(model)
    for scope in (upgraded, *upgraded.functions):
        known = onnx_opset(scope)
        if known is not None and known < opset:
            _raise(scope, known, opset)
    return upgraded


def _raise(scope: Scope, version: int, opset: int) -> None:
    parts: list[onnx.FunctionProto | onnx.GraphProto]
    if isinstance(scope, onnx.FunctionProto):
        parts = [scope, *(attribute.g for attribute in scope.attribute_proto if attribute.HasField("g"))]
    else:
        parts = [scope.graph]
        for training in scope.training_info:
            parts += [training.initialization, training.algorithm]
    nodes = UpgradedNodes(
        {name for part in parts for name in tensor_names(part)}, {name for part in parts for name in _read(part)}
    )
    for part in parts:
        nodes.change(part, version, opset)
    for item in scope.opset_import:
        if normalize_domain(item.domain) == "":
            item.version = opset


def _read(part: onnx.GraphProto | onnx.FunctionProto) -> Iterator[str]:
    """Yield the names of the tensors that nodes read or that are outputs."""
    yield from part.output if isinstance(part, onnx.FunctionProto) else (value.name for value in part.output)
    for node in part.node:
        yield from node.input
        for graph in subgraphs([node]):
            yield from _read(graph)


class UpgradedNodes(NodeBuilder):
    """Converts the nodes of a model or of a function one by one. Nodes that are added precede the converted one.

    `read` are the names of the tensors that a node reads or that are outputs.
    """

    def __init__(self, names: set[str], read: set[str]) -> None:
        super().__init__(names, "_opset")
        self.read = read
        self._constants: dict[str, onnx.TensorProto] = {}
        self._after: list[onnx.NodeProto] = []

    def change(self, part: onnx.GraphProto | onnx.FunctionProto, version: int, opset: int) -> None:
        """Convert the nodes of a graph or a function, and of subgraphs, from one opset to a newer one."""
        if isinstance(part, onnx.GraphProto):
            self._constants.update({tensor.name: tensor for tensor in part.initializer})
        changed: list[onnx.NodeProto] = []
        for node in part.node:
            for graph in subgraphs([node]):
                self.change(graph, version, opset)
            if normalize_domain(node.domain) == "":
                for newer in range(version + 1, opset + 1):
                    if (change := CHANGES.get((newer, node.op_type))) is not None:
                        change(self, node)
                if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                    self._constants[node.output[0]] = node.attribute[0].t
            changed += [*self.added, node, *self._after]
            self.added, self._after = [], []
        assign(part.node, changed)

    def after(self, node: onnx.NodeProto, operator: str, *inputs: str, **attributes: Any) -> None:
        """Insert a node after the converted one, whose output becomes the new node's first input."""
        name, node.output[0] = node.output[0], self.name(node.op_type)
        self._after.append(onnx.helper.make_node(operator, [node.output[0], *inputs], [name], **attributes))

    def to_input(self, node: onnx.NodeProto, name: str, place: int, value: str, like: str = "") -> None:
        """Turn an attribute, which may be a reference, into the input at `place`, if the node has it.

        `value` is the attribute of Constant of the same type; the input gets the element type of `like`, if that is given.
        """
        attribute = _taken(node, name)
        if attribute is None:
            return
        attribute.name, attribute.type = value, _TYPES[value]
        constant = self.op("Constant")
        self.added[-1].attribute.append(constant_attribute(attribute))
        node.input.extend([""] * (place + 1 - len(node.input)))
        node.input[place] = self.op("CastLike", constant, like) if like else constant

    def constant(self, name: str) -> list[float] | None:
        """Return the values of a constant tensor, or None."""
        tensor = self._constants.get(name)
        if tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
            return None
        return [float(value) for value in onnx.numpy_helper.to_array(tensor).reshape(-1)]


def _attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def _taken(node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    """Remove an attribute from a node and return it, or None if the node lacks it."""
    attribute = _attribute(node, name)
    if attribute is None:
        return None
    taken = onnx.AttributeProto()
    taken.CopyFrom(attribute)
    node.attribute.remove(attribute)
    return taken


def _set(node: onnx.NodeProto, **attributes: object) -> None:
    node.attribute.extend(onnx.helper.make_attribute(*item) for item in attributes.items())


def _refused(node: onnx.NodeProto, opset: int, rule: str) -> ValueError:
    return ValueError(f"{label(node)} cannot be converted to opset {opset}: {rule}")


_Change = Callable[[UpgradedNodes, onnx.NodeProto], None]

CHANGES: dict[tuple[int, str], _Change] = {}
"""The conversions of nodes whose definition changed in an opset, by opset and operator."""


def _since(opset: int, *operators: str) -> Callable[[_Change], _Change]:
    def enter(change: _Change) -> _Change:
        CHANGES.update({(opset, operator): change for operator in operators})
        return change

    return enter


_TO_INPUTS: tuple[tuple[int, str, tuple[tuple[str, int, str], ...]], ...] = (
    (9, "Upsample", (("scales", 1, "value_floats"),)),
    (10, "Slice", (("starts", 1, "value_ints"), ("ends", 2, "value_ints"), ("axes", 3, "value_ints"))),
    (11, "Clip", (("min", 1, "value_float"), ("max", 2, "value_float"))),
    (11, "Pad", (("pads", 1, "value_ints"), ("value", 2, "value_float"))),
    (13, "ReduceSum Squeeze Unsqueeze", (("axes", 1, "value_ints"),)),
    (13, "Split", (("split", 1, "value_ints"),)),
    (
        18,
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSumSquare",
        (("axes", 1, "value_ints"),),
    ),
)
"""The attributes that became inputs in an opset, by opset and operators: names, input indices, attributes of Constant.

A single float gets the type of the first input.
"""


def _to_inputs(inputs: Sequence[tuple[str, int, str]], nodes: UpgradedNodes, node: onnx.NodeProto) -> None:
    for name, place, value in inputs:
        nodes.to_input(node, name, place, value, node.input[0] if value == "value_float" else "")


for _opset, _operators, _inputs in _TO_INPUTS:
    _since(_opset, *_operators.split())(partial(_to_inputs, _inputs))


@_since(10, "TopK")
def _top_k(nodes: UpgradedNodes, node: onnx.NodeProto) -> None:
    k = _attribute(node, "k")
    if k is None or k.ref_attr_name:
        raise _refused(node, 10, "k must be a number")
    k.ints.append(k.i)
    nodes.to_input(node, "k", 1, "value_ints")


@_since(18, "Split")
def _split_evenly(_: UpgradedNodes, node: onnx.NodeProto) -> None:
    if len(node.input) < 2 or not node.input[1]:
        _set(node, num_outputs=len(node.output))


@_since(12, "Dropout")
def _dropout(nodes: UpgradedNodes, node: onnx.NodeProto) -> None:
    if not nodes.read.isdisjoint(node.output[1:]):
        raise _refused(node, 12, "its mask, which changed there, must not be read")
    del node.output[1:]
    _taken(node, "ratio")  # only training uses it, which older opsets do not have


@_since(9, "BatchNormalization")
def _batch_normalization(_: UpgradedNodes, node: onnx.NodeProto) -> None:
    spatial = _taken(node, "spatial")
    if spatial is not None and spatial.i != 1:
        raise _refused(node, 9, "spatial must be 1")


@_since(14, "BatchNormalization")
def _batch_normalization_of_inference(_: UpgradedNodes, node: onnx.NodeProto) -> None:
    if any(node.output[1:]):
        raise _refused(node, 14, "must have one output, since the training outputs changed there")
    del node.output[1:]


@_since(13, "Hardmax", "LogSoftmax", "Softmax")
def _softmax(nodes: UpgradedNodes, node: onnx.NodeProto) -> None:
    axis = _taken(node, "axis") or onnx.helper.make_attribute("axis", 1)
    _set(node, axis=-1)
    if axis.i == -1 and not axis.ref_attr_name:
        return
    # Before, all axes from this one on were flattened.
    shape = nodes.op("Shape", node.input[0])
    node.input[0] = nodes.op("Flatten", node.input[0])
    nodes.added[-1].attribute.append(axis)
    nodes.after(node, "Reshape", shape, allowzero=1)


@_since(10, "Upsample")
def _upsample_to_resize(_: UpgradedNodes, node: onnx.NodeProto) -> None:
    node.op_type = "Resize"
    _set(node, nearest_mode="floor")  # no axis shrinks


@_since(11, "Resize")
def _resize(nodes: UpgradedNodes, node: onnx.NodeProto) -> None:
    mode = _attribute(node, "mode")
    if (mode is None or mode.s == b"nearest") and _attribute(node, "nearest_mode") is None:
        scales = nodes.constant(node.input[1])
        if scales is None:
            raise _refused(node, 11, "must have constant scales, since nearest depends on them before opset 11")
        try:
            _set(node, nearest_mode=nearest_mode_of_opset_10(scales))
        except ValueError as error:
            raise _refused(node, 11, str(error)) from error
    _set(node, coordinate_transformation_mode="asymmetric")
    node.input.insert(1, "")


def nearest_mode_of_opset_10(scales: Sequence[float]) -> str:
    """Return the nearest_mode of a newer Resize that rounds as opset 10 does.

    Raises:
        ValueError: some axes need another nearest_mode than others.
    """
    if min(scales) < 1 < max(scales):
        raise ValueError(
            f"scales = {list(scales)}: must not be both below and above 1 at opset 10, "
            "which rounds up for the former and down for the latter, while newer nodes have one nearest_mode"
        )
    return "ceil" if min(scales) < 1 else "floor"


@_since(20, "DFT")
def _dft(nodes: UpgradedNodes, node: onnx.NodeProto) -> None:
    if _attribute(node, "axis") is None:
        _set(node, axis=1)
    nodes.to_input(node, "axis", 2, "value_int")


@_since(20, "GridSample")
def _grid_sample(_: UpgradedNodes, node: onnx.NodeProto) -> None:
    mode = _attribute(node, "mode")
    if mode is not None:
        mode.s = {b"bilinear": b"linear", b"bicubic": b"cubic"}.get(mode.s, mode.s)


@_since(19, "AveragePool")
def _average_pool(_: UpgradedNodes, node: onnx.NodeProto) -> None:
    ceil = _attribute(node, "ceil_mode")
    if ceil is not None and (ceil.i or ceil.ref_attr_name):
        raise _refused(node, 19, "ceil_mode must be 0, since the last windows changed there")


def _refuse(opset: int, rule: str, _: UpgradedNodes, node: onnx.NodeProto) -> None:
    raise _refused(node, opset, rule)


CHANGES |= {
    (9, "Scan"): partial(_refuse, 9, "its definition changed there"),
    (11, "Scatter"): lambda _, node: setattr(node, "op_type", "ScatterElements"),
    (16, "RoiAlign"): lambda _, node: _set(node, coordinate_transformation_mode="output_half_pixel"),
    (21, "GroupNormalization"): partial(_refuse, 21, "its scale and bias changed there from groups to channels"),
}
