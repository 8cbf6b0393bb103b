"""The node tests of the installed onnx as cases: a model, its inputs, and a loss over its floating-point outputs."""

from __future__ import annotations

import copy
import dataclasses
import fnmatch
import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnx_models.gradient_check.retype import FLOATING, NUMBERS, Array, Kind, is_floating
from onnx_models.portable.attach import MIN_OPSET
from onnx_models.traversal import iter_nodes, normalize_domain, onnx_opset

LOSS = "checked_loss"
WEIGHTS = "checked_weights"

_NEWEST_IR_VERSION = 11
"""The oldest IR version with all element types of the cases; runtimes refuse versions newer than they know."""


@dataclass(frozen=True)
class Case:
    """A node test: its name, the operator that it tests, its model, and the values of inputs and outputs.

    A value is an array, a list of arrays for a sequence, or None for an empty optional.
    """

    name: str
    operator: str
    model: onnx.ModelProto
    feeds: dict[str, Any]
    expected: list[Any]

    @property
    def wrt(self) -> list[str]:
        """The names of the floating-point inputs."""
        return [value.name for value in self.model.graph.input if value.type.tensor_type.elem_type in FLOATING]


@functools.cache
def _all() -> tuple[Case, ...]:
    from onnx.backend.test.case.node import collect_testcases  # computes all cases, which takes seconds

    state = np.random.get_state()  # noqa: NPY002  # the cases seed this global generator: restore it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases overflow on purpose
        tests = collect_testcases(None)
    np.random.set_state(state)  # noqa: NPY002
    known = [(test.name, test.model, test.data_sets[0]) for test in tests if test.model and test.data_sets]
    operators = {name: model.graph.node[0].op_type for name, model, _ in known if len(model.graph.node) == 1}
    found = []
    for name, model, (inputs, outputs) in known:
        # The case of an operator's expanded function body is named after the operator's case, with a suffix.
        operator = operators.get(name.split("_expanded")[0]) or model.graph.node[-1].op_type
        feeds = {value.name: _value(given) for value, given in zip(model.graph.input, inputs, strict=False)}
        found.append(Case(name, operator, *_unpacked(model, feeds), [_value(value) for value in outputs]))
    return tuple(found)


def _unpacked(model: onnx.ModelProto, feeds: dict[str, Any]) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A model whose inputs are the elements of sequences and optionals, which nodes construct; and the values of its inputs.

    An empty sequence or optional stays an input.
    """
    if all(value.type.HasField("tensor_type") for value in model.graph.input):
        return model, feeds
    made = copy.deepcopy(model)
    del made.graph.input[:], made.graph.node[:]
    unpacked: dict[str, Any] = {}

    def add(name: str, kind: onnx.TypeProto, value: Any) -> None:
        if kind.HasField("sequence_type") and value:
            for i, item in enumerate(value):
                add(f"{name}_{i}", kind.sequence_type.elem_type, item)
            made.graph.node.add(
                op_type="SequenceConstruct", input=[f"{name}_{i}" for i in range(len(value))], output=[name]
            )
        elif kind.HasField("optional_type") and value is not None:
            add(f"{name}_element", kind.optional_type.elem_type, value)
            made.graph.node.add(op_type="Optional", input=[f"{name}_element"], output=[name])
        else:
            made.graph.input.add(name=name).type.CopyFrom(kind)
            unpacked[name] = value

    for value in model.graph.input:
        add(value.name, value.type, feeds[value.name])
    made.graph.node.extend(model.graph.node)
    return made, unpacked


def _value(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return value if value is None or isinstance(value, list) else np.asarray(value)


def cases(select: str = "*", operators: Sequence[str] = ()) -> list[Case]:
    """The cases that have a floating-point input.

    Args:
        select: pattern of names, with * and ?.
        operators: names of the operators to test; all if empty.
    """
    return [
        case
        for case in _all()
        if case.wrt and fnmatch.fnmatchcase(case.name, select) and (not operators or case.operator in operators)
    ]


def flattened(values: Sequence[Any]) -> list[Array]:
    """The arrays among values of outputs in order, including those in sequences."""
    found: list[Array] = []
    for value in values:
        found += flattened(value) if isinstance(value, list) else [] if value is None else [np.asarray(value)]
    return found


def with_opset(model: onnx.ModelProto, newest: int | None = None) -> onnx.ModelProto:
    """A copy of a case's model with an opset that gradients and runtimes support.

    The opset is raised to the oldest one of attached bodies if that has the same versions of the model's operators, and
    lowered to `newest` if it is newer.
    """
    made = copy.deepcopy(model)
    made.ir_version = min(max(made.ir_version, 8), _NEWEST_IR_VERSION)
    version = onnx_opset(made)
    if version is None:  # all operators have other domains, but the loss needs ONNX's own
        made.opset_import.append(helper.make_opsetid("", MIN_OPSET))
        return made
    target = version
    if version < MIN_OPSET and all(
        _since(node, version) == _since(node, MIN_OPSET) for node in iter_nodes(made.graph.node)
    ):
        target = MIN_OPSET
    if newest is not None:
        target = min(target, newest)
    for entry in made.opset_import:
        if normalize_domain(entry.domain) == "":
            entry.version = target
    return made


def _since(node: onnx.NodeProto, version: int) -> int | None:
    if normalize_domain(node.domain):
        return 0
    try:
        return int(onnx.defs.get_schema(node.op_type, version).since_version)
    except onnx.defs.SchemaError:
        return None


def with_initializers(
    model: onnx.ModelProto, feeds: dict[str, Any], chosen: Callable[[str, Array], bool]
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The model with initializers in place of the inputs that `chosen` selects, and the values of the other inputs."""
    fixed = {name: value for name, value in feeds.items() if isinstance(value, np.ndarray) and chosen(name, value)}
    if not fixed:
        return model, feeds
    made = copy.deepcopy(model)
    kept = [value for value in made.graph.input if value.name not in fixed]
    del made.graph.input[:]
    made.graph.input.extend(kept)
    made.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in fixed.items())
    return made, {name: value for name, value in feeds.items() if name not in fixed}


def is_extension_type(array: Array) -> bool:
    """Whether an array has a type that is not NumPy's own, which sessions of ONNX Runtime do not accept."""
    return str(array.dtype.type.__module__) != "numpy"


def with_constants(case: Case, name: str) -> Case | None:
    """The case with constants for all inputs but one; None if there are no others."""
    model, feeds = with_initializers(case.model, case.feeds, lambda other, _: other != name)
    return None if len(feeds) == len(case.feeds) else dataclasses.replace(case, model=model, feeds=feeds)


@dataclass(frozen=True)
class Weighted:
    """A model with the output `LOSS`: the sum of its floating-point outputs times the new inputs `WEIGHTS`_i.

    outputs: for each array of the `flattened` outputs, the name of its weights; None if it is not in the loss.
    shapes: the shapes of the weights by name.
    """

    model: onnx.ModelProto
    outputs: list[str | None]
    shapes: dict[str, tuple[int, ...]]


def with_loss(model: onnx.ModelProto, values: Sequence[Any], kind: Kind) -> Weighted:
    """Add the loss to a copy of a model.

    Args:
        model: a model whose floating-point tensors have the type `kind`.
        values: values of its outputs, for shapes and lengths of sequences.
        kind: the type of the loss.
    """
    made = copy.deepcopy(model)
    graph = made.graph
    number = NUMBERS[kind]
    names: list[str | None] = []
    shapes: dict[str, tuple[int, ...]] = {}
    sums: list[str] = []

    def add(op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"checked_{len(graph.node)}"
        graph.node.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        return name

    for output, value in zip(list(graph.output), values, strict=True):
        if value is None:
            continue
        for i, array in enumerate(value if isinstance(value, list) else [value]):
            if not is_floating(array):
                names.append(None)
                continue
            tensor = output.name
            if isinstance(value, list):
                tensor = add("SequenceAt", tensor, add("Constant", value=numpy_helper.from_array(np.array(i))))
            elif output.type.tensor_type.elem_type != number:
                tensor = add("Cast", tensor, to=number)
            weights = f"{WEIGHTS}_{len(sums)}"
            names.append(weights)
            shapes[weights] = array.shape
            graph.input.append(helper.make_tensor_value_info(weights, number, array.shape))
            sums.append(add("ReduceSum", add("Mul", tensor, weights), keepdims=0))
    graph.node.append(helper.make_node("Sum", sums, [LOSS], name=LOSS))
    graph.output.append(helper.make_tensor_value_info(LOSS, number, []))
    return Weighted(made, names, shapes)
