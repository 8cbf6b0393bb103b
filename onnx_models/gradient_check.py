# SPDX-License-Identifier: MIT
"""Check a gradient: compare one random inner product of it with finite differences along a random direction.

Take an output y with a random cotangent c, and a tensor x with a random direction v. The product of c with the derivative of
y along v is that of v with the gradient of the sum of c * y. Both take a few runs, whatever the sizes.
"""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import ortops
from onnx_models.gradient import TiedParametersWarning, ZeroGradientWarning, vjp
from onnx_models.gradient.parameters import constant_tensor, parameters, real_constants
from onnx_models.gradient.registry import REAL
from onnx_models.tools.attributes import unknown_among
from onnx_models.tools.functions import inline_functions
from onnx_models.tools.protos import accepted, assign, iter_graphs, meant, normalize_domain, one_line, onnx_opset
from ortops.custom.operator import CustomOperator, as_operators

Array = np.ndarray[Any, Any]
Kind = Literal["double", "float"]
"""The element types in which derivatives are compared."""

DTYPES: dict[Kind, type] = {"double": np.float64, "float": np.float32}

_NUMBERS: dict[Kind, int] = {"double": TensorProto.DOUBLE, "float": TensorProto.FLOAT}

Outcome = Literal["agrees", "wrong", "kink", "zero"]
Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""Runs a model: takes its inputs by name and returns its outputs by name."""

Load = Callable[[onnx.ModelProto], Run]

_STEPS: dict[Kind, tuple[tuple[float, float], ...]] = {
    "double": ((1e-5, 1e-6), (1e-7, 1e-8), (1e-3, 1e-4)),
    "float": ((3e-2, 1e-2), (1e-1, 3e-2), (3e-3, 1e-3)),
}
"""Pairs of step sizes, relative to the elements of a tensor, in the order in which they are tried."""

_SMOOTH: dict[Kind, float] = {"double": 1e-3, "float": 5e-2}
"""The error of finite differences, relative to their terms, up to which a function counts as smooth."""

_ROUNDING: dict[Kind, float] = {"double": 2e-15, "float": 1e-6}
"""The relative error of a model's output, about ten roundings."""

_TOLERANCE: dict[Kind, float] = {"double": 1e-6, "float": 5e-4}
"""The tolerance of a gradient computed in this type, relative to the sum of the absolute values of its terms."""

GRADIENTS = "all gradients"

_QUIET = 4
"""ONNX Runtime's severity of fatal messages; its exceptions repeat all others."""


@dataclass(frozen=True)
class Comparison:
    """The gradient of one output with respect to one tensor, along a direction.

    output: its name; `GRADIENTS` for the gradients with respect to all of `wrt` together, which are differentiated again.
    kind: the type that both were computed in.
    analytic, numeric: the inner product computed from the gradient and from finite differences.
    difference: the difference of the two, relative to the sum of the absolute values of their terms.
    allowed: the largest difference that a correct gradient may have: rounding and the error of finite differences.
    outcome: "kink" if there is no derivative to compare, since the differences ahead and behind disagree for all step sizes,
        or since the gradient is not finite and neither is the output; "zero" if the gradient and all differences are 0.
    """

    output: str
    wrt: str
    kind: Kind
    analytic: float
    numeric: float
    difference: float
    allowed: float
    outcome: Outcome


def check(
    model: onnx.ModelProto,
    feeds: Mapping[str, Array],
    *,
    wrt: Sequence[str] = (),
    outputs: Sequence[str] = (),
    seed: int = 0,
    second_order: bool = False,
    operators: Iterable[CustomOperator] = (),
    load: Load | None = None,
) -> list[Comparison]:
    """Compare the gradients of a model with finite differences at one point.

    A model of float is computed in double if ONNX Runtime has all of its operators and those of its gradient in double.

    Args:
        model: not modified.
        feeds: values of all inputs without a default, by name.
        wrt: names of inputs, initializers and Constants; if empty, all inputs of a floating-point type and all trainable
            parameters (`onnx_models.gradient`, "parameters").
        outputs: names of outputs; all those of a floating-point type if empty.
        seed: seed of the random directions and cotangents.
        second_order: True to compare the gradients of a random weighted sum of all gradients as well.
        operators: operators of `ortops.operator` in the model.
        load: takes a model and returns a function that runs it; None for ONNX Runtime with this project's operators and
            `operators`.

    Returns:
        A comparison for each output and each tensor in `wrt`.

    Raises:
        ValueError: a name is unknown, there is nothing to compare, the model or its gradient does not run with these
            feeds, or the model draws random numbers. Also as `onnx_models.vjp`.
    """
    operators = as_operators(operators)
    model = inline_functions(accepted(model), 1)
    real = [value.name for value in model.graph.input if value.type.tensor_type.elem_type in REAL]
    known = [*real, *(name for name, _ in real_constants(model.graph))]
    wrt = _named("wrt", wrt, known, [*real, *parameters(model.graph, ()).names])
    known = [output.name for output in model.graph.output if output.type.tensor_type.elem_type in REAL]
    outputs = _named("outputs", outputs, known, known)
    load = load or partial(in_session, operators=operators)

    def compared(kind: Kind) -> list[Comparison]:
        rng = np.random.default_rng(seed)
        point = _Point(retyped(model, kind), feeds, kind, wrt, outputs, rng, load)
        return list(point.comparisons(operators, second_order))

    try:
        with contextlib.suppress(_RunError):  # ONNX Runtime lacks an operator in double
            return compared("double")
        return compared("float")
    except _RunError as error:
        given = {(operator.domain, operator.name) for operator in operators}
        unknown = unknown_among(node for node in model.graph.node if (node.domain, node.op_type) not in given)
        raise ValueError(f"the model does not run: {str(error).removesuffix('.')}{unknown}") from error


class _RunError(Exception):
    """A model cannot be loaded or run."""


def _named(argument: str, names: Sequence[str], known: Sequence[str], default: Sequence[str]) -> list[str]:
    for name in names:
        if name not in known:
            must = "an input, an initializer or a Constant" if argument == "wrt" else "an output"
            raise ValueError(f"{argument} has {name!r}{meant(name, known)}: must be {must} of a floating-point type")
    if chosen := list(dict.fromkeys(names or default)):
        return chosen
    raise ValueError(f"{argument} = {list(names)}: must have at least one name, since the model has no default")


class _Point:
    """A model in one element type, at one point; `group` is the name of all outputs together, "" for each alone."""

    def __init__(
        self,
        model: onnx.ModelProto,
        feeds: Mapping[str, Array],
        kind: Kind,
        wrt: Sequence[str],
        outputs: Sequence[str],
        rng: np.random.Generator,
        load: Load,
        group: str = "",
    ) -> None:
        self._model, self._kind, self._wrt, self._outputs, self._rng, self._load = model, kind, wrt, outputs, rng, load
        opened, defaults = _with_inputs(model, wrt)
        self._feeds = {name: self._converted(value) for name, value in {**defaults, **feeds}.items()}
        if missing := [name for name in wrt if name not in self._feeds]:
            raise ValueError(f"feeds lack the input {missing[0]!r}: must have a value for each input without a default")
        self._run = _loaded(load, opened)
        first, again = (self._run(self._feeds) for _ in range(2))
        if any(not np.array_equal(first[name], again[name], equal_nan=True) for name in outputs):
            raise ValueError("two runs of the model with the same inputs differ: it must not draw random numbers")
        self._values = self._joined(first)
        drawn = {name: self._cotangent(np.asarray(first[name])) for name in outputs}
        alone = {
            group: {name: np.asarray(cotangent * (name == group)) for name, cotangent in drawn.items()}
            for group in outputs
        }
        self._cotangents = {group: drawn} if group else alone

    def comparisons(self, operators: Sequence[CustomOperator], second_order: bool) -> Iterator[Comparison]:
        """The comparisons of all outputs and tensors, then those of the gradients."""
        weights = {name: f"cotangent of {name}" for name in self._outputs}
        slopes = {name: f"gradient of {', '.join(self._cotangents)} by {name}" for name in self._wrt}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ZeroGradientWarning)  # the comparison shows whether it is 0
            warnings.simplefilter("ignore", TiedParametersWarning)  # the differences change a tied tensor everywhere
            differentiated = vjp(self._model, weights, slopes, operators=operators)
        run, feeds = _loaded(self._load, differentiated), dict(self._feeds)
        for group, cotangents in self._cotangents.items():
            feeds |= {weights[name]: cotangent for name, cotangent in cotangents.items()}
            gradients = run(feeds)
            yield from (self._compared(group, of, np.asarray(gradients[slope])) for of, slope in slopes.items())
        if second_order:
            groups = self._cotangents.values()
            drawn = {
                weights[name]: np.asarray(sum(cotangents[name] for cotangents in groups)) for name in self._outputs
            }
            feeds, named = {**self._feeds, **drawn}, list(slopes.values())
            again = _Point(differentiated, feeds, self._kind, self._wrt, named, self._rng, self._load, GRADIENTS)
            yield from again.comparisons(operators, False)

    def _compared(self, group: str, of: str, gradient: Array) -> Comparison:
        """A comparison along a random direction, with the first step sizes for which the function looks smooth.

        All its terms have one sign, so that nothing cancels: an error of all elements shows as large as it is.
        """
        at = self._feeds[of]
        if gradient.shape != at.shape:
            gradient = np.full(at.shape, math.nan)
        drawn = self._rng.uniform(-1, 1, at.shape) * _typical(at)
        along = np.copysign(drawn, np.where(gradient == 0, drawn, gradient))
        comparisons: list[Comparison] = []
        for wide, narrow in _STEPS[self._kind]:
            slopes = {h: self._slope(of, h, along) for h in (wide, narrow, -narrow, -wide)}
            comparisons.append(self._comparison(group, of, gradient * along, slopes, wide, narrow))
            if comparisons[-1].outcome != "kink":
                return comparisons[-1]
        return min(
            comparisons, key=lambda comparison: comparison.allowed if math.isfinite(comparison.allowed) else math.inf
        )

    def _slope(self, of: str, step: float, along: Array) -> Array:
        """The differences of all outputs over a step, divided by it; NaN if the step changes their shapes."""
        ends = self._joined(self._run({**self._feeds, of: self._converted(self._feeds[of] + step * along)}))
        with np.errstate(invalid="ignore"):  # infinite elements, which have no weight
            return (ends - self._values) / step if ends.shape == self._values.shape else self._values * math.nan

    def _comparison(
        self, group: str, of: str, terms: Array, slopes: Mapping[float, Array], wide: float, narrow: float
    ) -> Comparison:
        weights = self._joined(self._cotangents[group])
        values = np.where(weights != 0, self._values, 0)
        slopes = {h: np.where(weights != 0, slope, 0) for h, slope in slopes.items()}  # behind, too, where h < 0
        central = {h: float((weights * (slopes[h] + slopes[-h])).sum()) / 2 for h in (wide, narrow)}
        sides = {h: float((weights * (slopes[h] - slopes[-h])).sum()) for h in (wide, narrow)}
        size = float((np.abs(weights) * (np.abs(slopes[narrow]) + np.abs(slopes[-narrow]))).sum()) / 2
        noise = _ROUNDING[self._kind] * float(np.abs(weights * values).sum()) / narrow
        # Ahead and behind differ in proportion to the step where the function is smooth. What is left at 0 is a kink.
        kink = abs(sides[narrow] - (sides[wide] - sides[narrow]) * narrow / (wide - narrow))
        error = kink + abs(central[wide] - central[narrow]) + noise
        is_smooth = math.isfinite(error) and error <= _SMOOTH[self._kind] * size + 4 * noise
        analytic, numeric = float(terms.sum(dtype=np.float64)), central[narrow]
        scale = size + float(np.abs(terms).sum(dtype=np.float64))
        off, allowed = abs(analytic - numeric), _TOLERANCE[self._kind] * scale + 2 * error
        outcome: Outcome = "zero" if scale == 0 else "agrees" if off <= allowed else "wrong"  # "wrong" for NaN
        if math.isfinite(analytic):
            is_kink = not is_smooth
        else:  # where an output is not finite, the gradient may be NaN whatever its weight
            is_kink = not np.isfinite(self._values).all() or not (is_smooth or math.isfinite(numeric))
        if is_kink:
            outcome = "kink"
        relative = [float(value / scale) if scale else 0.0 for value in (off, allowed)]
        return Comparison(group, of, self._kind, analytic, numeric, relative[0], relative[1], outcome)

    def _joined(self, values: Mapping[str, Array]) -> Array:
        """The values of all outputs in double, one after the other."""
        return np.concatenate([np.asarray(values[name], np.float64).reshape(-1) for name in self._outputs])

    def _converted(self, value: Array) -> Array:
        """The value in the type of the model, if it is floating-point."""
        is_real = value.dtype.name in ("float16", "bfloat16", "float32", "float64")
        return np.asarray(value, DTYPES[self._kind]) if is_real else value

    def _cotangent(self, values: Array) -> Array:
        """Random weights away from 0; 0 where an output is not finite."""
        drawn = self._rng.uniform(0.5, 1.5, values.shape) * self._rng.choice([-1.0, 1.0], values.shape)
        return np.asarray(np.where(np.isfinite(values), drawn, 0.0), DTYPES[self._kind])


def _loaded(load: Load, model: onnx.ModelProto) -> Run:
    """A function that runs the model; it ignores feeds for inputs that the model lacks."""
    inputs = {value.name for value in model.graph.input}

    def checked(function: Callable[[Any], Any], argument: Any) -> Any:
        try:
            return function(argument)
        except Exception as error:  # ONNX Runtime raises many types
            raise _RunError(one_line(error)) from error

    run = checked(load, model)
    return lambda feeds: checked(run, {name: value for name, value in feeds.items() if name in inputs})


def in_session(model: onnx.ModelProto, operators: Sequence[CustomOperator]) -> Run:
    """A model in a session of ONNX Runtime with this project's operators and others."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _QUIET
    session = ortops.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"], operators=operators)
    names = [value.name for value in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, dict(feeds)), strict=True))


def _with_inputs(model: onnx.ModelProto, names: Sequence[str]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A copy of a model with inputs in place of initializers and Constants, and their values."""
    opened = copy.deepcopy(model)
    graph, fed = opened.graph, {value.name for value in model.graph.input}
    values = {name: onnx.numpy_helper.to_array(tensor) for name, tensor in real_constants(graph) if name in names}
    for name, tensor in real_constants(model.graph):
        if name in values and name not in fed:
            graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
    for tensor in [tensor for tensor in graph.initializer if tensor.name in values]:
        graph.initializer.remove(tensor)
    for node in [node for node in graph.node if constant_tensor(node) is not None and node.output[0] in values]:
        graph.node.remove(node)
    return opened, values


def _typical(values: Array) -> float:
    """The median of the absolute values of an array's nonzero numbers; 1 if there are none."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0)].astype(np.float64))
    return float(np.median(sizes)) if sizes.size else 1.0


_TYPE_ATTRIBUTES = {"to", "dtype", "stash_type", "output_dtype", "output_datatype", "softmax_precision"}
"""Attributes of ONNX's operators whose value is the number of an element type."""

_NARROW = {"tensor(float)", "tensor(float16)", "tensor(bfloat16)"}


def retyped(model: onnx.ModelProto, kind: Kind) -> onnx.ModelProto:
    """A copy of a model with all floating-point tensors in one type, including constants and results of casts.

    An input that ONNX defines for narrower types only, such as the scales of Resize, is cast to float.
    """
    converted, number = copy.deepcopy(model), _NUMBERS[kind]
    for part in reversed(list(iter_graphs(converted))):  # the inner ones first, which are copied with their nodes
        ends = (*part.input, *part.output) if isinstance(part, onnx.GraphProto) else ()
        for value in (*ends, *part.value_info):
            if value.type.tensor_type.elem_type in REAL:
                value.type.tensor_type.elem_type = number
        if isinstance(part, onnx.GraphProto):
            for tensor in part.initializer:
                _retype_tensor(tensor, number)
        nodes: list[onnx.NodeProto] = []
        for node in part.node:
            _retype_attributes(node, number)
            nodes += [*_casts(node, onnx_opset(model) or 1), node] if kind == "double" else [node]
        assign(part.node, [copy.deepcopy(node) for node in nodes])
    return converted


def _retype_attributes(node: onnx.NodeProto, number: int) -> None:
    if node.op_type == "ConstantOfShape" and not node.attribute:
        node.attribute.append(helper.make_attribute("value", helper.make_tensor("value", number, [1], [0.0])))
    if (tensor := constant_tensor(node)) is not None:
        node.attribute[0].CopyFrom(helper.make_attribute("value", tensor))
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            _retype_tensor(attribute.t, number)
        elif attribute.name in _TYPE_ATTRIBUTES and attribute.i in REAL:
            attribute.i = number


def _retype_tensor(tensor: onnx.TensorProto, number: int) -> None:
    if tensor.data_type in REAL:
        values = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(number))
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _casts(node: onnx.NodeProto, opset: int) -> list[onnx.NodeProto]:
    """Casts to float for the inputs of a node that ONNX does not define for double."""
    if normalize_domain(node.domain) or not onnx.defs.has(node.op_type, opset):
        return []
    casts = []
    formal = onnx.defs.get_schema(node.op_type, opset).inputs
    for i, (name, parameter) in enumerate(zip(node.input, formal, strict=False)):
        if name and "tensor(float)" in parameter.types and parameter.types <= _NARROW:
            node.input[i] = f"input {i} of {node.output[0]} in float"
            casts.append(helper.make_node("Cast", [name], [node.input[i]], to=TensorProto.FLOAT))
    return casts
