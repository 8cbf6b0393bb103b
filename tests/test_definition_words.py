"""The words of definitions, read back through their addresses as compiled code reads them."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import replace
from typing import Any

import onnx
import pytest

from ortops.calls import definition_words as words
from ortops.calls.definitions import definition_of
from ortops.calls.layout import ATTRIBUTE_WORDS
from ortops.calls.records import address_of
from ortops.operators import BY_NAME, OPERATORS
from ortops.spec import Attribute, Operator, Rule, ordered
from ortops.standard import standard_operators

ALL = (*OPERATORS, *standard_operators(22), *standard_operators(10))


class Read:
    """The words from one on."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __getitem__(self, at: int) -> int:
        return ctypes.c_int64.from_address(self._address + 8 * at).value

    def text(self, at: int) -> str:
        return ctypes.string_at(self[at]).decode()

    def items(self, count: int, at: int, size: int) -> list[Read]:
        return [Read(self._address + 8 * (self[at] + size * i)) for i in range(self[count])]


def definition(operator: Operator) -> Read:
    return Read(address_of(definition_of(operator)))


def value(item: Read, at: int, attribute: Attribute, choices: list[str]) -> Any:
    """The value of an attribute, from its words."""
    found: list[Any] = [item[at + 1 + i] for i in range(item[at])]
    if attribute.type.startswith("FLOAT"):
        found = [struct.unpack("d", struct.pack("q", one))[0] for one in found]
    elif attribute.type == "STRING":
        found = [choices[one] for one in found]
    return tuple(found) if attribute.is_list else found[0]


@pytest.mark.parametrize("operator", ALL, ids=lambda operator: definition_of(operator).name)
def test_attributes_are_those_of_the_definition(operator: Operator) -> None:
    record = definition(operator)
    assert record.text(words.NAME) == operator.name
    items = record.items(words.ATTRIBUTE_COUNT, words.ATTRIBUTES_AT, words.ATTRIBUTE_ITEM_WORDS)
    for item, attribute in zip(items, operator.attributes, strict=True):
        choices = [record.text(item[words.CHOICES_AT] + i) for i in range(item[words.CHOICE_COUNT])]
        told = {name: item.text(getattr(words, name)) for name in ("ATTRIBUTE_NAME", "TYPE_NAME", "RULE", "AXIS_NAMES")}
        assert list(told.values()) == [attribute.name, attribute.type, attribute.rule, ", ".join(attribute.axes)]
        assert tuple(choices) == attribute.choices
        assert bool(item[words.HAS_DEFAULT]) == (attribute.default is not None)
        if attribute.default is not None:
            assert value(item, words.DEFAULT, attribute, choices) == attribute.default
        flags = [item[word] for word in (words.IS_REQUIRED, words.IS_POSITIVE, words.IS_FINITE, words.IS_PER_AXIS)]
        assert flags == [attribute.required, attribute.positive, attribute.finite, attribute.is_per_axis]
        limits = item[words.MINIMUM], item[words.MAXIMUM]
        assert limits[0] == (-(2**63) if attribute.minimum is None else attribute.minimum)
        assert limits[1] == (2**63 - 1 if attribute.maximum is None else attribute.maximum)


@pytest.mark.parametrize("operator", ALL, ids=lambda operator: definition_of(operator).name)
def test_tensors_and_types_are_those_of_the_definition(operator: Operator) -> None:
    record = definition(operator)
    tensors = (*operator.inputs, *operator.outputs)
    assert (record[words.INPUT_COUNT], record[words.OUTPUT_COUNT]) == (len(operator.inputs), len(operator.outputs))
    types = record.items(words.TYPE_COUNT, words.TYPES_AT, words.TYPE_ITEM_WORDS)
    for row, tensor in enumerate(tensors):
        at = record[words.TENSORS_AT] + words.TENSOR_ITEM_WORDS * row
        kind = types[record[at + words.TYPE_VARIABLE]]
        numbers = [kind[words.ELEMENT_TYPES + i] for i in range(kind[words.ELEMENT_TYPE_COUNT])]
        names = [onnx.TensorProto.DataType.Name(number).lower() for number in numbers]
        assert (record.text(at + words.TENSOR_NAME), names) == (tensor.name, list(operator.element_types(tensor)))
        assert record[at + words.IS_OPTIONAL] == tensor.optional


def test_rules_between_attributes_have_a_kind_and_rows() -> None:
    for name, kind in (("DmlRoiAlign", words.ASCENDING), ("DmlResample", words.ONE_GIVEN)):
        operator, record = BY_NAME[name], definition(BY_NAME[name])
        (item,) = record.items(words.RULE_COUNT, words.RULES_AT, words.RULE_ITEM_WORDS)
        rows = [item[words.RULE_ROWS + i] for i in range(item[words.RULE_ROW_COUNT])]
        assert item[words.RULE_KIND] == kind
        assert tuple(operator.attributes[row].name for row in rows) == operator.rules[0].attributes


def test_every_record_has_a_name_of_its_own() -> None:
    names = [definition_of(operator).name for operator in ALL]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)


def test_what_words_cannot_tell_is_refused() -> None:
    roi_align = BY_NAME["RoiAlign_22"]
    odd = Rule(("mode",), lambda _: True, "", {})
    with pytest.raises(ValueError, match="RoiAlign_22 has a rule that compiled code does not know"):
        definition_of(replace(roi_align, rules=(odd,)))
    more = tuple(replace(tensor, name=f"{tensor.name}{i}") for i in range(3) for tensor in roi_align.inputs)
    with pytest.raises(ValueError, match="RoiAlign_22 has more tensors or axes than compiled code has room for"):
        definition_of(replace(roi_align, inputs=more))
    with pytest.raises(ValueError, match="compiled code cannot infer its outputs' shapes"):
        definition_of(replace(roi_align, shapes=lambda _shapes, _attributes: None))
    assert definition_of(replace(roi_align, rules=(ordered("output_height", "output_width"),)))
    assert ATTRIBUTE_WORDS == 1 + words.MAX_RANK
