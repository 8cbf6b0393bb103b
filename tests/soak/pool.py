"""Problems with their answers, computed once: by the functions on arrays, which the float64 reference has to approve."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

import ortops
from conformance.backends import Session
from conformance.case import Array, Case
from conformance.expected_failures import ExpectedFailure
from conformance.fuzz.check import Failure, check
from conformance.model import build, with_named_axes
from conformance.run import Answer, CaseRunner, ask

Outputs = dict[str, Array]


class WrongAnswerError(Exception):
    """The functions answer a case otherwise than the reference, or differently a second time."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A call that can be made in several ways, and what has to come of it.

    model: of one node, as bytes; several problems may have the same.
    expected: the outputs by name, or None where the call is refused.
    rule: the words of the rule that it breaks, or "".
    """

    case: Case
    model: bytes
    expected: Mapping[str, Array] | None
    rule: str = ""

    @property
    def refused_when_made(self) -> bool:
        """Whether no session can be made with its model."""
        return self.case.expects_error == "attribute"


def make_pool(cases: Iterable[Case], progress: Callable[[], object] = lambda: None) -> list[Problem]:
    """The problems of the cases.

    Each has a model without shapes, which sends all that is wrong with the data to the operator, and which cases with
    other shapes may share. A right one has a second model with the shapes of its inputs.

    Args:
        cases: right and wrong ones; which is which is found here.
        progress: called after each case.

    Raises:
        WrongAnswerError: an answer is wrong already.
    """
    problems = []
    for case in cases:
        problems += _problems(case)
        progress()
    return problems


def by_function(case: Case) -> Outputs:
    """The outputs of a case by the public function that computes it.

    Raises:
        TypeError, ValueError: an attribute or the data breaks a rule.
    """
    operator = case.definition
    function = getattr(ortops, operator.function)
    arguments = dict(operator.check_attributes(case.attributes))
    given = [case.inputs[tensor.name] for tensor in operator.inputs if not tensor.optional]
    if len(operator.outputs) == 1:
        return {operator.outputs[0].name: function(*given, **arguments)}
    named = dict(zip((tensor.name for tensor in operator.outputs), ("dx", "drois"), strict=True))
    x = next((case.inputs.get(tensor.name) for tensor in operator.inputs if tensor.optional), None)
    answers = function(*given, x=x, outputs=[named[name] for name in case.outputs], **arguments)
    return {name: array for name, array in zip(named, answers, strict=True) if array is not None}


def with_wrong_answer(pool: Iterable[Problem]) -> list[Problem]:
    """The problems, of which one expects an answer of which a bit is wrong."""
    changed = list(pool)
    at, name = next((i, name) for i, one in enumerate(changed) for name, y in (one.expected or {}).items() if y.size)
    expected = {key: array.copy() for key, array in (changed[at].expected or {}).items()}
    expected[name].view(np.uint8).flat[0] ^= 1
    changed[at] = replace(changed[at], expected=expected)
    return changed


class _Functions:
    """The functions as a backend."""

    expected_failures: tuple[ExpectedFailure, ...] = ()

    def prepare(self, case: Case) -> Session:
        """See `Backend`."""
        return lambda inputs: by_function(replace(case, inputs=inputs))


def _problems(case: Case) -> list[Problem]:
    asked: list[tuple[Case, Answer]] = []

    def answer_of(expecting: Case) -> Answer:
        asked.append((expecting, ask(_Functions(), expecting)))
        return asked[-1][1]

    verdict = check(replace(case, twin=None), CaseRunner(answer_of))
    if isinstance(verdict, Failure):
        raise WrongAnswerError(f"{case.id}, {case.operator}: {verdict.message}")
    ((settled, answer),) = asked
    open_model = build(with_named_axes(settled), "ortops").SerializeToString()
    if settled.expects_error:
        # The words of the functions, which sessions have to have, too; those of the reference are its own.
        return [Problem(settled, open_model, None, answer.text.split(": ", 1)[1])]
    expected = {name: np.array(array) for name, array in (answer.outputs or {}).items()}
    shaped_model = build(settled, "ortops").SerializeToString()
    return [Problem(settled, model, expected) for model in (open_model, shaped_model)]
