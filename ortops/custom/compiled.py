# SPDX-License-Identifier: MIT
"""Operators of users whose function numba compiles, so that sessions compute them without the interpreter."""

from __future__ import annotations

import builtins
import contextlib
import inspect
import itertools
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, NoReturn, get_args, get_origin, get_type_hints

from ortops.compute import Bound, bind_unchecked, runner_on_all_cpus
from ortops.custom.arguments import Argument, CompileError, Returned, UserCode
from ortops.custom.operator import CustomOperator, OperatorError
from ortops.custom.signatures import Signature, check_is_written, signature_of
from ortops.extras import compiling
from ortops.native.types import BUFFERS_FOR_ALL, BUFFERS_FOR_OMITTED, MAX_AXES, MAX_DIMS, MAX_TENSORS
from ortops.spec import ANY_SHAPE, ELEMENT_DTYPES, Allocate, AttributeValue, Operator

if TYPE_CHECKING:
    from ortops.node import Node

OPTIONS: Mapping[str, bool] = {"boundscheck": True, "fastmath": False}
"""The options of numba that users may set, with their defaults."""

_ELEMENTS = frozenset(ELEMENT_DTYPES) - {"float16", "bfloat16", "string"}


@dataclass(frozen=True, eq=False, repr=False)
class CompiledOperator(CustomOperator):
    """An operator whose function numba compiles; `ortops.operator` makes it. It can be called with NumPy arrays.

    options: numba's options (`OPTIONS`).
    parallel: the axis whose parts threads compute, or "".
    lengths: a function of shapes and attributes that gives the shapes of outputs, which numba compiles, too; or None.
    returns: the number of lengths that the function returns, those of the axes that no input or attribute gives.
    """

    options: Mapping[str, bool] = field(default_factory=dict)
    parallel: str = ""
    lengths: Callable[..., Any] | None = None
    returns: int = 0

    max_rank = MAX_DIMS
    keeps_inputs = False

    def __post_init__(self) -> None:
        """Check that compiled code can compute such an operator.

        Raises:
            ValueError: it cannot.
        """
        super().__post_init__()
        if len(self.inputs) + len(self.outputs) > MAX_TENSORS:
            raise ValueError(f"{self.label}: a compiled operator must have at most {MAX_TENSORS} inputs and outputs")
        named: set[int | str] = set()
        for tensor in (*self.inputs, *self.outputs):
            where = f"{self.label}: {tensor.name}"
            if tensor.variadic:
                raise ValueError(f"{where} is variadic, which a compiled operator's inputs cannot be")
            if tensor.shape == ANY_SHAPE or tensor.has_variable_rank or len(tensor.shape) >= MAX_DIMS:
                raise ValueError(
                    f'{where} must be annotated by its shape, Annotated[NDArray[...], ("n", 4)], of less than {MAX_DIMS} '
                    "axes: the code is compiled for its rank"
                )
            if refused := sorted(set(self.element_types(tensor)) - _ELEMENTS):
                raise ValueError(f"{where} may be {', '.join(refused)}: numba has no arrays of this type")
            named |= {axis for axis in tensor.shape if isinstance(axis, str)}
            if len(named) > MAX_AXES:
                raise ValueError(
                    f"{where} is where the operator's axes have {len(named)} names: a compiled operator must have at most "
                    f"{MAX_AXES}, and lengths may be numbers"
                )
        free = self.free_axes
        for axis, places in free.items() if self.lengths is None else ():
            tensor = self.outputs[places[0][0]]
            raise ValueError(
                f"{self.label}: no input or attribute gives the axis {axis!r} of {tensor.name}: shapes must be given"
            )
        if self.returns not in (0, len(free)):
            raise ValueError(
                f"{self.label}: its function returns {self.returns} int: must return one for each axis that no input or "
                f"attribute gives, which are {', '.join(free) or 'none'}"
            )
        if self.returns and self.parallel:
            raise ValueError(
                f"{self.label}: parallel = {self.parallel!r}: must not be given where the data decides lengths"
            )
        if self.parallel:
            for tensor in (*self.inputs, *self.outputs):
                if self.parallel in tensor.shape[1:] or (tensor in self.outputs and self.parallel not in tensor.shape):
                    raise ValueError(
                        f"{self.label}: parallel = {self.parallel!r}: must be the first axis of all outputs, and of inputs "
                        f"that have it, unlike {tensor.name}"
                    )
        for attribute in self.attributes:
            rule = "numbers, lists of numbers or a Literal of strings, and have no default that is None"
            is_text = attribute.type == "STRING" and not attribute.choices
            if (
                is_text
                or attribute.type in ("STRINGS", "TENSOR")
                or not (attribute.required or attribute.default is not None)
            ):
                raise ValueError(
                    f"{self.label}: {attribute.name}: the attributes of a compiled operator must be {rule}"
                )
        for tensor in self.outputs:
            check_is_written(self.call, self.label, tensor.name, len(tensor.shape))
        self.__dict__.update(_lock=threading.RLock(), _entries={}, _values={})

    @property
    def free_axes(self) -> dict[str, list[tuple[int, int]]]:
        """The axes of outputs that no input or attribute gives: the numbers of each output that has it, and of its axis."""
        known = {axis for tensor in self.inputs for axis in tensor.shape}
        known |= {attribute.name for attribute in self.attributes}
        free: dict[str, list[tuple[int, int]]] = {}
        for number, tensor in enumerate(self.outputs):
            for place, axis in enumerate(tensor.shape):
                if isinstance(axis, str) and axis not in known:
                    free.setdefault(axis, []).append((number, place))
        return free

    @property
    def output_memory(self) -> int:
        """As `Operator`: the function fills all outputs, whatever a node has of them."""
        return BUFFERS_FOR_ALL if self.returns else BUFFERS_FOR_OMITTED

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Compute the outputs from NumPy arrays.

        Args:
            arguments: as the function's, without the outputs.
            keywords: likewise.

        Returns:
            The output, or a tuple of them.

        Raises:
            TypeError, ValueError: an argument breaks a rule of the definition.
            OperatorError: numba cannot compile the function.
            Exception: what the function raises.
        """
        from ortops.functional.call import call_bound  # here, so that `import ortops` stays fast

        signature, outputs = inspect.signature(self.call), {tensor.name for tensor in self.outputs}
        taken = [parameter for name, parameter in signature.parameters.items() if name not in outputs]
        given = signature.replace(parameters=taken).bind(*arguments, **keywords).arguments
        names = {attribute.name for attribute in self.attributes}
        bound = bind_unchecked(self, {name: value for name, value in given.items() if name in names}, _Bound)
        inputs = [given.get(tensor.name) for tensor in self.inputs]
        try:
            results = call_bound(self, bound, inputs, [True] * len(self.outputs))
        except OperatorError as error:
            raise OperatorError(f"{self.label}: {error}") from error
        return results[0] if len(results) == 1 else tuple(results)

    def bind(self, operator: Operator, attributes: dict[str, AttributeValue], kinds: Sequence[str]) -> Bound:  # noqa: ARG002
        """Make what computes a node by compiled code."""
        return _Bound(self, attributes)

    def entry(self, kinds: Mapping[str, str], attributes: Mapping[str, AttributeValue]) -> tuple[int, int | None]:
        """The addresses of the function and of that of shapes, compiled for a node; without `lengths` it is None.

        Args:
            kinds: the element types by the names of the tensors that the node has.
            attributes: its checked attributes, of which texts are compiled in.

        Raises:
            OperatorError: numba cannot compile it.
            ValueError: a required input is missing.
        """
        for tensor in self.inputs:
            if tensor.name not in kinds and not tensor.optional:
                raise ValueError(f"{tensor.name} is missing: {self.name} requires it")
        texts = tuple(attributes[attribute.name] for attribute in self.attributes if attribute.type == "STRING")
        key = tuple(sorted(kinds.items())), texts
        from ortops.forks import unforked

        with unforked(), self.__dict__["_lock"]:
            entries: dict[Any, tuple[int, int | None]] = self.__dict__["_entries"]
            if key not in entries:
                entry = self._compile(kinds, attributes)
                infer = None if self.lengths is None else self._compile(kinds, attributes, of_shapes=True)
                entries[key] = entry, infer
            return entries[key]

    def _compile(
        self, kinds: Mapping[str, str], attributes: Mapping[str, AttributeValue], *, of_shapes: bool = False
    ) -> int:
        """The address of the compiled entry, or of what infers shapes.

        Raises:
            OperatorError: numba cannot compile it, or a global is no longer what earlier instances have.
            ModuleNotFoundError: the extra `compile` is not installed.
        """
        code = self._code(kinds, [self._arguments(kinds, attributes, of_shapes=of_shapes)], of_shapes=of_shapes)
        values, before = dict(_outer_values(code.function, set())), self.__dict__["_values"]
        for (function, name), value in values.items():
            old = before.get((function, name), value)
            if value is not old and not (type(value) is type(old) in (bool, int, float, str) and value == old):
                raise OperatorError(
                    f"{name}, which {function.__qualname__} uses, has changed since it was compiled in for other types: "
                    "must stay the same; make it an attribute, or make the operator again"
                )
        with compiling(), self._naming(kinds):
            from ortops.custom.stored_code import load

            address = load(code)
        before |= values
        return address

    def bitcode(self, kinds: Mapping[str, str], *, of_shapes: bool = False) -> bytes:
        """The bitcode of an entry for any processor, for all texts of attributes, with and without optional inputs.

        Args:
            kinds: the element types by the names of all tensors.
            of_shapes: whether of what infers shapes, in place of the function itself.

        Raises:
            OperatorError: numba cannot compile it, or it needs what a library does not have.
        """
        from ortops.custom.stored_code import bitcode

        optional = [tensor.name for tensor in self.inputs if tensor.optional]
        texts = {attribute.name: attribute.choices for attribute in self.attributes if attribute.type == "STRING"}
        variants = [
            self._arguments(
                {name: kind for name, kind in kinds.items() if name not in absent},
                dict(zip(texts, chosen, strict=True)),
                of_shapes=of_shapes,
            )
            for chosen in itertools.product(*texts.values())
            for count in range(len(optional) + 1)
            for absent in itertools.combinations(optional, count)
        ]
        if len(variants) > MAX_VARIANTS:
            raise OperatorError(
                f"{self.label} has {len(variants)} combinations of optional inputs and texts of attributes: must "
                f"have at most {MAX_VARIANTS} in a library, which compiles each"
            )
        with self._naming(kinds, f"{self.label}: "):
            return bitcode(self._code(kinds, variants, of_shapes=of_shapes))

    def _code(self, kinds: Mapping[str, str], variants: Sequence[Sequence[Argument]], *, of_shapes: bool) -> UserCode:
        """What there is to compile of the function, or of that of shapes."""
        first, options = len(self.inputs), {**OPTIONS, **self.options}
        if of_shapes and self.lengths is not None:
            axes = [
                (row, k, axis) for row, tensor in enumerate(self.outputs, first) for k, axis in enumerate(tensor.shape)
            ]
            names = [axis if isinstance(axis, str) else (row, k) for row, k, axis in axes]
            places = [(row, k, names.index(name), 0) for (row, k, _), name in zip(axes, names, strict=True)]
            ranks = tuple(len(tensor.shape) for tensor in self.outputs)
            returned = Returned(len(places), places, ranks, self.returns > 0)
            return UserCode(self.lengths, variants, options, returned, self.label)
        places = [
            (first + output, k, number, ELEMENT_DTYPES[kinds[self.outputs[output].name]].itemsize)
            for number, axes_of_name in enumerate(self.free_axes.values() if self.returns else ())
            for output, k in axes_of_name
        ]
        return UserCode(self.call, variants, options, Returned(self.returns, places), self.label)

    @contextlib.contextmanager
    def _naming(self, kinds: Mapping[str, str], prefix: str = "") -> Iterator[None]:
        """Name the element types in an error of the compiler, and begin it with a text."""
        try:
            yield
        except CompileError as error:
            types = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
            raise OperatorError(f"{prefix}{error} (for {types})") from error

    def _arguments(
        self, kinds: Mapping[str, str], attributes: Mapping[str, AttributeValue], *, of_shapes: bool
    ) -> list[Argument]:
        """What each parameter gets, for element types by the names of tensors, and for an attribute's text."""
        from ortops.node import TYPES

        arguments: dict[str, Argument] = {}
        kind: Any
        for row, tensor in enumerate((*self.inputs, *self.outputs)):
            if tensor.name not in kinds:
                arguments[tensor.name] = Argument("absent", row)
            elif of_shapes:
                arguments[tensor.name] = Argument("shape", row, rank=len(tensor.shape))
            else:
                dtype = ELEMENT_DTYPES[kinds[tensor.name]]
                kind = "input" if row < len(self.inputs) else "output"
                is_cut = self.parallel in tensor.shape
                # The memory of a function that returns lengths is of zeros, and the function may touch little of it.
                starts_as_zeros = kind == "output" and not self.returns
                arguments[tensor.name] = Argument(
                    kind, row, dtype, TYPES[dtype], len(tensor.shape), is_cut=is_cut, starts_as_zeros=starts_as_zeros
                )
        for row, attribute in enumerate(self.attributes):
            name = attribute.name
            if attribute.type == "STRING":
                text = str(attributes[name])
                arguments[name] = Argument("text", row, text=text, number=attribute.choices.index(text))
            else:
                kind = attribute.type.lower()
                arguments[name] = Argument(kind, row)
        function: Any = self.lengths if of_shapes else self.call
        return [arguments[name] for name in inspect.signature(function).parameters]


def _outer_values(function: Any, seen: set[Any]) -> Iterator[tuple[tuple[Any, str], Any]]:
    """What a function and those of numba that it calls find outside of them, by the function and the name."""
    plain = getattr(function, "py_func", function)
    if plain not in seen:
        seen.add(plain)
        with contextlib.suppress(ValueError):  # a variable has no value yet
            variables = inspect.getclosurevars(plain)
            for name, value in (*variables.globals.items(), *variables.nonlocals.items()):
                yield (plain, name), value
                if hasattr(value, "py_func"):
                    yield from _outer_values(value, seen)


MAX_VARIANTS = 64
"""The most variants of a function that a library has for one combination of element types."""


class _Bound(Bound):
    """Computes the outputs of a node by the compiled function."""

    _operator: CompiledOperator

    def node_in_session(self, inputs: Mapping[str, str], outputs: Sequence[str]) -> Node:
        """The node for the element types of the inputs that a node of a model has, by name, and of its outputs."""
        from ortops.node import node_of_user

        names = [tensor.name for tensor in self._operator.outputs]
        entry, infer = self._operator.entry({**inputs, **dict(zip(names, outputs, strict=True))}, self.attributes)
        return node_of_user(self._operator, self.attributes, entry, infer)

    def __call__(self, inputs: Sequence[Any], allocate: Allocate, runner: tuple[int, int] | None) -> None:
        """As `Bound`, and raise what the function raises."""
        operator = self._operator
        kinds = {
            tensor.name: _NAMES[array.dtype]
            for tensor, array in zip(operator.inputs, inputs, strict=True)
            if array is not None
        }
        node = self._nodes.get(key := tuple(kinds.items()))
        if node is None:
            of_variables = {tensor.type: kinds[tensor.name] for tensor in operator.inputs if tensor.name in kinds}
            outputs = [of_variables.get(tensor.type, tensor.type) for tensor in operator.outputs]
            node = self._nodes[key] = self.node_in_session(kinds, outputs)
        try:
            node.run(inputs, allocate, runner or runner_on_all_cpus())
        except ValueError as error:
            _raise(error)


_NAMES = {dtype: name for name, dtype in ELEMENT_DTYPES.items()}


def _raise(error: ValueError) -> NoReturn:
    """Raise what a compiled function has raised, of which an error has the name and the message."""
    match = re.fullmatch(r"(\w+)(?:: (.*))?", str(error), re.DOTALL)
    cls = getattr(builtins, match[1], None) if match else None
    if match and isinstance(cls, type) and issubclass(cls, Exception):
        raise cls(*([] if match[2] is None else [match[2]])) from None
    raise error


def check_settings(label: str, inputs: object, outputs: object, shapes: object, compiled: object) -> list[str]:
    """Check the arguments of `ortops.operator` besides the function: the names of the outputs.

    Raises:
        TypeError: outputs are no names, shapes is no function, or there are inputs, which annotations give here.
        ValueError: an option of numba is unknown.
    """
    if inputs is not None:
        raise TypeError(f"{label}: inputs must not be given to a compiled operator: annotations tell them")
    if shapes is not None and not inspect.isfunction(shapes):
        raise TypeError(f"{label}: shapes = {shapes!r}: must be a Python function to be compiled")
    if (
        isinstance(outputs, str)
        or not isinstance(outputs, Sequence)
        or not all(isinstance(name, str) for name in outputs)
    ):
        raise TypeError(f"{label}: outputs = {outputs!r}: must be the names of the parameters that the function fills")
    if isinstance(compiled, Mapping) and not set(compiled) <= set(OPTIONS):
        raise ValueError(f"{label}: compiled has {sorted(set(compiled) - set(OPTIONS))}: must be of {sorted(OPTIONS)}")
    return list(outputs)


def read(function: Callable[..., Any], label: str, outputs: Sequence[str]) -> tuple[Signature, int]:
    """The definition that follows from the annotations of a function that fills outputs, and how many lengths it returns.

    Args:
        label: the operator's name in errors.
        outputs: the names of the parameters that it fills.

    Raises:
        TypeError: a parameter has no annotation that says what it is, or the result is neither None nor lengths.
        ValueError: an output is no parameter or no array, or an axis that an attribute gives may be negative.
    """
    if isinstance(function, type) or not inspect.isfunction(function):
        raise TypeError(f"{label}: {function!r}: must be a Python function to be compiled")
    signature = inspect.signature(function)
    whole = signature_of(function, label, has_outputs=True)
    result = get_type_hints(function).get("return", NoneType)
    parts = get_args(result) if get_origin(result) is tuple else (result,) if result is not NoneType else ()
    if result is not NoneType and not (parts and all(part is int for part in parts)):
        raise TypeError(
            f"{label}: its result is {result!r}: must be None, since it fills its outputs, or int or a tuple of int, the "
            "lengths that the data decides"
        )
    arrays = {tensor.name: tensor for tensor in whole.inputs}
    for name in outputs:
        if name not in arrays:
            raise ValueError(f"{label}: the output {name!r} is no array among the function's parameters")
        if (default := signature.parameters[name].default) is not inspect.Parameter.empty:
            raise ValueError(
                f"{label}: the output {name!r} has the default {default!r}: must have none, since each call gets it"
            )
    if len(set(outputs)) != len(outputs):
        raise ValueError(f"{label}: outputs = {list(outputs)}: must not repeat a name")
    axes = {axis for tensor in whole.inputs for axis in tensor.shape}
    inputs = tuple(tensor for tensor in whole.inputs if tensor.name not in outputs)
    # An attribute that is the length of an axis must not be negative.
    attributes = tuple(
        replace(attribute, minimum=0) if attribute.name in axes else attribute for attribute in whole.attributes
    )
    definition = replace(whole, inputs=inputs, outputs=tuple(arrays[name] for name in outputs), attributes=attributes)
    return definition, len(parts)


def shapes_in_models(label: str, function: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """A compiled operator's function of shapes as `ortops.operator` takes one: with all inputs and attributes by name.

    Raises:
        TypeError: it has a parameter that is neither.
    """
    names = list(inspect.signature(function).parameters)
    inputs = {tensor.name for tensor in signature.inputs}
    if unknown := set(names) - inputs - {attribute.name for attribute in signature.attributes}:
        raise TypeError(
            f"{label}: shapes takes {', '.join(sorted(unknown))}: must take inputs and attributes by name, those that it "
            "needs, and no ** where the operator is compiled"
        )

    def shapes(**given: Any) -> Any:
        lengths = [length for name in names if name in inputs for length in given[name] or ()]
        if not all(isinstance(length, int) for length in lengths):
            raise TypeError(f"{label}: compiled code takes numbers alone")
        return function(**{name: given[name] for name in names})

    return shapes
