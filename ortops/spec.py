# SPDX-License-Identifier: MIT
"""The classes of an operator's definition: attributes with their rules, tensors with named axes, and the operator.

Definitions are frozen data. Schemas, checks, builders, documents and test cases are generated from them. This module imports
neither ONNX Runtime nor numba.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import ml_dtypes
import numpy as np

DOMAIN = "ai.onnx.contrib"
"""The only domain in which onnxruntime-extensions can register an operator."""

DOMAIN_VERSION = 1

MAX_RANK = 4
"""The largest rank of a tensor with variable rank, and the largest length of a list with a value for each axis."""

AttributeType = Literal["INT", "FLOAT", "STRING", "INTS", "FLOATS", "STRINGS", "TENSOR"]
AttributeValue: TypeAlias = Any
"""An int, float, str, a tuple of one of these, or an array, depending on the attribute's type; None if it is absent."""

ElementType = Literal[
    "float16", "bfloat16", "float", "double", "int64", "uint32",
    "int8", "int16", "int32", "uint8", "uint16", "uint64", "bool", "string",
]  # fmt: skip

ELEMENT_DTYPES: Mapping[str, np.dtype] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "int64": np.dtype(np.int64),
    "uint32": np.dtype(np.uint32),
    # Only for users' operators.
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
    "uint8": np.dtype(np.uint8),
    "uint16": np.dtype(np.uint16),
    "uint64": np.dtype(np.uint64),
    "bool": np.dtype(np.bool_),
    "string": np.dtype(np.object_),
}
"""The NumPy type of each ONNX element type; strings are arrays of str objects."""

ELEMENT_TYPES: Mapping[str, int] = {
    "float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "string": 8, "bool": 9,
    "float16": 10, "double": 11, "uint32": 12, "uint64": 13, "bfloat16": 16,
}  # fmt: skip
"""ONNX's TensorProto.DataType, and ONNX Runtime's ONNXTensorElementDataType."""

_INT64 = np.iinfo(np.int64)
_PYTHON_TYPES: Mapping[str, type] = {"INT": numbers.Integral, "FLOAT": numbers.Real, "STRING": str}
_TYPE_RULES = {
    "INT": "must be an integer",
    "FLOAT": "must be a number",
    "STRING": "must be a string",
    "TENSOR": "must be a tensor",
}


@dataclass(frozen=True, slots=True)
class Attribute:
    """An operator's attribute: its type, its default, and the rule for its value or for each value of a list.

    A list (INTS, FLOATS, STRINGS) is empty or has a value for each axis of the operator's tensors with variable rank. With
    `axes`, its values are these axes' lengths. With `any_length`, it may be any list.

    default: the value if a node lacks the attribute; None for no value, or, with `required`, for an error. For an array it
        is a read-only copy.
    doc: full sentences: the meaning, the unit and the allowed values.
    choices: the allowed strings, case-sensitive; empty if every string is allowed.
    minimum, maximum: the smallest and the largest allowed number, or None.
    positive: True if the number must be finite and above 0.
    finite: True if the number must be finite.
    axes: the names of the axes whose lengths a list gives.
    required: True if ONNX requires the attribute; a default is then this project's own.
    any_length: True for a list of any length.
    """

    name: str
    type: AttributeType
    default: AttributeValue = None
    doc: str = ""
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    positive: bool = False
    finite: bool = False
    axes: tuple[str, ...] = ()
    required: bool = False
    any_length: bool = False

    def __post_init__(self) -> None:
        if self.type not in get_args(AttributeType):
            raise ValueError(f"attribute {self.name}: type {self.type!r} is not one of {get_args(AttributeType)}")
        if self.default is not None:
            default = self.check(self.default)
            if self.type == "TENSOR":  # all calls share it
                default = default.copy()
                default.flags.writeable = False
                object.__setattr__(self, "default", default)

    @property
    def rule(self) -> str:
        """The rule in words, for errors and documentation."""
        if self.choices:
            return "must be one of " + ", ".join(map(repr, self.choices))
        if self.positive:
            return "must be finite and > 0"
        if self.finite:
            return "must be finite"
        bounds = [
            f"{sign} {bound}" for sign, bound in ((">=", self.minimum), ("<=", self.maximum)) if bound is not None
        ]
        return f"must be {' and '.join(bounds)}" if bounds else _TYPE_RULES[self._kind]

    @property
    def is_list(self) -> bool:
        """Whether the value is a list."""
        return self.type.endswith("S")

    @property
    def is_per_axis(self) -> bool:
        """Whether the value is a list with an entry for each axis of the tensors with variable rank."""
        return self.is_list and not self.axes and not self.any_length

    @property
    def _kind(self) -> str:
        """The type of the value, or of each value in a list."""
        return self.type.removesuffix("S")

    def check(self, value: object) -> AttributeValue:
        """The value as int, float (rounded to float32), str or array, or a list of them as a tuple.

        Raises:
            TypeError: the value has a wrong type.
            ValueError: the value breaks the rule. Both messages name attribute, value and rule.
        """
        if self.type == "TENSOR":
            if not isinstance(value, np.ndarray):
                raise TypeError(f"{self.name} = {value!r}: {self.type} attribute, must be an array")
            return value
        if not self.is_list:
            return self._check_one(self.name, value)
        if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
            raise TypeError(f"{self.name} = {value!r}: {self.type} attribute, must be a list")
        if self.axes and len(value) != len(self.axes):
            raise ValueError(f"{self.name} = {list(value)}: must have {len(self.axes)} values, {', '.join(self.axes)}")
        if len(value) > MAX_RANK and not self.any_length:
            raise ValueError(f"{self.name} has {len(value)} values: must have at most {MAX_RANK}, one for each axis")
        return tuple(self._check_one(f"{self.name}[{i}]", item) for i, item in enumerate(value))

    def _check_one(self, name: str, value: object) -> int | float | str:
        if isinstance(value, bool) or not isinstance(value, _PYTHON_TYPES[self._kind]):
            raise TypeError(f"{name} = {value!r}: {self.type} attribute, {self.rule}")
        if isinstance(value, str):
            kept: int | float | str = value
            is_allowed = not self.choices or value in self.choices
        else:
            # ONNX stores a FLOAT attribute as float32. Functions outside sessions round it the same way.
            try:
                with np.errstate(over="ignore"):
                    kept = int(value) if self._kind == "INT" else float(np.float32(value))  # type: ignore[call-overload, arg-type]
            except OverflowError as error:
                raise ValueError(f"{name} = {value!r}: must fit in 64 bits") from error
            if self._kind == "INT" and not _INT64.min <= kept <= _INT64.max:
                raise ValueError(f"{name} = {value!r}: must fit in 64 bits")
            is_allowed = self.minimum is None or kept >= self.minimum
            is_allowed = is_allowed and (self.maximum is None or kept <= self.maximum)
            if self.positive or self.finite:
                is_allowed = is_allowed and math.isfinite(kept) and (kept > 0 or not self.positive)
        if not is_allowed:
            raise ValueError(f"{name} = {value!r}: {self.rule}")
        return kept


def flag(name: str, default: int, doc: str = "") -> Attribute:
    """An attribute that is 0 or 1."""
    return Attribute(name, "INT", default, doc, minimum=0, maximum=1)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule between attributes, in addition to each attribute's own rule.

    attributes: the attributes' names.
    holds: takes the list of their values; returns whether they obey. Compiled code supports `is_ascending` and `any`.
    error: the error's text, with ``{name}`` for an attribute's value.
    broken: values that break the rule, for tests.
    """

    attributes: tuple[str, ...]
    holds: Callable[[Sequence[AttributeValue]], bool]
    error: str
    broken: Mapping[str, AttributeValue]

    def is_kept(self, values: Mapping[str, AttributeValue]) -> bool:
        """Whether the attributes' values obey the rule."""
        return self.holds([values[name] for name in self.attributes])


def ordered(low: str, high: str) -> Rule:
    """The rule that one attribute must not exceed another."""
    error = f"{low} = {{{low}}}: must be <= {high} = {{{high}}}"
    return Rule((low, high), is_ascending, error, {low: 3, high: 2})


def is_ascending(values: Sequence[AttributeValue]) -> bool:
    """Whether no value exceeds the next value."""
    return all(low <= high for low, high in itertools.pairwise(values))


def one_given(*lists: str) -> Rule:
    """The rule that at least one of several lists must have values."""
    error = f"{' and '.join(lists)} are empty: at least one must have values"
    return Rule(lists, any, error, dict.fromkeys(lists, ()))


VARIABLE_AXES = "..."
"""The suffix of a name that stands for all axes of a tensor with variable rank: ``N...`` for N0, N1 and so on."""

ANY_SHAPE = ("*",)
"""The shape of a tensor with any rank; nothing is checked."""

RANK = "rank"
"""The name of the axis whose length is the rank of the tensors with variable rank."""

Length = int | str | None
"""An axis's length: a number, a symbolic name (ONNX's ``dim_param``), or None if unknown."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """Lengths that an attribute gives, or that follow from an input's lengths by a factor for each axis.

    of: the name of the input's axes, without ``...``.
    sizes: the attribute that lists the lengths; its list may be empty.
    scales: the attribute that lists the factors.
    """

    of: str
    sizes: str
    scales: str

    def length(self, length: Length, axis: int, attributes: Mapping[str, AttributeValue]) -> Length:
        """An axis's length: its value in sizes, or else floor(length * scale); None if it is unknown.

        Args:
            length: the length of the input's axis.
            axis: the axis's number.
            attributes: the known attributes.

        Raises:
            ValueError: the length does not fit in 64 bits.
        """
        sizes, scales = attributes.get(self.sizes), attributes.get(self.scales)
        if sizes:
            return int(sizes[axis])
        if sizes is None or not scales or not isinstance(length, int):
            return None
        scaled = math.floor(length * float(scales[axis]))
        if scaled > _INT64.max:
            raise ValueError(f"{self.scales}[{axis}] = {scales[axis]}: must not make an axis longer than 2**63 - 1")
        return scaled


ShapeFunction = Callable[[Mapping[str, Any], Mapping[str, AttributeValue]], Sequence[tuple[Length, ...] | None] | None]
"""Takes the inputs' shapes by name, a list of shapes for a variadic input, and the attributes by name; returns each output's
shape. A shape is None if its rank is unknown."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operator's input or output.

    type: one of the operator's type variables (``T1``) or an element type (``int64``).
    shape: `ANY_SHAPE`, or the length or name of each axis. Axes with the same name have the same length in all of the
        operator's tensors; an attribute's name stands for its value. A single name that ends in ``...`` stands for 1 to 4
        axes, the same number in every tensor; this number is the length of the axis `RANK`.
    element_axes: for an int64 input whose *elements* are lengths (``x_shape``): the axis name for each element.
    optional: True if a node may leave the tensor out.
    variadic: True if the tensor stands for one or more tensors of one type; only for the last input or output.
    max_leading_ones: how many axes of length 1 may come before the axes in `shape`.
    leading_from: for an output: the input that has the same leading axes of length 1.
    zero_gradient_reason: for a floating-point input whose derivative is 0 everywhere: the reason.
    required_for: for an optional input: the outputs that cannot be computed without it.
    required_unless: for an optional input: an attribute, and its only value that lets a node leave the input out.
    doc: full sentences: the meaning, the unit and the allowed values.
    """

    name: str
    type: str
    shape: tuple[int | str, ...] = ANY_SHAPE
    element_axes: tuple[str, ...] = ()
    optional: bool = False
    variadic: bool = False
    max_leading_ones: int = 0
    leading_from: str = ""
    zero_gradient_reason: str = ""
    required_for: tuple[str, ...] = ()
    required_unless: tuple[str, AttributeValue] | None = None
    doc: str = ""

    @property
    def has_variable_rank(self) -> bool:
        """Whether the tensor may have 1 to `MAX_RANK` axes."""
        return _is_open(self.shape)

    @property
    def ranks(self) -> range:
        """The ranks that the tensor may have."""
        return (
            range(1, MAX_RANK + 1)
            if self.has_variable_rank
            else range(len(self.shape), len(self.shape) + self.max_leading_ones + 1)
        )

    @property
    def needs_reason(self) -> bool:
        """Whether an output or an attribute decides if a node must have the input."""
        return bool(self.required_for) or self.required_unless is not None

    def axes(self, rank: int) -> tuple[int | str, ...]:
        """Each axis's length or name, for a tensor with `rank` axes."""
        return _numbered(self.shape, rank) if self.has_variable_rank else (1,) * (rank - len(self.shape)) + self.shape

    def axes_of_elements(self, rank: int) -> tuple[int | str, ...]:
        """The axis name for each element, if tensors with variable rank have `rank` axes."""
        return _numbered(self.element_axes, rank) if _is_open(self.element_axes) else self.element_axes


def _is_open(axes: tuple[int | str, ...]) -> bool:
    return len(axes) == 1 and str(axes[0]).endswith(VARIABLE_AXES)


def _numbered(axes: tuple[int | str, ...], rank: int) -> tuple[str, ...]:
    return tuple(f"{str(axes[0]).removesuffix(VARIABLE_AXES)}{i}" for i in range(rank))


@dataclass(frozen=True, slots=True)
class Quotient:
    """An equation between lengths: axis `axis` has the length of `of`, divided without remainder by all lengths in `by`.

    A name is an axis's name, or the name of an attribute that gives a length. `str` returns the equation. Where no input has
    the axis `of`, it is the product; then a length in `by` may be 0.
    """

    axis: str
    of: str
    by: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.axis} = {self.of} / ({' * '.join(self.by)})"

    def solved(self, known: Mapping[str, Length], given: str) -> dict[str, int]:
        """A length that follows from known lengths, by its name; empty if too few are known or a divisor is 0.

        Args:
            known: axes' lengths and attributes' values by name.
            given: the source of the lengths and its value, for errors.

        Raises:
            ValueError: the lengths contradict the equation.
        """
        part, whole = known.get(self.axis), known.get(self.of)
        divisors = [length for name in self.by if isinstance(length := known.get(name), int) and length > 0]
        if len(divisors) < len(self.by):
            return {}
        divisor, rule = math.prod(divisors), " * ".join(self.by)
        if isinstance(part, int):
            if isinstance(whole, int) and whole != part * divisor:
                raise ValueError(f"{given}: {self.of} = {whole} must be {part * divisor} ({self.axis} * {rule})")
            return {self.of: part * divisor}
        if not isinstance(whole, int):
            return {}
        if whole % divisor:
            raise ValueError(f"{given}: {self.of} = {whole} must be a multiple of {divisor} ({rule})")
        return {self.axis: whole // divisor}


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """An operator's definition. Its schema, registration, builder, documentation and test cases are made from it.

    family: the name of its module in ``reference`` and ``functional``; empty for a user's operator.
    function: the name of its function in these modules, and of its entry in ``kernels``; empty for a user's operator.
    doc: what the operator does, in one sentence or a few.
    types: for each type variable, the element types it may have.
    constants: arguments of `function` that this operator fixes and has no attributes for.
    rules: rules between attributes.
    derived_axes: for an output with variable rank whose axes (``M...``) no input has: the source of their lengths.
    equations: equations between axes' lengths, which may give the length of an axis that no input has.
    standard: name and opset of the ONNX operator that it implements, or None.
    gradient: for a forward operator: the name of the operator that computes its gradient, or empty if none does.
    domain: the domain of its nodes.
    shapes: gives the outputs' shapes if their named axes do not.
    max_rank: how many of a tensor's dimensions an engine reads, enough to refuse a tensor with more.
    keeps_inputs: whether the operator's function may keep and change its inputs, which must then be copies.
    formula: what it computes, as lines of plain text for a code block.
    source: the document that defines it, with its version and its URL.
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
    rules: tuple[Rule, ...] = ()
    derived_axes: Mapping[str, Scaled] = field(default_factory=dict)
    equations: tuple[Quotient, ...] = ()
    standard: tuple[str, int] | None = None
    gradient: str | None = None
    formula: str = ""
    source: str = ""
    domain: str = DOMAIN
    shapes: ShapeFunction | None = None

    max_rank: ClassVar[int] = 8
    keeps_inputs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ValueError(f"{self.name}: {problem}")

    def _problems(self) -> Iterator[str]:
        """What is wrong with the definition."""
        for kind in ("attributes", "inputs", "outputs"):
            names = [item.name for item in getattr(self, kind)]
            if len(set(names)) != len(names):
                yield f"{kind} {names} repeat a name"
        attributes = {attribute.name for attribute in self.attributes}
        axes = {axis for tensor in self.inputs for axis in (*tensor.shape, *tensor.element_axes)}
        axes |= {axis for attribute in self.attributes for axis in attribute.axes} | attributes | set(self.derived_axes)
        for name in self.derived_axes:
            if not name.endswith(VARIABLE_AXES):
                yield f"derived_axes has {name!r}: must end with {VARIABLE_AXES!r}; see equations"
        for rule in self.rules:
            if unknown := sorted({*rule.attributes, *rule.broken} - attributes):
                yield f"a rule has {unknown}: must be attributes"
        for equation in self.equations:
            whole = () if equation.axis in axes else (equation.of,)  # either of the two gives the other
            if missing := sorted({*whole, *equation.by} - axes):
                yield f"no input or attribute gives {missing} of {equation}"
            axes |= {equation.axis, equation.of}
        types = set(self.types) | set(get_args(ElementType))
        for tensor in (*self.inputs, *self.outputs):
            if tensor.type not in types:
                yield f"{tensor.name} has type {tensor.type!r}, which is not one of {sorted(types)}"
        for tensor in self.outputs if self.domain == DOMAIN else ():
            if free := [axis for axis in tensor.shape if isinstance(axis, str) and axis not in axes]:
                yield f"no input or attribute gives axis {free} of {tensor.name}"

    @property
    def label(self) -> str:
        """The name in errors: with the domain, except in this project's and ONNX's domains."""
        return self.name if self.domain in (DOMAIN, "") else f"{self.domain}::{self.name}"

    @property
    def version_of_onnx(self) -> int:
        """The version of the operator in ONNX's domain; 0 in other domains."""
        return self.standard[1] if self.standard and not self.domain else 0

    @property
    def constructor(self) -> Constructor | None:
        """Makes the object that computes a session's nodes, if the operator has an object for each session; else None."""
        return None

    def check_node(self, shapes: Mapping[str, Any], attributes: Mapping[str, AttributeValue]) -> None:
        """Run the checks that need a node's shapes and attributes.

        Args:
            shapes: the inputs' shapes, in the form that `shapes` takes; those that the model does not give are missing.
            attributes: the checked attributes.

        Raises:
            RuntimeError: the operator cannot compute such a node.
        """

    @property
    def is_gradient(self) -> bool:
        """Whether the operator computes another operator's gradient."""
        return self.gradient is None

    @property
    def output_memory(self) -> int:
        """Which outputs compiled code fills in memory of its own (`ortops.native.types`)."""
        return 0

    def why_required(
        self, tensor: Tensor, attributes: Mapping[str, AttributeValue], wanted: Collection[str]
    ) -> str | None:
        """Why an optional input is required: an output, or an attribute with its value. None if it is not required.

        Args:
            tensor: the input.
            attributes: the node's attributes; others have their defaults.
            wanted: names of the outputs to compute.
        """
        if tensor.required_unless is not None:
            name, exempt = tensor.required_unless
            value = attributes.get(name, next(a.default for a in self.attributes if a.name == name))
            if value != exempt:
                return f"{name} = {value!r}"
        return next((name for name in tensor.required_for if name in wanted), None)

    @property
    def types_of_outputs(self) -> dict[str, tuple[ElementType, ...]]:
        """The part of `types` for the type variables that an output has."""
        used = {tensor.type for tensor in self.outputs}
        return {variable: kinds for variable, kinds in self.types.items() if variable in used}

    def element_types(self, tensor: Tensor) -> tuple[str, ...]:
        """The element types that `tensor` may have."""
        return self.types.get(tensor.type, (tensor.type,))

    @property
    def needed_attributes(self) -> tuple[tuple[str, ...], ...]:
        """For each rule that the defaults break, its attributes, one of which must be given."""
        defaults = {attribute.name: attribute.default for attribute in self.attributes}
        return tuple(rule.attributes for rule in self.rules if not rule.is_kept(defaults))

    def check_attributes(self, given: Mapping[str, object]) -> dict[str, AttributeValue]:
        """Every attribute's value, given or default, and the constants: all keyword arguments of `function`.

        Raises:
            TypeError: an attribute is unknown or has a wrong type.
            ValueError: a value breaks the rule of its attribute, or two attributes disagree.
        """
        unknown = set(given) - {attribute.name for attribute in self.attributes}
        if unknown:
            raise TypeError(f"{self.label} has no attribute {', '.join(sorted(unknown))}")
        checked: dict[str, AttributeValue] = {}
        for a in self.attributes:
            value = given.get(a.name, a.default)
            if value is None and a.default is None and a.required:
                raise ValueError(f"{a.name} is missing: {self.label} requires it")
            checked[a.name] = None if value is None and a.default is None else a.check(value)
        for rule in self.rules:
            if not rule.is_kept(checked):
                raise ValueError(rule.error.format(**checked))
        lists = {a.name: len(checked[a.name]) for a in self.attributes if a.is_per_axis and checked[a.name]}
        if len(set(lists.values())) > 1:
            counts = ", ".join(f"{name} has {count}" for name, count in lists.items())
            raise ValueError(f"{counts} values: must have the same number, one for each axis")
        return checked | dict(self.constants)


MAX_COMBINATIONS = 4096
"""The most combinations of element types. ONNX Runtime needs a kernel for each: 2,744 cost a session 0.2 s, 38,416 half a
minute."""


def check_combinations(label: str, what: str, types: Mapping[str, Collection[str]]) -> None:
    """Check that the type variables do not allow too many combinations of element types.

    Args:
        label: the operator's name in errors.
        what: the subject of the error's sentence, which has these variables.
        types: the element types that each variable may have.

    Raises:
        ValueError: there are too many.
    """
    count = math.prod(map(len, types.values()))
    if count > MAX_COMBINATIONS:
        raise ValueError(
            f"{label}: {what} {count:,} combinations of element types ({', '.join(types)}): must have at most "
            f"{MAX_COMBINATIONS:,}"
        )


Allocate: TypeAlias = Callable[[int, tuple[int, ...]], Any]
"""Takes an output's number and shape; returns an array to fill, or None if the node leaves the output out."""

Compute: TypeAlias = Callable[[Sequence[Any], Allocate, tuple[int, int] | None], None]
"""Computes a node from an array for each input, None for an absent input. The second argument allocates the outputs. The
third runs tasks (`compute.runner_on`), or is None for threads on all CPUs."""

Bind: TypeAlias = Callable[[Operator, dict[str, AttributeValue], Sequence[str]], Compute]
"""Makes the function that computes a node from its operator, its checked attributes and its outputs' element types."""

Constructor: TypeAlias = Callable[[], tuple[Bind, Callable[[], object]]]
"""Makes an operator's object for a session; returns a function that binds nodes to it, and a function that closes it."""
