"""The classes of an operator's definition: attributes with their rules, tensors with named axes, and the operator itself.

Definitions are frozen data, and everything else is made from them: schemas, checks, builders, documents, test cases. This
module imports neither ONNX Runtime nor numba.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import ml_dtypes
import numpy as np

DOMAIN = "ai.onnx.contrib"
"""The only domain in which onnxruntime-extensions can register an operator."""

DOMAIN_VERSION = 1

MAX_RANK = 4
"""The largest rank of a tensor of variable rank, and the largest length of a list with one value for each axis."""

AttributeType = Literal["INT", "FLOAT", "STRING", "INTS", "FLOATS", "STRINGS", "TENSOR"]
AttributeValue: TypeAlias = Any
"""An int, a float, a str, a tuple of one of these or an array, as the attribute's type says; None for an absent one."""

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
    # Of operators of users alone.
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
    """One attribute of an operator: its type, its default and the rule for its value, or for each value of a list.

    A list (INTS, FLOATS, STRINGS) is empty or has one value for each axis of the operator's tensors of variable rank; with
    `axes`, its values are the lengths of these axes; with `any_length`, it is any list.

    default: the value where a node does not have the attribute; None for no value, or, with `required`, for an error. Of an
        array it is a copy that cannot be written to.
    doc: full sentences: the meaning, the unit and the allowed values.
    choices: the allowed strings, case-sensitive; empty if every string is allowed.
    minimum, maximum: the least and the largest allowed number, or None.
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
        return _TYPE_RULES[self._kind]

    @property
    def is_list(self) -> bool:
        """Whether the value is a list."""
        return self.type.endswith("S")

    @property
    def is_per_axis(self) -> bool:
        """Whether the value is a list with one entry for each axis of the tensors of variable rank."""
        return self.is_list and not self.axes and not self.any_length

    @property
    def _kind(self) -> str:
        """The type of the value, or of each value of a list."""
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
        return tuple(self._check_one(f"{self.name}[{i}]", one) for i, one in enumerate(value))

    def _check_one(self, name: str, value: object) -> int | float | str:
        if isinstance(value, bool) or not isinstance(value, _PYTHON_TYPES[self._kind]):
            raise TypeError(f"{name} = {value!r}: {self.type} attribute, {self.rule}")
        if isinstance(value, str):
            kept: int | float | str = value
            is_allowed = not self.choices or value in self.choices
        else:
            # ONNX stores a FLOAT attribute as float32. The functions outside of sessions round it alike.
            with np.errstate(over="ignore"):
                kept = int(value) if self._kind == "INT" else float(np.float32(value))  # type: ignore[call-overload, arg-type]
            if self._kind == "INT" and abs(kept) > _INT64.max:
                raise ValueError(f"{name} = {value!r}: must fit in 64 bits")
            is_allowed = self.minimum is None or kept >= self.minimum
            is_allowed = is_allowed and (self.maximum is None or kept <= self.maximum)
            if self.positive or self.finite:
                is_allowed = is_allowed and math.isfinite(kept) and (kept > 0 or not self.positive)
        if not is_allowed:
            raise ValueError(f"{name} = {value!r}: {self.rule}")
        return kept


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of attributes that depend on each other, besides the rule of each.

    attributes: their names.
    holds: takes the list of their values; whether these obey. Compiled code knows `is_ascending` and `any`.
    error: what an error says, with ``{name}`` for the value of an attribute.
    broken: values that break the rule, for tests.
    """

    attributes: tuple[str, ...]
    holds: Callable[[Sequence[AttributeValue]], bool]
    error: str
    broken: Mapping[str, AttributeValue]

    def is_kept(self, values: Mapping[str, AttributeValue]) -> bool:
        """Whether values of all attributes obey."""
        return self.holds([values[name] for name in self.attributes])


def ordered(low: str, high: str) -> Rule:
    """The rule that one attribute must not exceed another."""
    error = f"{low} = {{{low}}}: must be <= {high} = {{{high}}}"
    return Rule((low, high), is_ascending, error, {low: 3, high: 2})


def is_ascending(values: Sequence[AttributeValue]) -> bool:
    """Whether no value exceeds the next one."""
    return all(low <= high for low, high in itertools.pairwise(values))


def one_given(*lists: str) -> Rule:
    """The rule that at least one of several lists must have values."""
    error = f"{' and '.join(lists)} are empty: at least one must have values"
    return Rule(lists, any, error, dict.fromkeys(lists, ()))


VARIABLE_AXES = "..."
"""The suffix of a name that stands for all axes of a tensor of variable rank: ``N...`` for N0, N1 and so on."""

ANY_SHAPE = ("*",)
"""The shape of a tensor of any rank, of which nothing is checked."""

RANK = "rank"
"""The name of the axis whose length is the rank of the tensors of variable rank."""

Length = int | str | None
"""The length of an axis: a number, a symbolic name (ONNX's ``dim_param``), or None if unknown."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """Lengths that are given, or follow from those of an input by a factor for each axis.

    of: the name of the input's axes, without ``...``.
    sizes: the attribute, a list, that gives the lengths; or it is empty.
    scales: the attribute, a list, of the factors.
    """

    of: str
    sizes: str
    scales: str

    def length(self, length: Length, axis: int, attributes: Mapping[str, AttributeValue]) -> Length:
        """The length of an axis: its value of the sizes, or else floor(length * scale); None if it is unknown.

        Args:
            length: that of the input's axis.
            axis: its number.
            attributes: those that are known.

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
"""Takes the shapes of the inputs, a list of them for a variadic one, and the attributes, by name; returns the shape of
each output. A shape is None if its rank is unknown."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input or output of an operator.

    type: a type variable of the operator (``T1``) or an element type (``int64``).
    shape: `ANY_SHAPE`, or for each axis its length or its name. Axes of one name have the same length in all tensors of
        the operator; the name of an attribute stands for its value. A single name that ends in ``...`` stands for 1 to 4
        axes, for the same number in every tensor; the axis `RANK` has this number as its length.
    element_axes: for an int64 input whose *elements* are lengths (``x_shape``): the name of the axis for each element.
    optional: True if a node may leave the tensor out.
    variadic: True, for the last input or output alone, if it stands for one or more tensors of one type.
    max_leading_ones: how many axes of length 1 may come before those of `shape`.
    leading_from: for an output: the input that has the same leading axes of length 1.
    zero_gradient_reason: for a floating-point input whose derivative is 0 everywhere: the reason.
    required_for: for an optional input: the outputs that cannot be computed without it.
    required_unless: for an optional input: an attribute and its only value with which the input may be left out.
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

    def axes(self, rank: int) -> tuple[int | str, ...]:
        """The length or the name of each axis of a tensor with `rank` axes."""
        return _numbered(self.shape, rank) if self.has_variable_rank else (1,) * (rank - len(self.shape)) + self.shape

    def axes_of_elements(self, rank: int) -> tuple[int | str, ...]:
        """The name of the axis for each element, where tensors of variable rank have `rank` axes."""
        return _numbered(self.element_axes, rank) if _is_open(self.element_axes) else self.element_axes


def _is_open(axes: tuple[int | str, ...]) -> bool:
    return len(axes) == 1 and str(axes[0]).endswith(VARIABLE_AXES)


def _numbered(axes: tuple[int | str, ...], rank: int) -> tuple[str, ...]:
    return tuple(f"{str(axes[0]).removesuffix(VARIABLE_AXES)}{i}" for i in range(rank))


@dataclass(frozen=True, slots=True)
class Quotient:
    """An equation between lengths: that of `axis` is that of `of`, divided without a remainder by all of `by`.

    The names are those of axes, or of attributes that give lengths. As text it is the equation itself.
    """

    axis: str
    of: str
    by: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.axis} = {self.of} / ({' * '.join(self.by)})"

    def solved(self, known: Mapping[str, Length], given: str) -> dict[str, int]:
        """A length that follows from known ones, by its name; nothing if too few are known, or if a divisor is 0.

        Args:
            known: lengths of axes and values of attributes by name.
            given: what gives them and its value, for errors.

        Raises:
            ValueError: the lengths contradict the equation.
        """
        divisors, part, whole = [known.get(name) for name in self.by], known.get(self.axis), known.get(self.of)
        if not all(isinstance(one, int) and one > 0 for one in divisors):
            return {}
        divisor, rule = math.prod(one for one in divisors if isinstance(one, int)), " * ".join(self.by)
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
    """The definition of an operator. Its schema, registration, builder, documentation and test cases are made from it.

    family: the name of its module in ``reference`` and in ``functional``; empty for an operator of a user.
    function: the name of the function of these modules, and of the entry in ``kernels``, that computes it; likewise.
    doc: what the operator does, in one sentence or a few.
    types: for each type variable, the element types it may have.
    constants: arguments of `function` that this operator fixes and has no attributes for.
    rules: of attributes that depend on each other.
    derived_axes: for an output of variable rank whose axes (``M...``) no input has: what they follow from.
    equations: between the lengths of axes, which may give an axis that no input has.
    standard: name and opset of the ONNX operator that it implements, or None.
    gradient: for a forward operator: the name of the operator that computes its gradient.
    domain: the domain of its nodes.
    shapes: gives the shapes of the outputs, where their named axes do not.
    max_rank: how many dimensions of a tensor an engine reads, enough to refuse one with more.
    keeps_inputs: whether what computes it may keep and change its inputs, which must then be copies.
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
        for kind in ("attributes", "inputs", "outputs"):
            names = [item.name for item in getattr(self, kind)]
            if len(set(names)) != len(names):
                raise ValueError(f"{self.name}: {kind} {names} repeat a name")
        known = set(self.types) | set(get_args(ElementType))
        axes = {axis for tensor in self.inputs for axis in (*tensor.shape, *tensor.element_axes)}
        axes |= {name for attribute in self.attributes for name in (attribute.name, *attribute.axes)} | set(
            self.derived_axes
        )
        for name in self.derived_axes:
            if not name.endswith(VARIABLE_AXES):
                raise ValueError(
                    f"{self.name}: derived_axes has {name!r}: must end with {VARIABLE_AXES!r}; see equations"
                )
        for rule in self.rules:
            if unknown := sorted({*rule.attributes, *rule.broken} - {attribute.name for attribute in self.attributes}):
                raise ValueError(f"{self.name}: a rule has {unknown}: must be attributes")
        for equation in self.equations:
            if missing := sorted({equation.of, *equation.by} - axes):
                raise ValueError(f"{self.name}: no input or attribute gives {missing} of {equation}")
            axes.add(equation.axis)
        for tensor in (*self.inputs, *self.outputs):
            if tensor.type not in known:
                raise ValueError(
                    f"{self.name}: {tensor.name} has type {tensor.type!r}, which is not one of {sorted(known)}"
                )
        for tensor in self.outputs if self.domain == DOMAIN else ():
            unknown = [axis for axis in tensor.shape if isinstance(axis, str) and axis not in axes]
            if unknown:
                raise ValueError(f"{self.name}: no input or attribute gives axis {unknown} of {tensor.name}")

    @property
    def label(self) -> str:
        """The name in errors: with the domain, except in the domains of this project and of ONNX."""
        return self.name if self.domain in (DOMAIN, "") else f"{self.domain}::{self.name}"

    @property
    def constructor(self) -> Constructor | None:
        """Makes what computes the nodes of one session, for an operator that has an object for each session; else None."""
        return None

    def check_node(self, shapes: Mapping[str, Any], attributes: Mapping[str, AttributeValue]) -> None:
        """Check what the definition can only check of a node.

        Args:
            shapes: the shapes of the inputs as far as the model tells them, as `shapes` takes them.
            attributes: the checked attributes.

        Raises:
            RuntimeError: the operator cannot compute such a node.
        """

    @property
    def is_gradient(self) -> bool:
        """Whether the operator computes the gradient of another one."""
        return self.gradient is None

    @property
    def output_memory(self) -> int:
        """Which outputs compiled code fills in memory of its own (`ortops.calls.definition_words`)."""
        return 0

    def why_required(
        self, tensor: Tensor, attributes: Mapping[str, AttributeValue], wanted: Collection[str]
    ) -> str | None:
        """The reason why an optional input is required: an output, or an attribute with its value. None if it is not.

        Args:
            tensor: the input.
            attributes: the attributes that a node has; others have their defaults.
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
        """Of `types`, the type variables that an output has."""
        used = {tensor.type for tensor in self.outputs}
        return {variable: kinds for variable, kinds in self.types.items() if variable in used}

    def element_types(self, tensor: Tensor) -> tuple[str, ...]:
        """The element types that `tensor` may have."""
        return self.types.get(tensor.type, (tensor.type,))

    @property
    def needed_attributes(self) -> tuple[tuple[str, ...], ...]:
        """The attributes of each rule that their defaults break, so that one of them has to be given."""
        defaults = {attribute.name: attribute.default for attribute in self.attributes}
        return tuple(rule.attributes for rule in self.rules if not rule.is_kept(defaults))

    def check_attributes(self, given: Mapping[str, object]) -> dict[str, AttributeValue]:
        """The value of every attribute, given or default, and the constants: all keyword arguments of `function`.

        Raises:
            TypeError: an attribute is unknown or has a wrong type.
            ValueError: a value breaks the rule of its attribute, or two attributes disagree.
        """
        unknown = set(given) - {attribute.name for attribute in self.attributes}
        if unknown:
            raise TypeError(f"{self.name} has no attribute {', '.join(sorted(unknown))}")
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
"""Of element types. ONNX Runtime needs a kernel for each: 2,744 take a session 0.2 s, 38,416 half a minute."""


def check_combinations(label: str, what: str, types: Mapping[str, Collection[str]]) -> None:
    """Check that the product of the element types of type variables is not too large.

    Args:
        label: the operator's name in errors.
        what: what has these variables, for errors.
        types: the element types that each variable may have.

    Raises:
        ValueError: it is.
    """
    count = math.prod(map(len, types.values()))
    if count > MAX_COMBINATIONS:
        raise ValueError(
            f"{label}: {what} {count:,} combinations of element types ({', '.join(types)}): must have at most "
            f"{MAX_COMBINATIONS:,}"
        )


Compute: TypeAlias = Callable[[Sequence[Any], Callable[[int, tuple[int, ...]], Any], tuple[int, int] | None], None]
"""Computes a node from the array of each input, None for an absent one. Its second argument takes the number and the shape
of an output and returns an array to fill, or None if the node leaves the output out; the third runs tasks (`jit.runners`),
or is None for threads on all CPUs."""

Bind: TypeAlias = Callable[[Operator, dict[str, AttributeValue], Sequence[str]], Compute]
"""Makes the function that computes a node from its operator, its checked attributes and its outputs' element types."""

Constructor: TypeAlias = Callable[[], tuple[Bind, Callable[[], object]]]
"""Makes an operator's object for a session; returns what binds nodes to it, and what closes it."""
