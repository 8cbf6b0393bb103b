"""How a mutant is made: a copy of the reference in which some of its functions call others.

A row of a table has the name of a mutant, one sentence that says what is wrong, and its steps: functions of
`ortops.reference`, or `rounded`, and what replaces each, with the same parameters. A replacement may call what it replaces.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from ortops import reference
from ortops.operators import BY_NAME, OPERATORS
from ortops.reference import (
    dml_resample,
    dml_roi_align,
    evaluate,
    function_of,
    max_roi_pool,
    roi_align,
    roi_align_rotated,
    sampling,
)
from ortops.spec import Operator

Array = npt.NDArray[Any]
T = TypeVar("T")
Steps = Mapping[Any, Any]
"""Functions, each with its replacement."""

_MODULES = (reference, sampling, roi_align, dml_roi_align, dml_resample, roi_align_rotated, max_roi_pool)


class Category(str, Enum):
    """The part of an operator that a mutant gets wrong."""

    COORDINATES = "coordinates"
    BORDERS = "borders"
    COUNTS = "counts"
    REDUCTIONS = "reductions"
    TYPES = "types and accumulation"
    INDEXING = "batch and channel indexing"
    GRADIENTS = "gradients"
    DEFAULTS = "versions and defaults"
    SIZES = "sizes and values"


class Row(NamedTuple):
    """A mutant, before it belongs to a family."""

    category: Category
    name: str
    description: str
    steps: Steps
    is_gradient_only: bool


class Table:
    """Rows, made by `table[name, sentence] = steps`, after those of other tables.

    category: that of the rows that are made from here on.
    """

    def __init__(self, *others: Table, is_gradient_only: bool = False) -> None:
        self.rows: list[Row] = [row for other in others for row in other.rows]
        self.category = Category.COORDINATES
        self._is_gradient_only = is_gradient_only

    def __setitem__(self, words: tuple[str, str], steps: Steps) -> None:
        is_gradient_only = self._is_gradient_only or self.category is Category.GRADIENTS
        self.rows.append(Row(self.category, *words, steps, is_gradient_only))

    @property
    def of_gradient(self) -> Table:
        """This table for rows whose forward operator is right."""
        made = Table(is_gradient_only=True)
        made.rows, made.category = self.rows, self.category
        return made


@dataclass(frozen=True, eq=False)
class Mutant:
    """An implementation with one mistake.

    family: the family of its operators.
    row: what it replaces.
    """

    family: str
    row: Row

    @property
    def name(self) -> str:
        """The name of its backend without `conformance.mutants.`: module:class."""
        return f"{self.family}:{self.row.name}"

    @property
    def category(self) -> Category:
        """The part of the operator that it gets wrong."""
        return self.row.category

    @property
    def is_gradient_only(self) -> bool:
        """Whether only the gradient is wrong."""
        return self.row.is_gradient_only

    @property
    def description(self) -> str:
        """What is wrong, in one sentence."""
        return self.row.description

    def concerns(self, operator: Operator) -> bool:
        """Whether it gets this operator wrong."""
        return operator.family == self.family and (operator.is_gradient or not self.is_gradient_only)

    @functools.cached_property
    def backend(self) -> type[Model]:
        """The class with ONNX's backend interface."""
        body = {"__doc__": self.description, "__module__": f"conformance.mutants.{self.family}"}
        return type(self.row.name, (Model,), {**body, "FAMILY": self.family, "STEPS": self.row.steps})


class Mutants:
    """The mutants of one family, by name.

    Raises:
        ValueError: two rows have the same name.
    """

    def __init__(self, family: str, table: Table) -> None:
        self.all = [Mutant(family, row) for row in table.rows]
        self._by_name = {mutant.row.name: mutant for mutant in self.all}
        if len(self._by_name) < len(self.all):
            twice = next(row.name for row in table.rows if [other.name for other in table.rows].count(row.name) > 1)
            raise ValueError(f"{family}: {twice} twice: every mutant must have a name of its own")

    def find(self, name: str) -> type[Model]:
        """The backend of this name. It serves as a module's `__getattr__`, so that a backend can be `module:name`."""
        if name not in self._by_name:
            raise AttributeError(f"there is no mutant {name!r}")
        return self._by_name[name].backend


@dataclass(frozen=True)
class Call:
    """The call that a mutant is answering.

    dtype: the type of the tensors.
    inputs: by name, without those that the node leaves out.
    copies: the functions of the reference as the mutant has them, not replaced themselves.
    memory: what the mutant keeps from call to call of one model.
    """

    operator: Operator
    dtype: np.dtype[Any]
    inputs: Mapping[str, Array]
    copies: Mapping[Any, Any]
    memory: dict[str, Any]

    def role(self, names: Sequence[str]) -> Array | None:
        """The first input that has one of these names."""
        return next((self.inputs[name] for name in names if name in self.inputs), None)

    @property
    def x_shape(self) -> tuple[int, ...]:
        """The shape of the map, [N, C, H, W]."""
        x = self.role(("X", "InputTensor"))
        return tuple(self.inputs["x_shape"].tolist()) if x is None else x.shape


_call: ContextVar[Call] = ContextVar("call")


def call() -> Call:
    """The call that is being answered."""
    return _call.get()


def own(function: Callable[..., T]) -> Callable[..., T]:
    """A function of the reference that calls the other replacements of the mutant; plainly called, it calls none."""
    return cast("Callable[..., T]", call().copies[function])


def is_gradient() -> bool:
    """Whether the call is one of a gradient."""
    return call().operator.is_gradient


def rounded(y: Array, dtype: np.dtype[Any]) -> Array:
    """A result, rounded to the type of the tensors."""
    return y.astype(dtype)


class Model:
    """A model of one node, answered by the reference, in which `STEPS` are replaced.

    FAMILY: the family of the operators that it runs.
    """

    FAMILY: ClassVar[str]
    STEPS: ClassVar[Steps] = {}

    def __init__(self, model: onnx.ModelProto) -> None:
        (node,) = model.graph.node
        self.operator = _operator_of(model)
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        self.attributes = {name: value.decode() if isinstance(value, bytes) else value for name, value in given.items()}
        self._names = list(node.input)
        self._wanted = [bool(name) for name in (*node.output, *[""] * len(self.operator.outputs))]
        self._constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self._given = [value.name for value in model.graph.input if value.name not in self._constants]
        self._evaluate, self._copies = _copies_of(type(self))  # type: ignore[arg-type]  # a class can be hashed
        self._memory: dict[str, Any] = {}

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU") -> bool:
        """Whether the model's node is of the family."""
        return device == "CPU" and _operator_of(model).family == cls.FAMILY

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU") -> Model:
        """The model, ready to run."""
        del device
        return cls(model)

    def run(self, inputs: list[Array]) -> list[Array]:
        """The outputs of the node, in its order."""
        values = self._constants | dict(zip(self._given, inputs, strict=True))
        arguments = [values.get(name) for name in self._names]
        kept = {t.name: a for t, a in zip(self.operator.inputs, arguments, strict=False) if a is not None}
        dtype = next(iter(kept.values())).dtype
        token = _call.set(Call(self.operator, dtype, kept, self._copies, self._memory))
        try:
            with np.errstate(all="ignore"):
                wanted = self._wanted[: len(self.operator.outputs)]
                found = self._evaluate(self.operator, arguments, self.attributes, wanted)
                return [self.STEPS.get(rounded, rounded)(y, dtype) for y in found if y is not None]
        finally:
            _call.reset(token)


def _operator_of(model: onnx.ModelProto) -> Operator:
    """The operator of the model's only node; for one of ONNX the newest version up to the model's opset."""
    (node,) = model.graph.node
    if node.domain:
        return BY_NAME[node.op_type]
    opset = next(o.version for o in model.opset_import if not o.domain)
    known = [(o.standard[1], o) for o in OPERATORS if o.standard and o.standard[0] == node.op_type]
    return max((one for one in known if one[0] <= opset), key=lambda one: one[0])[1]


@functools.cache
def _copies_of(model: type[Model]) -> tuple[Callable[..., list[Array | None]], Mapping[Any, Any]]:
    return with_replaced(model.STEPS)


def with_replaced(steps: Steps) -> tuple[Callable[..., list[Array | None]], Mapping[Any, Any]]:
    """A copy of `evaluate` whose functions call the replacements, however deep, and copies of what is not replaced.

    Raises:
        ValueError: a replaced function is none of the reference.
    """
    namespaces = {module.__name__: dict(vars(module)) for module in _MODULES}

    def copied(function: types.FunctionType) -> Any:
        made = types.FunctionType(
            function.__code__, namespaces[function.__module__], function.__name__, None, function.__closure__
        )
        made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        return made

    originals: dict[Any, Any] = {}
    classes: dict[Any, Any] = {}
    for module in _MODULES:
        for value in vars(module).values():
            if getattr(value, "__module__", None) != module.__name__:
                continue
            if isinstance(value, types.FunctionType):
                originals[value] = copied(value)
            elif methods := _methods(value):
                originals |= {method: copied(method) for method in methods.values()}
                body = {name: steps.get(method) or originals[method] for name, method in methods.items()}
                classes[value] = type(value.__name__, (value,), body)
    if unknown := [step.__qualname__ for step in steps if step not in originals and step is not rounded]:
        raise ValueError(f"{', '.join(unknown)}: must be functions of ortops.reference")
    copies = originals | classes | dict(steps)
    copies[function_of] = lambda operator: copies[function_of(operator)]
    for namespace in namespaces.values():
        namespace |= {
            name: copies[value]
            for name, value in namespace.items()
            if isinstance(value, types.FunctionType | type) and value in copies
        }
    return copies[evaluate], originals


def _methods(value: object) -> dict[str, types.FunctionType]:
    """The methods that a class of the reference defines itself; none for a protocol."""
    if not isinstance(value, type) or getattr(value, "_is_protocol", False):
        return {}
    own = {name: one for name, one in vars(value).items() if isinstance(one, types.FunctionType)}
    return {name: one for name, one in own.items() if not name.startswith("__") and one.__module__ == value.__module__}
