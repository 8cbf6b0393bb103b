"""Checks the gradient of a case with respect to each input against finite differences."""

from __future__ import annotations

import dataclasses
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx

from onnx_models.gradient_check.cases import (
    LOSS,
    WEIGHTS,
    Case,
    Weighted,
    flattened,
    is_extension_type,
    with_constants,
    with_initializers,
    with_loss,
    with_opset,
)
from onnx_models.gradient_check.evaluate import (
    Evaluator,
    Run,
    RunError,
    loaded,
    newest_opset,
    random_nodes,
    same,
    seeded,
)
from onnx_models.gradient_check.finite_differences import (
    Derivative,
    as_double,
    direction,
    directional_derivative,
    perturbed,
)
from onnx_models.gradient_check.retype import Array, Kind, converted, is_floating, retyped
from onnx_models.traversal import onnx_opset

Differentiate = Callable[[onnx.ModelProto, str, Sequence[str]], onnx.ModelProto]
"""From a model, the name of its loss and names of inputs to the model with an output NAME_grad for each of these.

Raises ValueError or TypeError to refuse."""

Outcome = Literal["agree", "refused", "wrong", "not testable"]

POINTS = 5
"""The number of points tried: the case's own data, then perturbed data, the last a tenth of it, to avoid saturation."""

_TOLERANCE: dict[Kind, float] = {"double": 1e-6, "float": 2e-4}
"""The tolerance of a gradient computed in this type, relative to the sum of the absolute values of its terms."""

OUTPUT_RTOL: dict[Kind, float] = {"double": 1e-5, "float": 1e-3}
"""The tolerance of a model's outputs in the gradient's model, since ONNX Runtime may fuse other nodes there, and function
bodies may cast to float."""

TEST_VALUE_RTOL = 2e-2
"""The tolerance of a model's outputs against the test's values, which may be rounded to float16 or bfloat16."""

_ROUNDING = 1e-6
"""Relative to the outputs' values, derivatives that are this small may be lost to rounding in float."""

MAX_REFERENCE_ELEMENTS = 50_000
"""With more elements in a case, the reference evaluator, written in Python, is too slow for finite differences."""

_NO_DERIVATIVE = "no derivative: one-sided differences disagree at each point tried"

_LOST = "the derivative is too small for float"

_EXACT = 1e-12
"""If an output in double differs by more, the gradient's model computes a part of it in float."""


@dataclass(frozen=True)
class Verdict:
    """The result for one input of one case.

    operator: the operator that the case tests. number: index of the input. element_type: the type in which the gradient was
    computed, "" if none was. forward: what ran the model for finite differences. reason: the reason of the verdict, and
    warnings. gradient, difference: the directional derivatives that were compared; None if none were.
    """

    case: str
    operator: str
    input: str
    number: int
    verdict: Outcome
    element_type: str = ""
    forward: str = ""
    reason: str = ""
    gradient: float | None = None
    difference: float | None = None


@dataclass(frozen=True)
class _Setting:
    """An evaluator and an element type in which a case's model runs.

    reload: whether random numbers require a new session for each run. faithful: whether the outputs match the test's values.
    """

    evaluator: Evaluator
    kind: Kind
    weighted: Weighted
    feeds: dict[str, Any]
    values: list[Any]
    run: Run
    reload: bool
    faithful: bool


@dataclass(frozen=True)
class _Gradient:
    """A gradient's model, loaded. outputs: the names of its outputs. warned: the warnings of its differentiation."""

    run: Run
    outputs: list[str]
    warned: str

    def __call__(self, feeds: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(self.outputs, self.run(feeds), strict=True))


class RefusalError(Exception):
    """A differentiate function raised ValueError or TypeError."""


class Checker:
    """Checks one case.

    Args:
        case: the case.
        differentiate: what is checked.
        stage: called with "the model" or "the gradient" before one of these runs.
    """

    def __init__(self, case: Case, differentiate: Differentiate, stage: Callable[[str], None] = lambda _: None) -> None:
        self.case, self._differentiate, self._stage = case, differentiate, stage
        self._seed = zlib.crc32(case.name.encode())
        self._why_not: list[str] = []
        self._points: dict[tuple[int, str], dict[str, Any]] = {}
        self._derivatives: dict[tuple[Any, ...], Derivative] = {}
        self._known: dict[tuple[Evaluator, Kind], _Setting | None] = {}

    def _settings(self) -> Iterator[_Setting]:
        """The settings in which the model runs: those of ONNX Runtime, or else those of the reference evaluator.

        If no setting of ONNX Runtime matches the test's values, both are returned.
        """
        kinds: tuple[Kind, ...] = ("double", "float")
        evaluators: tuple[Evaluator, ...] = ("onnxruntime", "onnx reference")
        for evaluator in evaluators:
            some = False
            for kind in kinds:
                setting = self._setting(evaluator, kind)
                if setting is not None:
                    some |= setting.faithful
                    yield setting
            if some:
                return

    def _setting(self, evaluator: Evaluator, kind: Kind) -> _Setting | None:
        """The setting of an evaluator and a type, built once; None if the model does not run in it."""
        if (evaluator, kind) not in self._known:
            self._stage("the model")
            self._known[evaluator, kind] = self._made(evaluator, kind)
        return self._known[evaluator, kind]

    def _made(self, evaluator: Evaluator, kind: Kind) -> _Setting | None:
        version = onnx_opset(self.case.model) or 0
        later = evaluator == "onnxruntime" and version > newest_opset()
        try:
            model = with_opset(self.case.model, newest_opset() if later else None)
            model, feeds = with_initializers(
                retyped(model, kind), converted(self.case.feeds, kind), lambda _, value: is_extension_type(value)
            )
            run, reload = loaded(evaluator, model), False
            values = run(feeds)
            if not same(values, run(feeds), 0):
                model, reload = seeded(model), True
                run = loaded(evaluator, model, reload=True)
                values = run(feeds)
                if not same(values, run(feeds), 0):
                    raise RunError("it draws random numbers that no seed reproduces")
            faithful = bool(random_nodes(model)) or same(
                _floating(values), _floating(self.case.expected), TEST_VALUE_RTOL
            )
            if later and not faithful:
                raise RunError(f"at opset {newest_opset()} its outputs differ from the test's values")
            return _Setting(evaluator, kind, with_loss(model, values, kind), feeds, values, run, reload, faithful)
        except RunError as error:
            self._why_not.append(f"{evaluator}, {kind}: {error}")
            return None

    def verdicts(self) -> list[Verdict]:
        """A verdict for each floating-point input."""
        if not _floating(self.case.expected):
            return same_verdicts(self.case, "not testable", "no floating-point output")
        found: dict[str, Verdict] = {}
        broken: dict[str, Verdict] = {}
        doubtful: dict[str, Verdict] = {}
        for setting in self._settings():
            pending = [name for name in self.case.wrt if name not in found]
            if not pending:
                break
            for name, outcome in self._gradients(setting, pending):
                if isinstance(outcome, RefusalError):
                    found[name] = self._verdict(name, "refused", str(outcome))
                elif isinstance(outcome, RunError):
                    broken.setdefault(name, self._verdict(name, *_broken(setting, outcome), **_of(setting)))
                else:
                    found[name] = self._judge(setting, outcome, name)
                    if _LOST in found[name].reason and (exact := self._setting("onnx reference", "double")):
                        for _, again in self._gradients(exact, [name]):
                            if isinstance(again, _Gradient):
                                found[name] = self._judge(exact, again, name)
            if not setting.faithful:  # a gradient need not agree with a runtime that computes the operator wrongly
                wrong = {name for name, verdict in found.items() if verdict.verdict in ("wrong", "not testable")}
                doubtful |= {name: found.pop(name) for name in wrong}
        found = {**broken, **doubtful, **found}
        if not any(self._known.values()):
            found |= self._without_session()
        return [self._with_constants(found[name]) for name in self.case.wrt]

    def _verdict(self, name: str, verdict: Outcome, reason: str, **more: Any) -> Verdict:
        number = [value.name for value in self.case.model.graph.input].index(name)
        return Verdict(self.case.name, self.case.operator, name, number, verdict, reason=reason, **more)

    def _with_constants(self, verdict: Verdict) -> Verdict:
        """The verdict, or for a refusal the verdict with constants for the other inputs, as most models have them."""
        if verdict.verdict == "refused" and (case := with_constants(self.case, verdict.input)) is not None:
            for other in Checker(case, self._differentiate, self._stage).verdicts():
                if other.verdict in ("agree", "wrong"):
                    reason = _joined("only with constants for the other inputs", other.reason)
                    return dataclasses.replace(other, number=verdict.number, reason=reason)
        return verdict

    def _without_session(self) -> dict[str, Verdict]:
        """The verdicts on a model that nothing runs."""
        model = retyped(with_opset(self.case.model), "double")
        weighted = with_loss(model, self.case.expected, "double")
        found = {}
        for name in self.case.wrt:
            verdict: tuple[Outcome, str] = "not testable", f"the model does not run: {'; '.join(self._why_not)}"
            try:
                self._differentiated(weighted.model, [name])
            except RefusalError as error:
                verdict = "refused", str(error)
            except RunError as error:
                verdict = "wrong", f"breaks: {error}"
            found[name] = self._verdict(name, *verdict)
        return found

    def _gradients(
        self, setting: _Setting, names: Sequence[str]
    ) -> Iterator[tuple[str, _Gradient | RefusalError | RunError]]:
        """For each name a gradient that runs, a refusal, or an error; all names at once if possible."""
        self._stage("the gradient")
        outcome: _Gradient | RefusalError | RunError
        try:
            outcome = self._loaded(setting, *self._differentiated(setting.weighted.model, names))
        except (RefusalError, RunError) as error:
            if len(names) > 1:
                for name in names:
                    yield from self._gradients(setting, [name])
                return
            outcome = error
        for name in names:
            yield name, outcome

    def _differentiated(self, model: onnx.ModelProto, names: Sequence[str]) -> tuple[onnx.ModelProto, str]:
        """The gradient's model, and the warnings of its differentiation.

        Raises:
            RefusalError: it raised ValueError or TypeError.
            RunError: it raised another exception.
        """
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                made = self._differentiate(model, LOSS, names)
            except (ValueError, TypeError) as error:
                raise RefusalError(" ".join(str(error).split())) from error
            except Exception as error:
                raise RunError(f"{type(error).__name__}: {' '.join(str(error).split())}") from error
        return made, "; ".join(f"warned: {item.message}" for item in warned)

    def _loaded(self, setting: _Setting, made: onnx.ModelProto, warned: str) -> _Gradient:
        """A gradient that has been run at the case's data."""
        outputs = [output.name for output in made.graph.output]
        feeds = setting.feeds | self._weights(setting, setting.values)

        run = loaded(setting.evaluator, made, reload=setting.reload)
        gradient = _Gradient(run, outputs, warned)
        gradient(feeds)
        return gradient

    def _judge(self, setting: _Setting, gradient: _Gradient, name: str) -> Verdict:
        """Compare a gradient with finite differences at one point after another."""
        differences = self._differences(setting)
        of = _of(setting) | {"forward": f"{differences.evaluator}, {differences.kind}"}
        if not setting.feeds[name].size:
            return self._verdict(name, "not testable", "the input has no elements", **of)
        reasons = []
        for point in range(POINTS):
            judged = self._judged(setting, differences, gradient, name, point)
            if not isinstance(judged, str):
                verdict, reason, *numbers = judged
                compared = dict(zip(("gradient", "difference"), numbers, strict=False))
                return self._verdict(name, verdict, _joined(reason, gradient.warned), **compared, **of)
            reasons.append(judged)
        return self._verdict(name, "not testable", _joined(*dict.fromkeys(reasons)), **of)

    def _judged(
        self, setting: _Setting, differences: _Setting, gradient: _Gradient, name: str, point: int
    ) -> str | tuple[Outcome, str] | tuple[Outcome, str, float, float]:
        """The verdict at one point, its reason and the numbers compared; or the reason why there is none."""
        self._stage("the model")
        try:
            feeds = self._point(setting, differences, point, name)
            weights = self._weights(differences, differences.run(converted(feeds, differences.kind)))
            along = direction(feeds[name], self._rng("direction", point, name))
            first = self._derivative(differences, name, feeds, weights, along, point)
            at = converted(feeds, setting.kind)
            own = setting.run(at)
            _of_loss(setting, own)
        except RunError as error:
            return f"the model does not run at {'perturbed' if point else 'its own'} data: {error}"
        if not first.smooth:
            return _NO_DERIVATIVE
        self._stage("the gradient")
        try:
            found = gradient(at | converted(weights, setting.kind))
        except RunError as error:
            return _broken(setting, error)
        again = [found[output.name] for output in self.case.model.graph.output]
        if not same(again, own, OUTPUT_RTOL[setting.kind]):
            if setting.reload:
                return "not testable", "the gradient's model draws other random numbers"
            return "wrong", "an output of the model differs in the gradient's model"
        made = as_double(found[f"{name}_grad"])
        if made.shape != along.shape:
            return (
                "wrong",
                f"the gradient has shape {list(made.shape)}: must have that of the input, {list(along.shape)}",
            )
        made = np.where(np.isfinite(feeds[name]), made, 0.0)
        if not np.all(np.isfinite(made)):
            if not all(np.all(array) for array in weights.values()):
                return "outputs are not finite"
            return "wrong", f"the gradient is not finite, where the derivative along a direction is {first.value:.6g}"
        # A direction in which all terms have one sign: nothing cancels, so the error is relative to the whole gradient.
        up = np.copysign(along, np.where(made == 0, along, made))
        self._stage("the model")
        try:
            second = self._derivative(differences, name, feeds, weights, up)
        except RunError as error:
            return f"the model does not run near its data: {error}"
        if not second.smooth:
            return _NO_DERIVATIVE
        kind = setting.kind if same(again, own, _EXACT) else "float"
        for one, where in ((first, along), (second, up)):
            ours = float(np.sum(made * where))
            off = abs(ours - one.value)
            size = one.magnitude + float(np.sum(np.abs(made * where)))
            if not off <= _TOLERANCE[kind] * size + 2 * one.error:
                if kind == "float" and off <= _ROUNDING * one.size:
                    return _LOST
                return "wrong", "the gradient is not the derivative", ours, one.value
        return "agree", "", ours, one.value

    def _differences(self, setting: _Setting) -> _Setting:
        """The setting for finite differences: one in double if the model runs in double anywhere."""
        arrays = [*flattened(list(setting.feeds.values())), *flattened(setting.values)]
        if setting.kind == "double" or setting.reload or sum(array.size for array in arrays) > MAX_REFERENCE_ELEMENTS:
            return setting
        found = self._setting("onnx reference", "double")
        if found is not None and not found.reload and same(found.values, setting.values, 1e-3):
            return found
        return setting

    def _rng(self, *what: Any) -> np.random.Generator:
        return np.random.default_rng([self._seed, *(zlib.crc32(str(item).encode()) for item in what)])

    def _weights(self, setting: _Setting, values: Sequence[Any]) -> dict[str, Array]:
        """Random weights for all elements of the outputs, 0 where these are not finite."""
        arrays = _of_loss(setting, values)
        made = {}
        for name, array in arrays.items():
            rng = self._rng(WEIGHTS, name)
            weights = rng.uniform(0.5, 1.5, array.shape) * rng.choice([-1.0, 1.0], array.shape)
            made[name] = np.where(np.isfinite(array), weights, 0.0).astype(np.float32)
        return converted(made, setting.kind)

    def _point(self, setting: _Setting, differences: _Setting, number: int, name: str) -> dict[str, Any]:
        """Values of the inputs, floating-point ones in double: those of the case (number 0), or perturbed ones.

        All inputs are perturbed, or only the one called `name` if the model does not run otherwise.
        """
        own = {**differences.feeds, **converted({n: setting.feeds[n] for n in self.case.wrt}, "double")}
        if number == 0:
            return own
        for names in (tuple(self.case.wrt), (name,)):
            key = (number, ",".join(names))
            if key not in self._points:
                rng = self._rng("point", number)
                self._points[key] = own | {
                    n: perturbed(own[n] * (0.1 if number == POINTS - 1 else 1.0), rng) for n in names
                }
            feeds = self._points[key]
            try:
                _of_loss(differences, differences.run(converted(feeds, differences.kind)))
            except RunError:
                if names == (name,):
                    raise
                continue
            return feeds
        raise AssertionError

    def _derivative(
        self,
        setting: _Setting,
        name: str,
        feeds: dict[str, Any],
        weights: dict[str, Array],
        along: Array,
        shared: int | None = None,
    ) -> Derivative:
        """The directional derivative with respect to an input; cached if `shared`, the number of a point, is given."""
        key = (setting.evaluator, setting.kind, name, shared)
        if shared is not None and key in self._derivatives:
            return self._derivatives[key]

        def function(at: Array) -> Array:
            return _vector(_of_loss(setting, setting.run(converted(feeds | {name: at}, setting.kind))))

        found = directional_derivative(function, as_double(feeds[name]), along, _vector(weights), setting.kind)
        if shared is not None:
            self._derivatives[key] = found
        return found


def same_verdicts(case: Case, verdict: Outcome, reason: str) -> list[Verdict]:
    """One verdict for all inputs of a case."""
    names = [value.name for value in case.model.graph.input]
    return [Verdict(case.name, case.operator, name, names.index(name), verdict, reason=reason) for name in case.wrt]


def _floating(values: Sequence[Any]) -> list[Array]:
    return [array for array in flattened(values) if is_floating(array)]


def _vector(arrays: dict[str, Array]) -> Array:
    return np.concatenate([as_double(array).reshape(-1) for array in arrays.values()])


def _of_loss(setting: _Setting, values: Sequence[Any]) -> dict[str, Array]:
    """The outputs that are in the loss, by the names of their weights."""
    arrays = flattened(values)
    names = setting.weighted.outputs
    found = {name: array for name, array in zip(names, arrays, strict=False) if name is not None}
    if len(arrays) != len(names) or any(array.shape != setting.weighted.shapes[n] for n, array in found.items()):
        raise RunError("the shape of an output differs")
    return found


def _of(setting: _Setting) -> dict[str, Any]:
    return {"element_type": setting.kind, "forward": f"{setting.evaluator}, {setting.kind}"}


def _broken(setting: _Setting, error: RunError) -> tuple[Outcome, str]:
    """The verdict on a gradient's model that does not run."""
    if setting.evaluator == "onnxruntime" or str(error).startswith("ValidationError"):
        return "wrong", f"breaks: {error}"
    return "not testable", f"the reference evaluator does not run the gradient's model: {error}"


def _joined(*texts: str) -> str:
    return "; ".join(text for text in texts if text)
