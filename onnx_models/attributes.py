"""The attributes of this project's operators on nodes: which names, types and values are lawful, wherever a node is.

ONNX Runtime has no way to list the attributes of a node. What is misspelled there, or has a type that no kernel reads, runs
as the default. So all that makes or changes models asks here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches

import onnx

from ortops.operators import BY_NAME
from ortops.spec import DOMAIN, Attribute, AttributeValue, Operator

_LONGEST = 80
"""A longer name or string is no lawful one of any attribute; errors show so much of it."""

_FIELDS = {"INT": "i", "FLOAT": "f", "STRING": "s", "INTS": "ints", "FLOATS": "floats"}
"""Where a node's attribute has its value, by type."""


def operator_of(node: onnx.NodeProto) -> Operator | None:
    """The operator of this project that a node has, or None."""
    return BY_NAME.get(node.op_type) if node.domain == DOMAIN else None


@contextmanager
def prefix_errors(where: str) -> Iterator[None]:
    """Begin the message of a TypeError or a ValueError with where it is."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{where}: {error}") from error


def attribute_values(operator: Operator, given: Mapping[str, object]) -> dict[str, AttributeValue]:
    """The checked attributes alone, given or by default, without the constants that `Operator.check_attributes` adds.

    Raises:
        TypeError: an attribute is unknown or has a value of a wrong type. ValueError: a value breaks its rule.
    """
    _check_names(operator, given)
    checked = operator.check_attributes(given)
    return {attribute.name: checked[attribute.name] for attribute in operator.attributes}


def refuse_extensions(operator: Operator, values: Mapping[str, AttributeValue]) -> None:
    """Refuse values that this project has added to those of ONNX, for a node of ONNX's own operator.

    Raises:
        ValueError: there is one.
    """
    if values.get("mode") == "max_interpolated":
        raise ValueError(f"mode = 'max_interpolated': only {operator.name} of {DOMAIN} has it")


def node_attribute_values(operator: Operator, node: onnx.NodeProto) -> dict[str, AttributeValue]:
    """What a node gives to attributes, references to those of a function left out.

    Raises:
        TypeError: an attribute is unknown or has a wrong type. ValueError: one is there twice or breaks its rule.
    """
    names = [attribute.name for attribute in node.attribute]
    _check_names(operator, names)
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} is there {names.count(name)} times: must be there once")
    rules = {attribute.name: attribute for attribute in operator.attributes}
    values = {given.name: checked_value(rules[given.name], given) for given in node.attribute}
    return {given.name: values[given.name] for given in node.attribute if not given.ref_attr_name}


def checked_value(rule: Attribute, given: onnx.AttributeProto) -> AttributeValue:
    """The value of an attribute of a node; None for a reference of the right type.

    Raises:
        TypeError: it has a wrong type. ValueError: it breaks its rule.
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
    if isinstance(value, bytes):
        text = value.decode(errors="backslashreplace")
        return rule.check(text if len(text) <= _LONGEST or not rule.choices else f"{text[:_LONGEST]}...")
    return rule.check(tuple(value) if rule.is_list else value)


def attribute_protos(
    attributes: Iterable[Attribute], values: Mapping[str, AttributeValue]
) -> list[onnx.AttributeProto]:
    """All of `attributes` with their values, but for empty lists: a list that is not there says that there is none."""
    return [attribute_proto(one, values[one.name]) for one in attributes if values[one.name] or not one.is_list]


def attribute_proto(attribute: Attribute, value: AttributeValue) -> onnx.AttributeProto:
    """An attribute with its declared type, whatever Python type the value has."""
    kind = onnx.AttributeProto.AttributeType.Value(attribute.type)
    return onnx.helper.make_attribute(attribute.name, value, attr_type=kind)


def _check_names(operator: Operator, names: Iterable[str]) -> None:
    known = [attribute.name for attribute in operator.attributes]
    for name in names:
        if name not in known:
            shown = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."
            close = get_close_matches(shown, known, 1)
            hint = f" ({close[0]}?)" if close else ""
            raise TypeError(f"{operator.name} has no attribute {shown!r}{hint}: must be one of {', '.join(known)}")
