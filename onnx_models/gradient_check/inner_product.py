"""Is a gradient right? One random inner product of it, against finite differences along a random direction.

Take an output y with a random cotangent c, and a tensor x with a random direction v. The product of c with the derivative of
y along v is that of v with the gradient of the sum of c * y. Both take a few runs, whatever the sizes. A second direction
has the signs of the gradient.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx
import onnxruntime

import ortops
from onnx_models.accepted import accepted
from onnx_models.attributes import unknown_among
from onnx_models.functions import inline_functions
from onnx_models.gradient import TiedParametersWarning, ZeroGradientWarning, vjp
from onnx_models.gradient.parameters import constant_tensor, parameters
from onnx_models.gradient_check.retype import DTYPES, FLOATING, Array, Kind, converted, retyped, with_narrow_ends
from onnx_models.near_names import meant
from ortops.custom import CustomOperator

Outcome = Literal["agrees", "wrong", "kink"]

_DIRECTIONS = 5
"""The most directions tried before a function counts as not differentiable at a point."""

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
    analytic, numeric: the inner product by the gradient and by finite differences.
    difference: of the two, relative to the sum of the absolute values of the terms of both.
    allowed: the largest difference of a right gradient: rounding, and what the finite differences may be off.
    outcome: "kink" if the differences ahead and behind disagree along every direction: there is no derivative to compare.
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
) -> list[Comparison]:
    """Compare the gradients of a model with finite differences at one point.

    A model of float is computed in double if ONNX Runtime has all of its operators and those of its gradient in double.

    Args:
        model: not modified.
        feeds: values of all inputs without a default, by name.
        wrt: names of inputs, initializers and Constants; all inputs of a floating-point type and what a network learns
            (`onnx_models.gradient`, "parameters") if empty.
        outputs: names of outputs; all those of a floating-point type if empty.
        seed: of the directions and cotangents.
        second_order: True to compare the gradients of a random weighted sum of all gradients as well.
        operators: operators of `ortops.operator` in the model.

    Returns:
        A comparison for each output and each tensor in `wrt`.

    Raises:
        ValueError: a name is unknown, there is nothing to compare, the model or its gradient does not run with these
            feeds, or the model draws random numbers. Also as `onnx_models.vjp`.
    """
    operators = tuple(operators)
    model = inline_functions(accepted(model), 1)
    wrt = _named("wrt", wrt, _variables(model), _default_wrt(model))
    known = [output.name for output in model.graph.output if output.type.tensor_type.elem_type in FLOATING]
    outputs = _named("outputs", outputs, known, known)
    try:
        return list(_Checker(model, feeds, "double", wrt, outputs, seed, operators).comparisons(second_order))
    except _RunError:  # ONNX Runtime lacks an operator in double
        pass
    try:
        return list(_Checker(model, feeds, "float", wrt, outputs, seed, operators).comparisons(second_order))
    except _RunError as error:
        given = {(operator.domain, operator.name) for operator in operators}
        unknown = unknown_among(node for node in model.graph.node if (node.domain, node.op_type) not in given)
        raise ValueError(f"the model does not run: {error}{unknown}") from error


class _RunError(Exception):
    """ONNX Runtime does not load or run a model."""


def _named(argument: str, names: Sequence[str], known: Iterable[str], default: Sequence[str]) -> list[str]:
    known = list(known)
    for name in names:
        if name not in known:
            must = "an input, an initializer or a Constant" if argument == "wrt" else "an output"
            raise ValueError(f"{argument} has {name!r}{meant(name, known)}: must be {must} of a floating-point type")
    found = list(dict.fromkeys(names or default))
    if not found:
        raise ValueError(
            f"{argument} = {list(names)}: must have one name at least, and the model has none to begin with"
        )
    return found


def _variables(model: onnx.ModelProto) -> dict[str, onnx.TensorProto | None]:
    """The floating-point inputs, initializers and Constants, with the values of those that have one."""
    found: dict[str, onnx.TensorProto | None] = {value.name: None for value in _inputs(model)}
    found |= {tensor.name: tensor for tensor in model.graph.initializer if tensor.data_type in FLOATING}
    constants = ((node, constant_tensor(node)) for node in model.graph.node)
    found |= {node.output[0]: one for node, one in constants if one is not None and one.data_type in FLOATING}
    return found


def _inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    return [value for value in model.graph.input if value.type.tensor_type.elem_type in FLOATING]


def _default_wrt(model: onnx.ModelProto) -> list[str]:
    return [value.name for value in _inputs(model)] + parameters(model.graph, ()).names


class _Checker:
    """Compares gradients of one model in one type."""

    def __init__(
        self,
        model: onnx.ModelProto,
        feeds: Mapping[str, Array],
        kind: Kind,
        wrt: Sequence[str],
        outputs: Sequence[str],
        seed: int,
        operators: Sequence[CustomOperator],
        order: int = 1,
    ) -> None:
        self._kind, self._wrt, self._outputs, self._seed = kind, wrt, outputs, seed
        self._operators, self._order = operators, order
        self._groups = {name: [name] for name in outputs} if order == 1 else {GRADIENTS: list(outputs)}
        """The outputs that are compared together, by what they are called."""
        self._model = retyped(model, kind)
        if kind == "double":
            self._model = with_narrow_ends(self._model)
        self._feeds = converted(dict(feeds), kind)
        self._rng = np.random.default_rng([seed, order])
        self._run = _Run(_with_inputs(self._model, wrt), operators)
        variables = _variables(self._model)
        self._at = {name: self._feeds[name] if name in self._feeds else _value(variables[name], name) for name in wrt}
        self._values = self._results({})
        if any(not np.array_equal(one, self._values[name], equal_nan=True) for name, one in self._results({}).items()):
            raise ValueError("two runs of the model with the same inputs differ: it must not draw random numbers")
        self._cotangents = {name: self._cotangent(self._values[name]) for name in outputs}

    def comparisons(self, second_order: bool) -> Iterator[Comparison]:
        """The comparisons of all outputs and tensors, then those of the gradients."""
        weights = {name: f"cotangent {self._order} of {name}" for name in self._outputs}
        slopes = {name: f"gradient {self._order} by {name}" for name in self._wrt}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ZeroGradientWarning)  # the comparison says whether it is 0
            warnings.simplefilter("ignore", TiedParametersWarning)  # the differences change a tied tensor everywhere
            made = vjp(self._model, weights, slopes, operators=self._operators)
        run = _Run(made, self._operators)
        gradients = {}
        for group, members in self._groups.items():
            chosen = {weights[name]: np.asarray(one * (name in members)) for name, one in self._cotangents.items()}
            found = run({**self._feeds, **chosen})
            gradients[group] = {of: np.asarray(found[slopes[of]], np.float64) for of in self._wrt}
        for of in self._wrt:
            yield from self._compared(of, {group: gradients[group][of] for group in self._groups})
        if second_order:
            feeds = {**self._feeds, **{weights[name]: one for name, one in self._cotangents.items()}}
            names = list(slopes.values())
            again = _Checker(made, feeds, self._kind, self._wrt, names, self._seed, self._operators, self._order + 1)
            yield from again.comparisons(False)

    def _compared(self, of: str, gradients: Mapping[str, Array]) -> Iterator[Comparison]:
        """The comparisons of all outputs with respect to one tensor: a direction for each that has no kink along it.

        If they agree, another direction follows, in which all terms have one sign: there nothing cancels, so that an error
        of all elements shows as large as it is.
        """
        left = dict(gradients)
        for attempt in range(_DIRECTIONS):
            along = self._rng.uniform(-1, 1, self._at[of].shape) * _typical(self._at[of])
            for group, difference in self._differences(of, along, list(left)).items():
                if difference.smooth or attempt == _DIRECTIONS - 1:
                    gradient = left.pop(group)
                    first = self._comparison(group, of, gradient, along, difference)
                    up = np.copysign(along, np.where(gradient == 0, along, gradient))
                    is_right = first.outcome == "agrees" and bool(np.any(up != along))
                    again = self._differences(of, up, [group])[group] if is_right else difference
                    yield self._comparison(group, of, gradient, up, again) if is_right and again.smooth else first
            if not left:
                return

    def _comparison(self, name: str, of: str, gradient: Array, along: Array, difference: _Difference) -> Comparison:
        terms = gradient * along
        analytic, scale = float(terms.sum()), difference.size + float(np.abs(terms).sum())
        off, allowed = abs(analytic - difference.value), _TOLERANCE[self._kind] * scale + 2 * difference.error
        outcome: Outcome = "agrees" if off <= allowed else "wrong"  # "wrong" for NaN
        if not difference.smooth and math.isfinite(analytic):
            outcome = "kink"
        relative = [float(one / scale) if scale else 0.0 for one in (off, allowed)]
        return Comparison(name, of, self._kind, analytic, difference.value, relative[0], relative[1], outcome)

    def _differences(self, of: str, along: Array, names: Sequence[str]) -> dict[str, _Difference]:
        """The derivatives of weighted outputs along a direction, by the first step sizes for which they look smooth."""
        found: dict[str, _Difference] = {}
        for wide, narrow in _STEPS[self._kind]:
            missing = [name for name in names if name not in found or not found[name].smooth]
            if not missing:
                break
            ends = {h: self._results({of: self._at[of] + h * along}) for h in (wide, narrow, -narrow, -wide)}
            for name in missing:
                one = self._difference(name, ends, wide, narrow)
                if name not in found or one.smooth or one.error < found[name].error:
                    found[name] = one
        return found

    def _difference(
        self, group: str, ends: Mapping[float, Mapping[str, Array]], wide: float, narrow: float
    ) -> _Difference:
        weights = self._joined(group, self._cotangents)
        middle = np.where(weights != 0, self._joined(group, self._values), 0)
        moved = {h: np.where(weights != 0, self._joined(group, end), 0) for h, end in ends.items()}
        slopes = {h: (end - middle) / h for h, end in moved.items()}  # behind, too, as h is negative there
        central = {h: float((weights * (slopes[h] + slopes[-h])).sum()) / 2 for h in (wide, narrow)}
        sides = {h: float((weights * (slopes[h] - slopes[-h])).sum()) for h in (wide, narrow)}
        size = float((np.abs(weights) * (np.abs(slopes[narrow]) + np.abs(slopes[-narrow]))).sum()) / 2
        noise = _ROUNDING[self._kind] * float(np.abs(weights * middle).sum()) / narrow
        # Ahead and behind differ in proportion to the step where the function is smooth. What is left at 0 is a kink.
        kink = abs(sides[narrow] - (sides[wide] - sides[narrow]) * narrow / (wide - narrow))
        error = kink + abs(central[wide] - central[narrow]) + noise
        smooth = math.isfinite(error) and error <= _SMOOTH[self._kind] * size + 4 * noise
        return _Difference(central[narrow], size, error if math.isfinite(error) else math.inf, smooth)

    def _joined(self, group: str, values: Mapping[str, Array]) -> Array:
        """The values of a group's outputs in double, one after the other."""
        return np.concatenate([values[name].astype(np.float64).reshape(-1) for name in self._groups[group]])

    def _results(self, changed: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs, after some tensors have changed."""
        given: dict[str, Array] = {name: np.asarray(value, DTYPES[self._kind]) for name, value in changed.items()}
        found = self._run({**self._feeds, **given})
        return {name: np.asarray(found[name]) for name in self._outputs}

    def _cotangent(self, values: Array) -> Array:
        """Random weights away from 0; 0 where an output is not finite."""
        drawn = self._rng.uniform(0.5, 1.5, values.shape) * self._rng.choice([-1.0, 1.0], values.shape)
        return np.asarray(np.where(np.isfinite(values), drawn, 0.0), DTYPES[self._kind])


@dataclass(frozen=True)
class _Difference:
    """A derivative along a direction; size: the sum of the absolute values of its terms; error: its bound."""

    value: float
    size: float
    error: float
    smooth: bool


class _Run:
    """A model in a session with this project's operators, and those of a user; from inputs to outputs, both by name."""

    def __init__(self, model: onnx.ModelProto, operators: Sequence[CustomOperator]) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _QUIET
        try:
            self._session = ortops.InferenceSession(
                model.SerializeToString(), options, ["CPUExecutionProvider"], operators=operators
            )
        except Exception as error:  # ONNX Runtime raises many types
            raise _RunError(" ".join(str(error).split())) from error
        self._inputs = {value.name for value in self._session.get_inputs()}
        self._inputs |= {value.name for value in self._session.get_overridable_initializers()}
        self._names = [value.name for value in self._session.get_outputs()]

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        given = {name: value for name, value in feeds.items() if name in self._inputs}
        try:
            return dict(zip(self._names, self._session.run(self._names, given), strict=True))
        except Exception as error:
            raise _RunError(" ".join(str(error).split())) from error


def _with_inputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """A copy of a model that can be fed values for initializers and Constants; these are the defaults."""
    made = copy.deepcopy(model)
    fed = {value.name for value in made.graph.input}
    for name, tensor in _variables(model).items():
        if name in names and tensor is not None and name not in fed:
            if all(name != one.name for one in made.graph.initializer):
                made.graph.initializer.add().CopyFrom(tensor)
                made.graph.initializer[-1].name = name
            made.graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
    kept = [node for node in made.graph.node if constant_tensor(node) is None or node.output[0] not in names]
    del made.graph.node[:]
    made.graph.node.extend(kept)
    return made


def _value(tensor: onnx.TensorProto | None, name: str) -> Array:
    if tensor is None:
        raise ValueError(f"feeds lack the input {name!r}: must have a value for each input without a default")
    return onnx.numpy_helper.to_array(tensor)


def _typical(values: Array) -> float:
    """The median of the absolute values of an array's nonzero numbers; 1 if there are none."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0)].astype(np.float64))
    return float(np.median(sizes)) if sizes.size else 1.0
