"""What every implementation here shares: ONNX's backend interface, and how a fault is made of a control."""

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


class Family(str, Enum):
    """What a fault is about."""

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
    """A model of one node. A control implements the operators without a fault; a fault is a subclass of a control.

    OPERATORS: the types of nodes that it runs begin with one of these.
    family: what the fault is about.
    of_gradients_alone: whether the forward operator has no fault.
    """

    OPERATORS: ClassVar[tuple[str, ...]]
    family: ClassVar[Family]
    of_gradients_alone: ClassVar[bool] = False

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
        """Whether it has the operator."""
        return device == "CPU" and model.graph.node[0].op_type.startswith(cls.OPERATORS)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU") -> Node:
        """Something that runs the model."""
        del device
        return cls(model)

    def run(self, inputs: list[Array]) -> list[Array]:
        """The outputs that the node has."""
        values = self.constants | dict(zip(self.given, inputs, strict=True))
        arguments = [values.get(name) for name in self.names]
        if arguments[0] is None:
            raise ValueError("inputs")
        self.dtype = arguments[0].dtype
        with np.errstate(all="ignore"):
            return [self.rounded(y) for y in self.answer(*arguments)]

    def answer(self, *inputs: Any) -> list[Array]:
        """The outputs before they are rounded, from the node's inputs; None is one that the node does not have."""
        raise NotImplementedError

    def defaults(self) -> dict[str, Any]:
        """Of the attributes that a node leaves out."""
        raise NotImplementedError

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """The attributes as they are read."""
        return attributes

    def check_attributes(self) -> None:
        """Refuses values that are wrong."""
        raise NotImplementedError

    def rounded(self, values: Array) -> Array:
        """A result in its type."""
        return values.astype(self.dtype)


class Faults:
    """The faults of one control, by name, in the order in which they are made.

    A fault changes steps, which are methods of the control. A changed step is called with the object, the control's own
    step, and the step's arguments.
    """

    def __init__(self, control: type[Node]) -> None:
        self.control = control
        self._family = Family.COORDINATES
        self._made: dict[str, type[Node]] = {}

    def __iter__(self) -> Iterator[type[Node]]:
        return iter(self._made.values())

    def about(self, family: Family) -> None:
        """Says what the faults are about that are made from here on."""
        self._family = family

    def __call__(self, name: str, words: str, *, gradients: bool = False) -> Callable[..., None]:
        """Begin a fault: what is returned makes it when it is called with the changed steps by name.

        Args:
            name: of the class.
            words: what is wrong.
            gradients: whether the forward operator has no fault.
        """

        def make(**steps: Callable[..., Any]) -> None:
            if name in self._made:
                raise ValueError(f"{name} is made twice")
            body: dict[str, Any] = {"__doc__": words, "__module__": self.control.__module__, "family": self._family}
            body["of_gradients_alone"] = gradients or self._family is Family.GRADIENTS
            for step, change in steps.items():
                body[step] = _changed(getattr(self.control, step), change)
            self._made[name] = type(name, (self.control,), body)

        return make

    def find(self, name: str) -> type[Node]:
        """The fault of this name: a module's `__getattr__`, so that a fault can be named as a backend."""
        if name not in self._made:
            raise AttributeError(f"{self.control.__module__} has no fault {name!r}")
        return self._made[name]


def _changed(step: Callable[..., Any], change: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(step)
    def changed(self: Node, *arguments: Any) -> Any:
        return change(self, functools.partial(step, self), *arguments)

    return changed


def by_default(**values: object) -> Callable[..., Any]:
    """The step `defaults` with other values."""
    return lambda _self, up: up() | values


def renamed(attribute: str, **names: str) -> Callable[..., Any]:
    """The step `meaning` that takes some values of an attribute for others."""
    return lambda _self, _up, a: a | {attribute: names.get(a[attribute], a[attribute])}
