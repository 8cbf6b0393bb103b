# SPDX-License-Identifier: MIT
"""The functions of a model: which calls which, how large the model is once they are inlined, and inlining them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import chain

import onnx
import onnx.inliner

from onnx_models.tools.attributes import (
    checked_value,
    node_attribute_values,
    operator_of,
    prefix_errors,
    refuse_extensions,
)
from onnx_models.tools.opset_upgrade import upgrade_opset
from onnx_models.tools.protos import Scope, assign, attribute_graphs, iter_nodes, label, normalize_domain, onnx_opset
from onnx_models.tools.types import single_line_errors
from ortops.spec import Attribute, Operator

MAX_DEPTH = 100
"""The largest depth of nested calls and subgraphs, equal to the limit for calls in ONNX's own tools."""

MAX_NODES = 100_000
"""The largest number of nodes that inlining may add to a model."""

MAX_BYTES = 256 * 2**20
"""The largest number of bytes that inlining may add to a model's nodes."""

_Id = tuple[str, str, str]


@dataclass
class _Size:
    """The size of some nodes once all calls among them are inlined.

    nodes, bytes: their number and size.
    depth: the depth of nested subgraphs and calls.
    references: how often each attribute of the enclosing function is referenced.
    """

    nodes: int = 0
    bytes: int = 0
    depth: int = 0
    references: Counter[str] = field(default_factory=Counter)

    def add(self, other: _Size, times: int = 1, below: int = 0) -> None:
        """Add the size of other nodes, `times` over, at depth `below`."""
        self.nodes += times * other.nodes
        self.bytes += times * other.bytes
        self.depth = max(self.depth, below + other.depth)
        self.references.update({name: times * count for name, count in other.references.items()})


_Sizes = dict[_Id, tuple[_Size, dict[str, _Size]]]
"""The size of each function and of its attributes' defaults, by function."""


class Functions:
    """The functions of a model. A recursive one is refused.

    Raises:
        ValueError: two functions have the same name, or a function calls itself, directly or through others.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._by_id: dict[_Id, onnx.FunctionProto] = {}
        for function in model.functions:
            if self._by_id.setdefault(_id(function), function) is not function:
                raise ValueError(f"the model has two functions {function_label(function)}: names must be unique")
        calls = {one: [_callee(node) for node in _nodes(function)] for one, function in self._by_id.items()}
        calls = {
            one: [callee for callee in dict.fromkeys(callees) if callee in calls] for one, callees in calls.items()
        }
        try:
            self._sorted = list(TopologicalSorter(calls).static_order())
        except CycleError as error:
            circle = [function_label(self._by_id[one]) for one in reversed(error.args[1])]
            shown = circle if len(circle) <= 10 else [*circle[:8], f"{len(circle) - 9} more", circle[-1]]
            raise ValueError(
                f"functions call each other in a circle: {' -> '.join(shown)}: must not recurse"
            ) from error

    def __iter__(self) -> Iterator[onnx.FunctionProto]:
        """Iterate over the functions, each after those that it calls."""
        return (self._by_id[identity] for identity in self._sorted)

    def called(self, node: onnx.NodeProto) -> onnx.FunctionProto | None:
        """Return the function that a node calls, or None; None for this project's operators, even if they have a body."""
        return None if operator_of(node) else self._by_id.get(_callee(node))

    def check_size(self) -> None:
        """Refuse a model that would be too large with its functions inlined. It is counted, not inlined.

        Raises:
            ValueError: nodes, bytes or depth would exceed `MAX_NODES`, `MAX_BYTES` or `MAX_DEPTH`.
        """
        if not self._by_id:
            return
        sizes: _Sizes = {}
        total, before = _Size(), _Size()
        for function in self:
            size = self._size(function.node, sizes)
            sizes[_id(function)] = (
                size,
                {attribute.name: self._value(attribute, sizes) for attribute in function.attribute_proto},
            )
            _check_depth(size, f"function {function_label(function)}")
            before.nodes += sum(1 for _ in _nodes(function))
            before.bytes += function.ByteSize()
            if is_body(function):
                total.add(size)
        before.nodes += sum(1 for _ in _nodes(self._model))
        before.bytes += sum(node.ByteSize() for node in self._model.graph.node)
        total.add(self._size(self._model.graph.node, sizes))
        _check_depth(total, "the graph")
        for what, now, then, most in (
            ("nodes", before.nodes, total.nodes, MAX_NODES),
            ("bytes", before.bytes, total.bytes, MAX_BYTES),
        ):
            if then - now > most:
                raise ValueError(
                    f"the model has {now:,} {what} and would have {_number(then)} with its functions inlined: "
                    f"must be at most {most:,} more"
                )

    def _size(self, nodes: Iterable[onnx.NodeProto], sizes: _Sizes) -> _Size:
        """Return the size of nodes, given the sizes of the functions that they call."""
        total = _Size()
        for node in nodes:
            callee = self.called(node)
            values = {attribute.name: self._value(attribute, sizes) for attribute in node.attribute}
            if callee is None:
                total.nodes += 1
                total.bytes += node.ByteSize() - sum(attribute.ByteSize() for attribute in node.attribute)
                for value in values.values():
                    total.add(value)
                continue
            body, defaults = sizes[_id(callee)]
            total.add(_Size(body.nodes, body.bytes, body.depth), below=1)
            for name, value in (defaults | values).items():
                if body.references[name]:
                    total.add(value, body.references[name], below=1 + body.depth)
                else:
                    total.bytes += value.bytes  # the call itself has it
        return total

    def _value(self, attribute: onnx.AttributeProto, sizes: _Sizes) -> _Size:
        """Return the size of the value of an attribute."""
        if attribute.ref_attr_name:
            return _Size(references=Counter([attribute.ref_attr_name]))
        total = _Size(bytes=attribute.ByteSize())
        for graph in attribute_graphs(attribute):
            total.bytes -= sum(node.ByteSize() for node in graph.node)
            total.add(self._size(graph.node, sizes), below=1)
        return total


def inline_functions(model: onnx.ModelProto, least_opset: int) -> onnx.ModelProto:
    """Inline all functions except bodies of this project's operators; a model without others is returned as it is.

    A model or function of an opset older than `least_opset`, or than that of a function, is upgraded first
    (`onnx_models.tools.opset_upgrade`).

    Raises:
        ValueError: `Functions`, `Functions.check_size` or `upgrade_opset` refuses the model; or a function imports another
            version of a domain, not ONNX's, than the model, or is called with too many inputs or outputs.
    """
    Functions(model).check_size()
    called = _called(model)
    opset = max(filter(None, map(onnx_opset, (called, *called.functions))), default=0)
    model = upgrade_opset(called, max(opset, least_opset))
    if all(map(is_body, model.functions)):
        return model
    completed = _with_defaults(model)
    versions = {normalize_domain(item.domain): item.version for item in model.opset_import}
    known = len(versions)
    for function in completed.functions:
        for item in function.opset_import:
            version = versions.setdefault(normalize_domain(item.domain), item.version)
            if version != item.version:
                raise ValueError(
                    f"function {function_label(function)} imports version {item.version} of {item.domain}: "
                    f"must be {version} as elsewhere in the model, or it cannot be inlined"
                )
    inlinable = [(function.domain, function.name) for function in completed.functions if not is_body(function)]
    with single_line_errors("inlining the model's functions"):
        inlined = onnx.inliner.inline_selected_functions(completed, inlinable)
    for domain, version in list(versions.items())[known:]:
        inlined.opset_import.append(onnx.helper.make_opsetid(domain, version))
    return inlined


def _called(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without the functions that nothing calls, or the model itself if there are none.

    ONNX's inliner refuses a function of another opset even if nothing calls it.
    """
    reached: set[_Id] = set()
    scopes: list[Scope] = [model, *reversed(list(Functions(model)))]
    for scope in scopes:
        if isinstance(scope, onnx.ModelProto) or is_body(scope) or _id(scope) in reached:
            reached.update(map(_callee, _nodes(scope)))
    kept = [function for function in model.functions if is_body(function) or _id(function) in reached]
    if len(kept) == len(model.functions):
        return model
    reduced = onnx.ModelProto()
    reduced.CopyFrom(model)
    assign(reduced.functions, kept)
    return reduced


def _with_defaults(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which calls have the defaults of the function's attributes, which ONNX's inliner ignores."""
    completed = onnx.ModelProto()
    completed.CopyFrom(model)
    functions = Functions(completed)
    for scope in (*functions, completed):
        for node in _nodes(scope):
            callee = functions.called(node)
            if callee is not None:
                given = {attribute.name for attribute in node.attribute}
                node.attribute.extend(default for default in callee.attribute_proto if default.name not in given)
    return completed


def is_body(function: onnx.FunctionProto) -> bool:
    """Return whether a function is the body of an operator of this project or of a user."""
    return operator_of(onnx.NodeProto(domain=function.domain, op_type=function.name)) is not None


def function_label(function: onnx.FunctionProto) -> str:
    """Return the name of a function for error messages."""
    domain, name, overload = _id(function)
    return repr(f"{domain}::{name}" + (f"::{overload}" if overload else ""))


def _check_depth(size: _Size, where: str) -> None:
    if size.depth > MAX_DEPTH:
        raise ValueError(
            f"calls and subgraphs are nested {size.depth} deep from {where} on: must be at most {MAX_DEPTH}"
        )


def _nodes(scope: Scope) -> Iterator[onnx.NodeProto]:
    """Yield all nodes of a model's graph, or of a function and the defaults of its attributes, with subgraphs."""
    if isinstance(scope, onnx.ModelProto):
        return iter_nodes(scope.graph)
    defaults = (node for default in scope.attribute_proto for graph in attribute_graphs(default) for node in graph.node)
    return iter_nodes(chain(scope.node, defaults))


def _id(function: onnx.FunctionProto) -> _Id:
    return normalize_domain(function.domain), function.name, function.overload


def _callee(node: onnx.NodeProto) -> _Id:
    return normalize_domain(node.domain), node.op_type, node.overload


def _number(value: int) -> str:
    # Python refuses to print a number of more than 4300 digits. 0.301 is a little less than log10(2).
    return f"{value:,}" if value < 10**15 else f"more than 10**{int(0.301 * (value.bit_length() - 1))}"


_Wanted = defaultdict[str, dict[Attribute, str]]
"""The rules for the attributes of a function, by attribute, each with the label of a node that reads it."""


def check_attributes(
    model: onnx.ModelProto,
    operator: Callable[[onnx.NodeProto, Scope], Operator | None] = lambda node, _: operator_of(node),
) -> None:
    """Refuse a model in which an attribute of this project's operators is unknown, of a wrong type or breaks its rule.

    Nodes in subgraphs and in functions are checked as well. In a function, an attribute may be a reference to an attribute
    of the function: then the values from every call and the function's default are checked. `operator` returns the operator
    whose rules a node of a model or a function must keep, or None.

    Raises:
        TypeError: an attribute is unknown or has a wrong type.
        ValueError: an attribute occurs twice, breaks its rule or refers to one that the function does not have, or
            `Functions` refuses the functions.
    """
    functions = Functions(model)
    wanted: dict[str, _Wanted] = {}
    for scope in (*functions, model):
        referenced: _Wanted = defaultdict(dict)
        place, declared, defaults = "", set[str](), list[onnx.AttributeProto]()
        if isinstance(scope, onnx.FunctionProto):
            place = f" in function {function_label(scope)}"
            defaults = list(scope.attribute_proto)
            declared = {*scope.attribute, *(attribute.name for attribute in defaults)}
            wanted[function_label(scope)] = referenced
        for node in iter_nodes(scope):
            where = f"{label(node)}{place}"
            if (definition := operator(node, scope)) is not None:
                _check_node(definition, node, where, referenced)
            elif (callee := functions.called(node)) is not None:
                _check_values(node.attribute, wanted[function_label(callee)], where, referenced)
        for name, rules in referenced.items():
            if name not in declared:
                rule, reader = next(iter(rules.items()))
                raise ValueError(
                    f"{reader}: {rule.name} refers to {name!r}: must be an attribute of a function around the node"
                )
        _check_values(defaults, referenced, f"default{place}", referenced)


def _check_node(operator: Operator, node: onnx.NodeProto, where: str, referenced: _Wanted) -> None:
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
            referenced[references[rule.name]].setdefault(rule, where)


def _check_values(given: Iterable[onnx.AttributeProto], wanted: _Wanted, where: str, referenced: _Wanted) -> None:
    """Check the values that a call or a default gives to attributes of a function; for references, add rules to `own`."""
    for attribute in given:
        for rule, reader in list(wanted.get(attribute.name, {}).items()):
            with prefix_errors(f"{where} gives {attribute.name!r} to {reader}"):
                checked_value(rule, attribute)
            if attribute.ref_attr_name:
                referenced[attribute.ref_attr_name].setdefault(rule, reader)
