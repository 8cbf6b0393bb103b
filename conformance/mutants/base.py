"""What controls and mutants share: ONNX's backend interface, and how a mutant is made from a control."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

Array = npt.NDArray[Any]


class Category(str, Enum):
    """The part of an operator that a fault concerns."""

    COORDINATES = "coordinates"
    BORDERS = "borders"
    COUNTS = "counts"
    REDUCTIONS = "reductions"
    TYPES = "types and accumulation"
    INDEXING = "batch and channel indexing"
    GRADIENTS = "gradients"
    DEFAULTS = "versions and defaults"
    SIZES = "sizes and values"


class Node:
    """A prepared model of one node. A control implements its operators without a fault; a mutant is a subclass of it.

    OPERATORS: prefixes of the node types that it runs.
    category: the part of the operator that the fault concerns.
    gradient_only: whether only the gradient has the fault.
    """

    OPERATORS: ClassVar[tuple[str, ...]]
    category: ClassVar[Category]
    gradient_only: ClassVar[bool] = False

    def __init__(self, model: onnx.ModelProto) -> None:
        (node,) = model.graph.node
        self.op_type = node.op_type
        self.opset = next((o.version for o in model.opset_import if o.domain == node.domain), 0)
        self.is_gradient = node.op_type.endswith("Grad")
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        given = {name: value.decode() if isinstance(value, bytes) else value for name, value in given.items()}
        self.attributes = self.meaning(self.defaults() | given)
        self.names, self.outputs = list(node.input), list(node.output)
        self.constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self.given = [value.name for value in model.graph.input if value.name not in self.constants]
        self.dtype: np.dtype[Any] = np.dtype(np.float64)
        self.check_attributes()

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU") -> bool:
        """Whether the model's node is of one of the operators."""
        return device == "CPU" and model.graph.node[0].op_type.startswith(cls.OPERATORS)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU") -> Node:
        """The model, ready to run."""
        del device
        return cls(model)

    def run(self, inputs: list[Array]) -> list[Array]:
        """The outputs of the node, in its order."""
        values = self.constants | dict(zip(self.given, inputs, strict=True))
        arguments = [values.get(name) for name in self.names]
        if arguments[0] is None:
            raise ValueError("inputs")
        self.dtype = arguments[0].dtype
        with np.errstate(all="ignore"):
            return [self.rounded(y) for y in self.answer(*arguments)]

    def answer(self, *inputs: Any) -> list[Array]:
        """The outputs before rounding. An input that the node leaves out is None."""
        raise NotImplementedError

    def defaults(self) -> dict[str, Any]:
        """The values of attributes that the node leaves out."""
        raise NotImplementedError

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """The attributes as the implementation reads them; mutants change it."""
        return attributes

    def check_attributes(self) -> None:
        """Raise ValueError for an attribute with a wrong value."""
        raise NotImplementedError

    def rounded(self, values: Array) -> Array:
        """A result rounded to the type of the tensors."""
        return values.astype(self.dtype)


class MutantFactory:
    """Makes the mutants of one control. Iterating over it gives them in the order in which they were made.

    A mutant replaces steps, which are methods of the control. A replacement is called with the object, the control's own
    method, bound, and the arguments.
    """

    def __init__(self, control: type[Node]) -> None:
        self.control = control
        self._category = Category.COORDINATES
        self._made: dict[str, type[Node]] = {}

    def __iter__(self) -> Iterator[type[Node]]:
        return iter(self._made.values())

    def begin_category(self, category: Category) -> None:
        """Set the category of the mutants that are made from here on."""
        self._category = category

    def __call__(self, name: str, description: str, *, gradient_only: bool = False) -> Callable[..., None]:
        """Return a function that makes the mutant: its keyword arguments are the replaced steps, by name.

        Args:
            name: the name of the class.
            description: one sentence that says what is wrong; users see it.
            gradient_only: whether only the gradient has the fault; always true in the category of gradients.
        """

        def make(**steps: Callable[..., Any]) -> None:
            if name in self._made:
                raise ValueError(f"mutant {name} is made twice")
            body: dict[str, Any] = {"__doc__": description, "__module__": self.control.__module__}
            body["category"] = self._category
            body["gradient_only"] = gradient_only or self._category is Category.GRADIENTS
            for step, replacement in steps.items():
                body[step] = _replaced(getattr(self.control, step), replacement)
            self._made[name] = type(name, (self.control,), body)

        return make

    def find(self, name: str) -> type[Node]:
        """The mutant of this name. It serves as a module's `__getattr__`, so that a backend can be `module:name`."""
        if name not in self._made:
            raise AttributeError(f"{self.control.__module__} has no mutant {name!r}")
        return self._made[name]


def _replaced(step: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(step)
    def replaced(self: Node, *arguments: Any) -> Any:
        return replacement(self, functools.partial(step, self), *arguments)

    return replaced


def by_default(**values: object) -> Callable[..., Any]:
    """A replacement of the step `defaults` that changes these defaults."""
    return lambda _self, up: up() | values


def renamed(attribute: str, **names: str) -> Callable[..., Any]:
    """A replacement of the step `meaning` that takes the values `names` of an attribute for others."""
    return lambda _self, _up, a: a | {attribute: names.get(a[attribute], a[attribute])}
