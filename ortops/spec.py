"""What an operator is, as frozen data: attributes with their rules, tensors with named axes, and the operator itself.

Everything else in this project is a function of these definitions. This module knows neither ONNX Runtime nor numba.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import ml_dtypes
import numpy as np

DOMAIN = "ai.onnx.contrib"
"""The only domain in which onnxruntime-extensions can register an operator."""

DOMAIN_VERSION = 1

MAX_RANK = 4
"""Axes of a tensor whose rank is open, and values of a list that has one for each of them."""

AttributeType = Literal["INT", "FLOAT", "STRING", "INTS", "FLOATS"]
AttributeValue: TypeAlias = Any
"""An int, a float or a str, or a tuple of ints or of floats: the attribute's type says which."""

ElementType = Literal["float16", "bfloat16", "float", "double", "int64", "uint32"]

ELEMENT_DTYPES: Mapping[str, np.dtype] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "int64": np.dtype(np.int64),
    "uint32": np.dtype(np.uint32),
}
"""The NumPy type of each ONNX element type."""

_INT64 = np.iinfo(np.int64)
_PYTHON_TYPES: Mapping[str, type] = {"INT": numbers.Integral, "FLOAT": numbers.Real, "STRING": str}
_WORDS = {"INT": "must be an integer", "FLOAT": "must be a number", "STRING": "must be a string"}


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of an operator: its type, its default and the rule its value must keep, or each value of a list.

    A list (INTS, FLOATS) has one value for each axis of the operator's tensors of open rank, or none; or its values are the
    lengths of named axes.

    choices: the allowed strings, case as written; empty where any string will do.
    minimum, maximum: the least and the largest allowed number, or None.
    positive: True where the number must be finite and above 0.
    finite: True where the number must be finite.
    axes: the names of the axes whose lengths are the values of a list.
    required: True where ONNX's own node must have it, so that the default is this project's.
    """

    name: str
    type: AttributeType
    default: AttributeValue
    doc: str = ""
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    positive: bool = False
    finite: bool = False
    axes: tuple[str, ...] = ()
    required: bool = False

    def __post_init__(self) -> None:
        if self.type not in get_args(AttributeType):
            raise ValueError(f"attribute {self.name}: type {self.type!r} is not one of {get_args(AttributeType)}")
        self.check(self.default)

    @property
    def rule(self) -> str:
        """The rule in words, as errors and documentation print it."""
        if self.choices:
            return "must be one of " + ", ".join(map(repr, self.choices))
        if self.positive:
            return "must be finite and > 0"
        if self.finite:
            return "must be finite"
        if self.maximum is not None:
            return f"must be >= {self.minimum} and <= {self.maximum}"
        if self.minimum is not None:
            return f"must be >= {self.minimum}"
        return _WORDS[self._kind]

    @property
    def is_list(self) -> bool:
        """Whether it has several values."""
        return self.type.endswith("S")

    @property
    def is_per_axis(self) -> bool:
        """Whether it has one value for each axis of the tensors of open rank."""
        return self.is_list and not self.axes

    @property
    def _kind(self) -> str:
        """The type of one value."""
        return self.type.removesuffix("S")

    def check(self, value: object) -> AttributeValue:
        """The value as int, float (rounded to float32) or str, or as a tuple of them.

        Raises:
            TypeError: it has another type. ValueError: it breaks the rule. Both name attribute, value and rule.
        """
        if not self.is_list:
            return self._check_one(self.name, value)
        if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
            raise TypeError(f"{self.name} = {value!r}: {self.type} attribute, must be a list")
        if self.axes and len(value) != len(self.axes):
            raise ValueError(f"{self.name} = {list(value)}: must have {len(self.axes)} values, {', '.join(self.axes)}")
        if len(value) > MAX_RANK:
            raise ValueError(f"{self.name} has {len(value)} values: must have one for each of up to {MAX_RANK} axes")
        return tuple(self._check_one(f"{self.name}[{i}]", one) for i, one in enumerate(value))

    def _check_one(self, name: str, value: object) -> int | float | str:
        if isinstance(value, bool) or not isinstance(value, _PYTHON_TYPES[self._kind]):
            raise TypeError(f"{name} = {value!r}: {self.type} attribute, {self.rule}")
        if isinstance(value, str):
            kept: int | float | str = value
            lawful = not self.choices or value in self.choices
        else:
            # ONNX stores a FLOAT attribute as float32, so that is its value here too, in a session and outside.
            with np.errstate(over="ignore"):
                kept = int(value) if self._kind == "INT" else float(np.float32(value))  # type: ignore[call-overload, arg-type]
            if self._kind == "INT" and abs(kept) > _INT64.max:
                raise ValueError(f"{name} = {value!r}: must fit in 64 bits")
            lawful = self.minimum is None or kept >= self.minimum
            lawful = lawful and (self.maximum is None or kept <= self.maximum)
            if self.positive or self.finite:
                lawful = lawful and math.isfinite(kept) and (kept > 0 or not self.positive)
        if not lawful:
            raise ValueError(f"{name} = {value!r}: {self.rule}")
        return kept


VARIABLE_AXES = "..."
"""How the name of axes ends whose number is open: ``N...`` stands for N0, N1 and so on."""

RANK = "rank"
"""The axis whose length is the number of those axes."""

Length = int | str | None
"""A length, the name of a length that is not known yet (``dim_param``), or neither."""

LengthFunction = Callable[[Length, int, Mapping[str, AttributeValue]], Length]
"""From the length of an axis, its number and the attributes to another length."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input or output of an operator.

    type: a type variable of the operator (``T1``) or an element type (``int64``).
    shape: one entry an axis: a length, or the name of an axis. Equal names have equal lengths throughout the operator;
        the name of an attribute stands for its value. A single name that ends in ``...`` stands for 1 to 4 axes, as
        many for every such name; `RANK` is their number.
    element_axes: for an int64 input whose *elements* are lengths (``x_shape``): the name of the axis each one gives.
    optional: True where a node may leave it out.
    max_leading_ones: how many axes of length 1 it may have before these.
    leading_from: for an output: the input whose leading axes it has, too.
    zero_gradient_reason: for an input of floating point by which there is no gradient: why its derivative is 0.
    required_for: for an optional input: the outputs that are computed from it in any case.
    required_unless: for an optional input: an attribute and the only value of it with which the other outputs do without.
    """

    name: str
    type: str
    shape: tuple[int | str, ...]
    element_axes: tuple[str, ...] = ()
    optional: bool = False
    max_leading_ones: int = 0
    leading_from: str = ""
    zero_gradient_reason: str = ""
    required_for: tuple[str, ...] = ()
    required_unless: tuple[str, AttributeValue] | None = None
    doc: str = ""

    @property
    def has_variable_rank(self) -> bool:
        """Whether its rank is open."""
        return _is_open(self.shape)

    @property
    def ranks(self) -> range:
        """The ranks that it may have."""
        return (
            range(1, MAX_RANK + 1)
            if self.has_variable_rank
            else range(len(self.shape), len(self.shape) + self.max_leading_ones + 1)
        )

    def axes(self, rank: int) -> tuple[int | str, ...]:
        """What `shape` says of each axis, where it has `rank` of them."""
        return _numbered(self.shape, rank) if self.has_variable_rank else (1,) * (rank - len(self.shape)) + self.shape

    def axes_of_elements(self, rank: int) -> tuple[int | str, ...]:
        """What `values` says of each element, where open ranks are `rank`."""
        return _numbered(self.element_axes, rank) if _is_open(self.element_axes) else self.element_axes


def _is_open(axes: tuple[int | str, ...]) -> bool:
    return len(axes) == 1 and str(axes[0]).endswith(VARIABLE_AXES)


def _numbered(axes: tuple[int | str, ...], rank: int) -> tuple[str, ...]:
    return tuple(f"{str(axes[0]).removesuffix(VARIABLE_AXES)}{i}" for i in range(rank))


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """An operator: everything that its schema, kernel, registration, builder, reference and cases are made from.

    types: for each type variable, the element types it may have.
    family: the module of this name in ``reference`` and in ``kernels`` computes it.
    function: the function of those modules that does, taking the inputs by position and the attributes by name.
    constants: arguments of that function which this operator fixes instead of having them as attributes.
    ordered_attributes: pairs of attributes of which the first must not exceed the second.
    at_least_one_of: lists of which at least one must have values.
    derived_axes: for open axes that no input has: those that they are made from, and how.
    standard: name and opset of the ONNX operator it computes, or None.
    gradient: for a forward operator: the name of the operator that computes its gradient.
    formula: what it computes, as plain text of several lines for a code block.
    source: the document that defines it, with its version and its URL where there is one.
    """

    name: str
    family: str
    function: str
    doc: str
    attributes: tuple[Attribute, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    types: Mapping[str, tuple[ElementType, ...]]
    constants: Mapping[str, AttributeValue] = field(default_factory=dict)
    ordered_attributes: tuple[tuple[str, str], ...] = ()
    at_least_one_of: tuple[str, ...] = ()
    derived_axes: Mapping[str, tuple[str, LengthFunction]] = field(default_factory=dict)
    standard: tuple[str, int] | None = None
    gradient: str | None = None
    formula: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        for kind in ("attributes", "inputs", "outputs"):
            names = [item.name for item in getattr(self, kind)]
            if len(set(names)) != len(names):
                raise ValueError(f"{self.name}: {kind} {names} repeat a name")
        known = set(self.types) | set(get_args(ElementType))
        axes = {axis for tensor in self.inputs for axis in (*tensor.shape, *tensor.element_axes)}
        axes |= {name for attribute in self.attributes for name in (attribute.name, *attribute.axes)} | set(
            self.derived_axes
        )
        for tensor in (*self.inputs, *self.outputs):
            if tensor.type not in known:
                raise ValueError(
                    f"{self.name}: {tensor.name} has type {tensor.type!r}, which is not one of {sorted(known)}"
                )
        for tensor in self.outputs:
            unknown = [axis for axis in tensor.shape if isinstance(axis, str) and axis not in axes]
            if unknown:
                raise ValueError(f"{self.name}: no input or attribute gives axis {unknown} of {tensor.name}")

    @property
    def is_gradient(self) -> bool:
        """Whether it is the gradient of another operator."""
        return self.gradient is None

    def why_required(
        self, tensor: Tensor, attributes: Mapping[str, AttributeValue], wanted: Collection[str]
    ) -> str | None:
        """The output, or the attribute and its value, for which an optional input is needed; None where it is not.

        Args:
            tensor: the input.
            attributes: those given; others have their defaults.
            wanted: names of the outputs that are wanted.
        """
        if tensor.required_unless is not None:
            name, sparing = tensor.required_unless
            value = attributes.get(name, next(a.default for a in self.attributes if a.name == name))
            if value != sparing:
                return f"{name} = {value!r}"
        return next((name for name in tensor.required_for if name in wanted), None)

    def element_types(self, tensor: Tensor) -> tuple[str, ...]:
        """The element types that `tensor` may have."""
        return self.types.get(tensor.type, (tensor.type,))

    def check_attributes(self, given: Mapping[str, object]) -> dict[str, AttributeValue]:
        """Every argument of the operator's function: attributes given or by default, and the constants.

        Raises:
            TypeError: an attribute is unknown or has a wrong type. ValueError: a value breaks its attribute's rule.
        """
        unknown = set(given) - {attribute.name for attribute in self.attributes}
        if unknown:
            raise TypeError(f"{self.name} has no attribute {', '.join(sorted(unknown))}")
        checked = {a.name: a.check(given.get(a.name, a.default)) for a in self.attributes}
        for low, high in self.ordered_attributes:
            if checked[low] > checked[high]:
                raise ValueError(f"{low} = {checked[low]}: must be <= {high} = {checked[high]}")
        if self.at_least_one_of and not any(checked[name] for name in self.at_least_one_of):
            raise ValueError(f"{' and '.join(self.at_least_one_of)} are empty: at least one must have values")
        lists = {a.name: len(checked[a.name]) for a in self.attributes if a.is_per_axis and checked[a.name]}
        if len(set(lists.values())) > 1:
            counts = ", ".join(f"{name} has {count}" for name, count in lists.items())
            raise ValueError(f"{counts} values: must have as many each, one for each axis")
        return checked | dict(self.constants)
