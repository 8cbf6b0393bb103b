"""Check the attributes of this project's operators in whole models, through functions and subgraphs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import onnx

from onnx_models.attributes import checked_value, node_attribute_values, operator_of, prefix_errors, refuse_extensions
from onnx_models.functions import Functions, function_label
from onnx_models.traversal import Scope, iter_nodes, label
from ortops.spec import Attribute, Operator

_Wanted = defaultdict[str, dict[Attribute, str]]
"""The rules for the attributes of a function, by attribute, each with the label of a node that reads it."""


def check_attributes(
    model: onnx.ModelProto,
    operator: Callable[[onnx.NodeProto, Scope], Operator | None] = lambda node, _: operator_of(node),
) -> None:
    """Refuse a model in which an attribute of this project's operators is unknown, of a wrong type or breaks its rule.

    Nodes in subgraphs and in functions are checked as well. In a function, an attribute may be a reference to an attribute
    of the function: then the values from every call and the function's default are checked.

    Args:
        model: a model of any opset.
        operator: returns the operator whose rules a node of a model or a function must keep, or None.

    Raises:
        TypeError: an attribute is unknown or has a wrong type.
        ValueError: an attribute occurs twice, breaks its rule or refers to one that the function does not have, or
            `Functions` refuses the functions.
    """
    functions = Functions(model)
    wanted: dict[str, _Wanted] = {}
    for scope in (*functions, model):
        own: _Wanted = defaultdict(dict)
        place, declared, defaults = "", set[str](), list[onnx.AttributeProto]()
        if isinstance(scope, onnx.FunctionProto):
            place = f" in function {function_label(scope)}"
            defaults = list(scope.attribute_proto)
            declared = {*scope.attribute, *(one.name for one in defaults)}
            wanted[function_label(scope)] = own
        for node in iter_nodes(scope):
            where = f"{label(node)}{place}"
            if (found := operator(node, scope)) is not None:
                _check_node(found, node, where, own)
            elif (callee := functions.called(node)) is not None:
                _check_values(node.attribute, wanted[function_label(callee)], where, own)
        for name, rules in own.items():
            if name not in declared:
                rule, reader = next(iter(rules.items()))
                raise ValueError(
                    f"{reader}: {rule.name} refers to {name!r}: must be an attribute of a function around the node"
                )
        _check_values(defaults, own, f"default{place}", own)


def _check_node(operator: Operator, node: onnx.NodeProto, where: str, own: _Wanted) -> None:
    """Check the attributes of a node; for references, add their rules to `own`."""
    with prefix_errors(where):
        values = node_attribute_values(operator, node)
        references = {given.name: given.ref_attr_name for given in node.attribute if given.ref_attr_name}
        if not references:
            operator.check_attributes(values)
        if operator_of(node) is None:
            refuse_extensions(operator, values)
    for rule in operator.attributes:
        if rule.name in references:
            own[references[rule.name]].setdefault(rule, where)


def _check_values(given: Iterable[onnx.AttributeProto], wanted: _Wanted, where: str, own: _Wanted) -> None:
    """Check the values that a call or a default gives to attributes of a function; for references, add rules to `own`."""
    for attribute in given:
        for rule, reader in list(wanted.get(attribute.name, {}).items()):
            with prefix_errors(f"{where} gives {attribute.name!r} to {reader}"):
                checked_value(rule, attribute)
            if attribute.ref_attr_name:
                own[attribute.ref_attr_name].setdefault(rule, reader)
