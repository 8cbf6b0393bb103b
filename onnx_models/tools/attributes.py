# SPDX-License-Identifier: MIT
"""Read, check and write the attributes of nodes of this project's operators.

A custom operator in ONNX Runtime cannot list the attributes of its node: a misspelled attribute, or one of a wrong type, is
ignored and the default is used. So everything that builds or changes models checks attributes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import onnx

from onnx_models.tools.compositions import COMPOSITIONS
from onnx_models.tools.protos import label, meant, normalize_domain
from ortops.custom.decorator import CustomOperator
from ortops.foreign.third_party import THIRD_PARTY
from ortops.operators import BY_NAME
from ortops.spec import DOMAIN, Attribute, AttributeValue, Operator

_MAX_SHOWN = 80
"""Characters of a name or string that an error shows. No valid one is longer."""

_FIELDS = {
    "INT": "i",
    "FLOAT": "f",
    "STRING": "s",
    "INTS": "ints",
    "FLOATS": "floats",
    "STRINGS": "strings",
    "TENSOR": "t",
}
"""The field of AttributeProto that holds the value, by type."""

CUSTOM: dict[tuple[str, str], CustomOperator] = {}
"""Users' operators that were passed to `onnx_models.register_schemas`, by domain and name."""


def operator_of(node: onnx.NodeProto) -> Operator | None:
    """Return the operator of a node, one of this project's or of a user's; None for others."""
    return BY_NAME.get(node.op_type) if node.domain == DOMAIN else custom_of(node)


def custom_of(node: onnx.NodeProto) -> CustomOperator | None:
    """Return the operator of a node if it is a user's."""
    return CUSTOM.get((normalize_domain(node.domain), node.op_type))


def remedy(node: onnx.NodeProto) -> str:
    """The remedy for a node outside ONNX's domain whose operator is unknown or has no gradient."""
    if custom_of(node) is not None:
        return ": ortops.operator can give its operator a gradient or a body"
    if (normalize_domain(node.domain), node.op_type) in THIRD_PARTY:
        return ": onnx_models.convert (the command convert) puts an operator with a gradient in its place"
    if node.domain.startswith("com.microsoft"):
        return ": ONNX Runtime's optimizer writes such nodes; take the model before its optimization"
    return (
        ": if ortops.operator makes this operator, it must be among operators= (--operators), or be given to "
        "onnx_models.register_schemas; docs/custom_operators.md gives it a gradient"
    )


def unknown_among(nodes: Iterable[onnx.NodeProto]) -> str:
    """The end of a shape inference error: the first node without a schema, and a remedy; "" if all nodes have one."""
    for node in nodes:
        key = normalize_domain(node.domain), node.op_type
        if key[0] and key not in COMPOSITIONS and not onnx.defs.has(node.op_type, node.domain):
            return f". Nothing is known of {label(node)} of the domain {node.domain}{remedy(node)}"
    return ""


class LinesError(ValueError):
    """An error whose arguments are the lines of its message."""

    def __str__(self) -> str:
        return "\n".join(self.args)


@contextmanager
def prefix_errors(where: str) -> Iterator[None]:
    """Prefix the message of a TypeError or a ValueError with `where`."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{where}: {error}") from error


def attribute_values(operator: Operator, given: Mapping[str, object]) -> dict[str, AttributeValue]:
    """Return all attributes of a node, checked, with defaults for those that are not in `given`.

    The constants that `Operator.check_attributes` adds are left out.

    Raises:
        TypeError: an attribute is unknown or has a value of a wrong type. ValueError: a value breaks its rule.
    """
    _check_names(operator, given)
    checked = operator.check_attributes(given)
    return {attribute.name: checked[attribute.name] for attribute in operator.attributes}


def refuse_extensions(operator: Operator, values: Mapping[str, AttributeValue]) -> None:
    """Refuse values that this project adds to ONNX's, for a node of ONNX's own operator."""
    if values.get("mode") == "max_interpolated":
        raise ValueError(f"mode = 'max_interpolated': only {operator.name} of {DOMAIN} has it")


def node_attribute_values(operator: Operator, node: onnx.NodeProto) -> dict[str, AttributeValue]:
    """Return the checked attributes that a node has, without references to attributes of a function.

    Raises:
        TypeError: an attribute is unknown or has a wrong type. ValueError: one occurs twice or breaks its rule.
    """
    names = [attribute.name for attribute in node.attribute]
    _check_names(operator, names)
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} occurs {names.count(name)} times: must occur once")
    rules = {attribute.name: attribute for attribute in operator.attributes}
    values = {given.name: checked_value(rules[given.name], given) for given in node.attribute}
    return {given.name: values[given.name] for given in node.attribute if not given.ref_attr_name}


def checked_value(rule: Attribute, given: onnx.AttributeProto) -> AttributeValue:
    """Check an attribute of a node and return its value; None for a reference to an attribute of a function.

    Raises:
        TypeError: the attribute has a wrong type. ValueError: its value breaks its rule.
    """
    kind = onnx.AttributeProto.AttributeType.Name(given.type)
    if kind != rule.type:
        raise TypeError(f"{rule.name} is of type {kind}: {rule.type} attribute, {rule.rule}")
    place = _FIELDS[kind]
    lawful = {"name", "type", "doc_string", "ref_attr_name" if given.ref_attr_name else place}
    for field, _ in given.ListFields():
        if field.name not in lawful:
            raise ValueError(f"{rule.name} has a value in {field.name}: {rule.type} attribute, must have it in {place}")
    if given.ref_attr_name:
        return None
    value = getattr(given, place)
    if rule.type == "TENSOR":
        return rule.check(onnx.numpy_helper.to_array(value))
    if rule.type == "STRINGS":
        return rule.check([text.decode(errors="surrogateescape") for text in value])
    if isinstance(value, bytes):
        text = value.decode(errors="surrogateescape")
        return rule.check(text if len(text) <= _MAX_SHOWN or not rule.choices else f"{text[:_MAX_SHOWN]}...")
    return rule.check(tuple(value) if rule.is_list else value)


def attribute_protos(
    attributes: Iterable[Attribute], values: Mapping[str, AttributeValue]
) -> list[onnx.AttributeProto]:
    """Make the attributes of a node. Values of None are left out, and empty lists, where an absent list means the same."""
    return [
        attribute_proto(attribute, values[attribute.name])
        for attribute in attributes
        if _is_written(attribute, values[attribute.name])
    ]


def _is_written(attribute: Attribute, value: AttributeValue) -> bool:
    if attribute.is_list and value is not None:
        return bool(value or attribute.default)
    return value is not None


def attribute_proto(attribute: Attribute, value: AttributeValue) -> onnx.AttributeProto:
    """Make an attribute of its declared type from a value of any Python type."""
    kind = onnx.AttributeProto.AttributeType.Value(attribute.type)
    if isinstance(value, np.ndarray):
        value = onnx.numpy_helper.from_array(value)
    return onnx.helper.make_attribute(attribute.name, value, attr_type=kind)


def _check_names(operator: Operator, names: Iterable[str]) -> None:
    known = [attribute.name for attribute in operator.attributes]
    for name in names:
        if name not in known:
            shown = name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}..."
            raise TypeError(
                f"{operator.name} has no attribute {shown!r}{meant(shown, known)}: must be one of {', '.join(known)}"
            )
