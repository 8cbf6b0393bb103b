# SPDX-License-Identifier: MIT OR Apache-2.0
"""How a mutant is made: a copy of the reference in which some functions are edited or replaced.

A table has a sentence and steps for each mutant. Steps map functions of `ortops.reference`, or `rounded`, to replacements: a
function with the same parameters, or an edit of the source, which replaces a text that occurs in it exactly once.
"""

from __future__ import annotations
import __future__

import ast
import functools
import importlib
import inspect
import itertools
import math
import pkgutil
import random
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from ortops import reference
from ortops.operators.asked import BY_NAME, OPERATORS
from ortops.reference import evaluate, function_of, roi_align_rotated, sampling
from ortops.spec import Operator

Array = npt.NDArray[Any]
Steps = dict[Any, Any]
"""Functions and their replacements."""

_MODULES = (
    reference,
    *(
        importlib.import_module(f"{reference.__name__}.{module.name}")
        for module in pkgutil.iter_modules(reference.__path__)
    ),
)


class Category(StrEnum):
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


class Edit(NamedTuple):
    """Changes of a function's source: pairs of an old text, which occurs exactly once, and a new text."""

    changes: tuple[tuple[str, str], ...]


def edit(function: Callable[..., Any], *texts: str) -> Steps:
    """Steps that edit a function: `texts` are an old and a new text, or several such pairs."""
    return {function: Edit(tuple(zip(texts[::2], texts[1::2], strict=True)))}


@dataclass(frozen=True, eq=False)
class Mutant:
    """An implementation with one mistake.

    family: the family of its operators.
    category: the part of the operator that it gets wrong.
    short_name: its name among those of the family.
    description: what is wrong, in one sentence.
    steps: what it replaces.
    """

    family: str
    category: Category
    short_name: str
    description: str
    steps: Steps

    @property
    def name(self) -> str:
        """The name of its family, and its own name there."""
        return f"{self.family}:{self.short_name}"

    def concerns(self, operator: Operator) -> bool:
        """Whether it gets this operator wrong."""
        return operator.family == self.family and (operator.is_gradient or self.category is not Category.GRADIENTS)

    @functools.cached_property
    def backend(self) -> type[Model]:
        """The class with ONNX's backend interface."""
        body = {"__doc__": self.description, "__module__": f"conformance.families.{self.family}.mutants"}
        return type(self.short_name, (Model,), {**body, "FAMILY": self.family, "STEPS": (self.steps,)})

    def with_another(self, other: Mutant) -> type[Model]:
        """The backend with the mistakes of two mutants of one family.

        Raises:
            ValueError: both edit the same text.
        """
        name = f"{self.short_name}And{other.short_name}"
        return type(name, (Model,), {"FAMILY": self.family, "STEPS": (self.steps, other.steps)})


class Mutants(dict[str, Mutant]):
    """The mutants of one family, by name."""

    def find(self, name: str) -> type[Model]:
        """The backend of this name. A module's `__getattr__` calls this, so that `module:name` is a backend."""
        if name not in self:
            raise AttributeError(f"no mutant is called {name!r}")
        return self[name].backend


class Table:
    """Mutants that do not yet belong to a family. They follow those of other tables."""

    def __init__(self, *others: Table) -> None:
        self.rows: list[tuple[Category, str, str, Steps]] = [row for other in others for row in other.rows]

    def add(self, *rows: Category | str | Steps) -> None:
        """Add mutants.

        Args:
            rows: a category and then, for each mutant of it, its name and a sentence that says what is wrong, as
                "Name: sentence.", and its steps; and so on for other categories.
        """
        left = iter(rows)
        for row in left:
            if isinstance(row, Category):
                category = row
                continue
            name, _, description = str(row).partition(": ")
            self.rows.append((category, name, description, cast("Steps", next(left))))

    def add_limits(self, *rows: tuple[str, int, int, Callable[[int], Steps]]) -> None:
        """Add mutants that are wrong from some size on. The size is drawn log-uniformly, so cases cannot be fitted to it.

        Args:
            rows: for each its name and a sentence, with {} for the size, the smallest and the largest size, and its steps.
        """
        for words, low, high, steps in rows:
            drawn = random.Random(words.partition(":")[0]).uniform(math.log(low), math.log(high))  # noqa: S311
            size = round(math.exp(drawn))
            self.add(Category.SIZES, words.format(size), steps(size))

    def of(self, family: str) -> Mutants:
        """The mutants as those of a family.

        Raises:
            ValueError: two rows have the same name.
        """
        mutants = Mutants()
        for category, name, description, steps in self.rows:
            if name in mutants:
                raise ValueError(f"{family}: two mutants are called {name}: names must be unique")
            mutants[name] = Mutant(family, category, name, description, steps)
        return mutants


@dataclass(frozen=True)
class Call:
    """The call that a mutant is answering.

    dtype: the type of the tensors.
    inputs: by name, without inputs that the node leaves out.
    memory: what the mutant keeps between calls of one model.
    constants: the names of inputs that are constants of the model.
    """

    operator: Operator
    dtype: np.dtype[Any]
    inputs: Mapping[str, Array]
    memory: dict[str, Any]
    constants: frozenset[str]

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


def is_gradient() -> bool:
    """Whether the call is one of a gradient."""
    return call().operator.is_gradient


def narrowed(value: Any, dtype: Any = None) -> Any:
    """One number or several, rounded to a type, by default the tensors' type."""
    if isinstance(value, tuple | list):
        return type(value)(narrowed(number, dtype) for number in value)
    return float(np.asarray(value).astype(dtype or call().dtype))


def rounded(y: Array, dtype: np.dtype[Any]) -> Array:
    """A result, rounded to the tensors' type."""
    return y.astype(dtype)


EXTRA = {"is_gradient": is_gradient, "narrowed": narrowed, "call": call, "np": np, "math": math}
"""Names that edited text may use in addition to those of its module."""

EVERYWHERE = edit(
    sampling.candidate_indices,
    "if axis.per_bin == 0:",
    "if axis.per_bin <= 1024: return range(axis.per_bin)\n    if 0:",
) | edit(
    roi_align_rotated.Side.between,
    *("if low > high:", "if self.per_bin <= 1024: return range(first, last)\n    if low > high:"),
)
"""All samples are visited, even those off the map, because some mutants move samples or read outside the map."""


class Model:
    """A model of one node, answered by the reference, in which `STEPS` are replaced.

    FAMILY: the family of the operators that it runs.
    STEPS: the steps of each of its mistakes.
    """

    FAMILY: ClassVar[str]
    STEPS: ClassVar[tuple[Steps, ...]] = ()
    _evaluate: ClassVar[Callable[..., list[Array | None]]]

    def __init_subclass__(cls) -> None:
        # Here, because an error in a row must not be taken for the refusal of a case.
        cls._evaluate = staticmethod(with_replaced(*cls.STEPS))

    def __init__(self, model: onnx.ModelProto) -> None:
        (node,) = model.graph.node
        self.operator = _operator_of(model)
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        self.attributes = {name: value.decode() if isinstance(value, bytes) else value for name, value in given.items()}
        self._names = list(node.input)
        self._wanted = [bool(name) for name in (*node.output, *[""] * len(self.operator.outputs))]
        self._constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self._given = [value.name for value in model.graph.input if value.name not in self._constants]
        self._memory: dict[str, Any] = {}

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU") -> bool:
        """Whether the model's node belongs to the family."""
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
        token = _call.set(Call(self.operator, dtype, kept, self._memory, frozenset(self._constants)))
        try:
            with np.errstate(all="ignore"):
                wanted = self._wanted[: len(self.operator.outputs)]
                results = self._evaluate(self.operator, arguments, self.attributes, wanted)
                rounding = next((steps[rounded] for steps in self.STEPS if rounded in steps), rounded)
                return [rounding(y, dtype) for y in results if y is not None]
        finally:
            _call.reset(token)


def _operator_of(model: onnx.ModelProto) -> Operator:
    """The operator of the model's only node; for ONNX's operators, the newest version up to the model's opset.

    Of several definitions of a version, it is the one for the rank of the first input.
    """
    (node,) = model.graph.node
    if node.domain:
        return BY_NAME[node.op_type]
    opset = next(o.version for o in model.opset_import if not o.domain)
    known = [o for o in OPERATORS if o.standard and o.standard[0] == node.op_type and o.standard[1] <= opset]
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in model.graph.input}
    rank = (ranks | {tensor.name: len(tensor.dims) for tensor in model.graph.initializer})[node.input[0]]
    return max(known, key=lambda o: (o.standard[1] if o.standard else 0, rank in o.inputs[0].ranks))


def with_replaced(*mistakes: Steps) -> Callable[..., list[Array | None]]:
    """A copy of `evaluate` in which all functions, however deep, call the replacements.

    With several mistakes, a replacement calls what the other ones have made of the function that it replaces.

    Raises:
        ValueError: a key of `steps` is not a function of `ortops.reference`; or an edit changes nothing, or its function
            does not contain the old text exactly once.
    """
    namespaces = {module.__name__: vars(module) | EXTRA for module in _MODULES}
    functions, methods = _definitions()
    unknown = [f.__qualname__ for steps in mistakes for f in steps if f not in functions and f is not rounded]
    if unknown:
        raise ValueError(f"not functions of ortops.reference: {', '.join(unknown)}")

    def copied(function: types.FunctionType) -> Any:
        steps = [each[function] for each in mistakes if function in each] or [EVERYWHERE.get(function, Edit(()))]
        changes = [change for step in steps if isinstance(step, Edit) for change in step.changes]
        namespace = namespaces[function.__module__]
        code = _edited(function, Edit(tuple(changes))) if changes else function.__code__
        copy = types.FunctionType(code, namespace, function.__name__, function.__defaults__, function.__closure__)
        copy.__kwdefaults__ = function.__kwdefaults__
        for step in steps:
            if not isinstance(step, Edit):
                copy = step if len(mistakes) == 1 else _calling(step, function, copy)
        return copy

    copies: dict[Any, Any] = {function: copied(function) for function in functions}
    copies |= {
        owner: type(owner.__name__, (owner,), {name: copies[function] for name, function in named.items()})
        for owner, named in methods.items()
    }
    copies[function_of] = lambda operator: copies[function_of(operator)]
    for namespace in namespaces.values():
        kinds = types.FunctionType | type
        namespace |= {n: copies[v] for n, v in namespace.items() if isinstance(v, kinds) and v in copies}
    return copies[evaluate]  # type: ignore[no-any-return]


def _calling(replacement: Any, function: types.FunctionType, copy: Any) -> Any:
    """A replacement of `function` that calls `copy` wherever it calls `function`."""

    def changed(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: copy if value is function else value for name, value in values.items()}

    cells = [c if c.cell_contents is not function else types.CellType(copy) for c in replacement.__closure__ or ()]
    changed_copy = types.FunctionType(
        replacement.__code__, changed(replacement.__globals__), None, replacement.__defaults__, tuple(cells)
    )
    changed_copy.__kwdefaults__ = changed(replacement.__kwdefaults__ or {})
    return changed_copy


@functools.cache
def _edited(function: types.FunctionType, step: Edit) -> types.CodeType:
    right = source = textwrap.dedent(inspect.getsource(function))
    for old, new in step.changes:
        if source.count(old) != 1:
            raise ValueError(f"{function.__qualname__}: must have the text {old!r} once")
        source = source.replace(old, new)
    if ast.dump(ast.parse(source)) == ast.dump(ast.parse(right)):
        raise ValueError(f"{function.__qualname__}: the edit {step.changes} must change more than lines and spaces")
    flags = __future__.annotations.compiler_flag
    whole = compile(source, f"<{function.__qualname__}>", "exec", flags, dont_inherit=True)
    return next(
        code for code in whole.co_consts if isinstance(code, types.CodeType) and code.co_name == function.__name__
    )


@functools.cache
def _definitions() -> tuple[list[types.FunctionType], dict[type, dict[str, types.FunctionType]]]:
    """The functions of the reference with the methods of its classes, and these methods by class."""
    values = [v for m in _MODULES for v in vars(m).values() if getattr(v, "__module__", None) == m.__name__]
    functions = [value for value in values if isinstance(value, types.FunctionType)]
    methods = {value: _methods(value) for value in values if isinstance(value, type)}
    methods = {owner: named for owner, named in methods.items() if named}
    return [*functions, *itertools.chain.from_iterable(named.values() for named in methods.values())], methods


def _methods(owner: type) -> dict[str, types.FunctionType]:
    """The methods that a class of the reference defines itself; none for a protocol."""
    if getattr(owner, "_is_protocol", False):
        return {}
    methods = {name: value for name, value in vars(owner).items() if isinstance(value, types.FunctionType)}
    return {n: m for n, m in methods.items() if not n.startswith("__") and m.__module__ == owner.__module__}
