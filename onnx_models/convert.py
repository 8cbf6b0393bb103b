"""From ONNX's own operators to this project's of the same meaning, in models of any origin."""

from __future__ import annotations

import onnx

from onnx_models.attributes import operator_of
from onnx_models.build import attribute_proto
from onnx_models.check import check_attributes
from onnx_models.data import copied
from onnx_models.walk import Scope, label, nodes_of, normal_domain, onnx_opset
from ortops.operators import OPERATORS
from ortops.spec import DOMAIN, DOMAIN_VERSION, Operator

_OURS = {operator.standard: operator for operator in OPERATORS if operator.standard}
_CONVERTIBLE = {name for name, _ in _OURS}


def convert(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of `model` whose standard RoiAlign and MaxRoiPool nodes are this project's, each with its opset's meaning.

    Opsets 10 to 15 give RoiAlign_10, 16 to 21 RoiAlign_16, 22 and later RoiAlign_22; opsets before 22 give MaxRoiPool_1,
    22 and later MaxRoiPool_22; a function of the model counts by its own opset. Nodes inside If, Loop, Scan and functions
    are converted too. Attributes that a node does not have are written out with their defaults, those that it has are kept
    as they are; a reference to an attribute of the enclosing function stays one. Everything else of the model stays as it
    is, byte for byte; external data is not read. A node that calls a function of the model of one of these names in ONNX's
    domain stays, too.

    A converted model converts to itself, and so does one without such nodes.

    Args:
        model: of any opset; not modified.

    Raises:
        ValueError: a node has no meaning at the model's opset: the opset is absent or, for RoiAlign, below 10, or it defines
            a newer operator than this project has; an attribute of such a node or of this project's operators breaks its
            rule (such as the mode "AVG", which onnxruntime takes for "avg"); a function of the model calls itself.
        TypeError: such an attribute is unknown, which a session would not notice, or has a wrong type.

    Source: ONNX operator specification, RoiAlign, versions 10, 16 and 22, and MaxRoiPool, versions 1 and 22.
    """
    functions = {(normal_domain(function.domain), function.name) for function in model.functions}

    def operator(node: onnx.NodeProto, scope: Scope) -> Operator | None:
        is_standard = normal_domain(node.domain) == "" and node.op_type in _CONVERTIBLE
        return _ours(node, scope) if is_standard and ("", node.op_type) not in functions else None

    check_attributes(model, lambda node, scope: operator_of(node) or operator(node, scope))
    converted = copied(model)
    found = False
    for scope in (converted, *converted.functions):
        standard = [(node, ours) for node in nodes_of(scope) if (ours := operator(node, scope))]
        for node, ours in standard:
            _convert_node(node, ours)
        if standard:
            found = True
            _import_domain(scope)
    if found:
        # The checker wants the domains of a function's body among the model's own.
        _import_domain(converted)
    return converted


def _ours(node: onnx.NodeProto, scope: Scope) -> Operator:
    """This project's operator with the meaning that `node` has among the opset imports of `scope`."""
    version = onnx_opset(scope)
    where = label(node)
    if version is None:
        raise ValueError(f"{where}: must have an opset import of ONNX's domain")
    if not onnx.defs.has(node.op_type, version, ""):
        raise ValueError(f"{where} at opset {version}: ONNX has no {node.op_type} there")
    since = onnx.defs.get_schema(node.op_type, version, "").since_version
    if (node.op_type, since) not in _OURS:
        known = ", ".join(str(opset) for name, opset in _OURS if name == node.op_type)
        raise ValueError(f"{where} at opset {version}: is version {since}, must be one of {known}")
    return _OURS[node.op_type, since]


def _convert_node(node: onnx.NodeProto, operator: Operator) -> None:
    node.op_type, node.domain = operator.name, DOMAIN
    present = {attribute.name for attribute in node.attribute}
    node.attribute.extend(
        attribute_proto(attribute, attribute.default)
        for attribute in operator.attributes
        if attribute.name not in present
    )


def _import_domain(scope: Scope) -> None:
    if all(item.domain != DOMAIN for item in scope.opset_import):
        scope.opset_import.append(onnx.helper.make_opsetid(DOMAIN, DOMAIN_VERSION))
