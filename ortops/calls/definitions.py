"""Operators' definitions for compiled code, as records whose words `definition_words` describes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ortops.calls import definition_words as words
from ortops.calls.layout import ATTRIBUTE_WORDS, MAX_DIMS, MAX_TENSORS
from ortops.calls.records import Record, Word
from ortops.spec import (
    ANY_SHAPE,
    ELEMENT_TYPES,
    RANK,
    Attribute,
    AttributeValue,
    Operator,
    Quotient,
    Rule,
    Tensor,
    is_ascending,
)

_INT64 = np.iinfo(np.int64)

_KINDS: dict[Callable[[Sequence[Any]], bool], int] = {is_ascending: words.ASCENDING, any: words.ONE_GIVEN}

_TYPES = {"INT": words.INT, "INTS": words.INTS, "FLOAT": words.FLOAT, "FLOATS": words.FLOATS, "STRING": words.STRING}


@functools.cache
def definition_of(operator: Operator) -> Record:
    """An operator's definition as a record.

    Raises:
        ValueError: these words cannot express the definition.
    """
    tensors = (*operator.inputs, *operator.outputs)
    has_shapes = operator.shapes is not None and operator.output_memory == words.OWN_FOR_NONE
    if has_shapes or any(tensor.shape == ANY_SHAPE or tensor.variadic for tensor in tensors):
        raise ValueError(f"{operator.label}: compiled code cannot infer its outputs' shapes")
    if len(tensors) > MAX_TENSORS or len(_axis_names(operator)) > words.MAX_AXES:
        raise ValueError(f"{operator.label} has more tensors or axes than compiled code has room for")
    if any(rule.holds not in _KINDS for rule in operator.rules):
        raise ValueError(f"{operator.label} has a rule that compiled code does not know")
    if any(tensor.ranks[-1] > MAX_DIMS for tensor in tensors):
        raise ValueError(f"{operator.label} has a tensor with more axes than compiled code has room for")
    return _Words(operator).record()


def attribute_words(attribute: Attribute, value: AttributeValue) -> list[Word]:
    """A node's words for a checked attribute's value (`layout.ATTRIBUTE_WORDS`); a float is stored as its bits.

    Args:
        attribute: the attribute.
        value: a number, one of the choices, or a tuple of numbers: at most four unless the attribute allows any length.
    """
    values = value if isinstance(value, tuple) else (value,)
    numbers: list[Word] = [attribute.choices.index(one) if isinstance(one, str) else one for one in values]
    shown = [_list_of(values, repr(values))] if attribute.any_length and values else numbers
    return [len(numbers), *shown, *[0] * (ATTRIBUTE_WORDS - 1 - len(shown))]


@functools.cache  # records are never freed
def _list_of(values: tuple[int | float, ...], _shown: str) -> Record:
    """A record of numbers. `_shown` keeps 1 and 1.0, and 0.0 and -0.0, apart in the cache."""
    return Record("list", values)


class _Words:
    """A definition's words under construction."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._tensors = (*operator.inputs, *operator.outputs)
        self._rows = {attribute.name: row for row, attribute in enumerate(operator.attributes)}
        self._types = list(dict.fromkeys([*operator.types, *(tensor.type for tensor in self._tensors)]))
        self._axes = {name: number for number, name in enumerate(_axis_names(operator))}
        self._words: list[Word] = [0] * words.HEAD_WORDS

    def record(self) -> Record:
        """The whole record."""
        operator = self._operator
        sections: dict[tuple[int, int], list[list[Word]]] = {
            (words.ATTRIBUTE_COUNT, words.ATTRIBUTES_AT): [self._attribute(one) for one in operator.attributes],
            (words.RULE_COUNT, words.RULES_AT): [self._rule(rule) for rule in operator.rules],
            (words.INPUT_COUNT, words.TENSORS_AT): [self._tensor(tensor) for tensor in self._tensors],
            (words.TYPE_COUNT, words.TYPES_AT): [self._type(name) for name in self._types],
            (words.AXIS_COUNT, words.AXES_AT): [self._axis(name) for name in self._axes],
            (words.EQUATION_COUNT, words.EQUATIONS_AT): [self._equation(one) for one in operator.equations],
            (words.CONSTANT_COUNT, words.CONSTANTS_AT): [[name] for name in sorted(operator.constants)],
        }
        for (count, at), items in sections.items():
            self._words[count], self._words[at] = len(items), self._append([word for item in items for word in item])
        head: dict[int, Word] = {
            words.NAME: operator.name,
            words.IS_GRADIENT: int(operator.is_gradient),
            words.OUTPUT_NAMES: " and ".join(tensor.name for tensor in operator.outputs),
            words.RANK_AXIS: self._axes.get(RANK, words.NONE),
            words.INPUT_COUNT: len(operator.inputs),
            words.OUTPUT_COUNT: len(operator.outputs),
            words.OUTPUT_MEMORY: operator.output_memory,
        }
        for word, value in head.items():
            self._words[word] = value
        of_onnx = f"onnx_{operator.standard[1]}_" if operator.standard and not operator.domain else ""
        return Record(f"definition_{of_onnx}{operator.name}", self._words)

    def _append(self, items: Sequence[Word]) -> int:
        """Append words and return the index of the first."""
        self._words += items
        return len(self._words) - len(items)

    def _attribute(self, attribute: Attribute) -> list[Word]:
        default = (
            None if attribute.default is None else attribute.check(attribute.default)
        )  # rounded, as a node's value
        item: dict[int, Word] = {
            words.ATTRIBUTE_NAME: attribute.name,
            words.ATTRIBUTE_TYPE: _TYPES[attribute.type],
            words.TYPE_NAME: attribute.type,
            words.IS_REQUIRED: int(attribute.required),
            words.MINIMUM: _INT64.min if attribute.minimum is None else attribute.minimum,
            words.MAXIMUM: _INT64.max if attribute.maximum is None else attribute.maximum,
            words.IS_POSITIVE: int(attribute.positive),
            words.IS_FINITE: int(attribute.finite),
            words.RULE: attribute.rule,
            words.CHOICE_COUNT: len(attribute.choices),
            words.CHOICES_AT: self._append(attribute.choices),
            words.IS_PER_AXIS: int(attribute.is_per_axis),
            words.IS_ANY_LENGTH: int(attribute.any_length),
            words.AXIS_NAME_COUNT: len(attribute.axes),
            words.AXIS_NAMES: ", ".join(attribute.axes),
            words.HAS_DEFAULT: int(default is not None),
        }
        return [*_item(item, words.DEFAULT), *attribute_words(attribute, () if default is None else default)]

    def _rule(self, rule: Rule) -> list[Word]:
        rows = [self._rows[name] for name in rule.attributes]
        return [_KINDS[rule.holds], len(rows), *_padded(rows, words.RULE_ITEM_WORDS - words.RULE_ROWS)]

    def _tensor(self, tensor: Tensor) -> list[Word]:
        operator = self._operator
        derived = operator.derived_axes.get(str(tensor.shape[0])) if tensor.has_variable_rank else None
        unless, exempt = tensor.required_unless or (None, 0)
        values = [] if unless is None else attribute_words(operator.attributes[self._rows[unless]], exempt)
        outputs = [output.name for output in operator.outputs]
        needed = [len(operator.inputs) + outputs.index(name) for name in tensor.required_for]
        axes = tensor.axes(words.MAX_RANK if tensor.has_variable_rank else len(tensor.shape))
        elements = tensor.axes_of_elements(words.MAX_RANK)
        leading = [one.name for one in operator.inputs].index(tensor.leading_from) if tensor.leading_from else None
        item: dict[int, Word] = {
            words.TENSOR_NAME: tensor.name,
            words.IS_OPTIONAL: int(tensor.optional),
            words.TYPE_VARIABLE: self._types.index(tensor.type),
            words.IS_VARIABLE_RANK: int(tensor.has_variable_rank),
            words.LEAST_RANK: tensor.ranks[0],
            words.LARGEST_RANK: tensor.ranks[-1],
            words.RANK_RULE: f"must have rank {' or '.join(map(str, tensor.ranks))}, [{', '.join(map(str, tensor.shape))}]",
            words.LEADING_FROM: words.NONE if leading is None else leading,
            words.DERIVED_FROM: self._axes[f"{derived.of}0"] if derived else words.NONE,
            words.SIZES_ROW: self._rows[derived.sizes] if derived else words.NONE,
            words.SCALES_ROW: self._rows[derived.scales] if derived else words.NONE,
            words.REQUIRED_UNLESS: words.NONE if unless is None else self._rows[unless],
            words.EXEMPT_VALUE: values[1] if values else 0,
            words.REQUIRED_FOR_COUNT: len(needed),
            words.ELEMENT_COUNT: len(elements),
        }
        return [
            *_item(item, words.AXES),
            *_padded([] if derived else [self._number(axis) for axis in axes], MAX_DIMS),
            *_padded([self._number(axis) for axis in elements], words.MAX_RANK),
            *_padded(needed, words.TENSOR_ITEM_WORDS - words.REQUIRED_FOR),
        ]

    def _number(self, axis: int | str) -> int:
        return -1 - axis if isinstance(axis, int) else self._axes[axis]

    def _type(self, name: str) -> list[Word]:
        kinds = self._operator.types.get(name, (name,))
        numbers = [ELEMENT_TYPES[kind] for kind in kinds]
        return [len(numbers), *_padded(numbers, words.TYPE_ITEM_WORDS - words.ELEMENT_TYPES)]

    def _axis(self, name: str) -> list[Word]:
        for row, attribute in enumerate(self._operator.attributes):
            if attribute.name == name:
                return [name, row, 0, "the attribute"]
            if name in attribute.axes:
                return [name, row, attribute.axes.index(name), attribute.name]
        return [name, words.NONE, 0, ""]

    def _equation(self, equation: Quotient) -> list[Word]:
        divisors = [self._axes[name] for name in equation.by]
        return [
            self._axes[equation.axis],
            self._axes[equation.of],
            " * ".join(equation.by),
            f"the equation {equation}",
            len(divisors),
            *_padded(divisors, words.EQUATION_ITEM_WORDS - words.DIVISORS),
        ]


def _axis_names(operator: Operator) -> dict[str, None]:
    """The axis names in shapes, inputs' elements and equations."""
    axes: list[int | str] = []
    for tensor in (*operator.inputs, *operator.outputs):
        if not tensor.has_variable_rank or str(tensor.shape[0]) not in operator.derived_axes:
            axes += tensor.axes(words.MAX_RANK if tensor.has_variable_rank else len(tensor.shape))
        axes += tensor.axes_of_elements(words.MAX_RANK)
        axes += [RANK] if tensor.has_variable_rank else []
    for equation in operator.equations:
        axes += [equation.axis, equation.of, *equation.by]
    return dict.fromkeys(axis for axis in axes if isinstance(axis, str))


def _item(given: dict[int, Word], size: int) -> list[Word]:
    """An item's words from values by index."""
    return [given[i] for i in range(size)]


def _padded(numbers: Sequence[int], size: int) -> list[Word]:
    """Numbers, followed by zeros.

    Raises:
        ValueError: the record has no room for so many numbers.
    """
    if len(numbers) > size:
        raise ValueError(f"a definition has {len(numbers)} values where compiled code has room for {size}")
    return [*numbers, *[0] * (size - len(numbers))]
