"""Find the mutants that answer a case as their control does, from one run of the control.

A mutant replaces a few steps of its control. If at each call of such a step its replacement returns what the control's step
returns, and leaves the same state, then the mutant's answer is the control's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from conformance.mutants.base import Node


class Watch:
    """A control whose steps compare their results with those of mutants.

    control: the class to run.
    differing: the mutants of which a step has returned something else so far.
    """

    def __init__(self, control: type[Node], mutants: Sequence[type[Node]]) -> None:
        self.differing: set[type[Node]] = set()
        steps = {name for mutant in mutants for name, step in vars(mutant).items() if callable(step)}
        by_step = {name: [mutant for mutant in mutants if name in vars(mutant)] for name in steps}
        body = {name: self._watched(getattr(control, name), name, found) for name, found in by_step.items()}
        self.control: type[Node] = type(control.__name__, (control,), body)

    def _watched(self, step: Callable[..., Any], name: str, mutants: Sequence[type[Node]]) -> Callable[..., Any]:
        def watched(node: Node, *arguments: Any) -> Any:
            given = tuple(map(_read_only, arguments))
            found = [(mutant, _as(mutant, node)) for mutant in mutants if mutant not in self.differing]
            answers = [(mutant, other, _outcome(getattr(mutant, name), other, given)) for mutant, other in found]
            outcome = _outcome(step, node, arguments)
            state = _state(node)
            # A step that returns nothing writes to its arguments, as a mutant cannot: it counts as different.
            self.differing |= {
                mutant
                for mutant, other, answer in answers
                if outcome is None or not (_same(answer, outcome) and _same(_state(other), state))
            }
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return watched


def _read_only(value: Any) -> Any:
    """A view of an array that a mutant cannot write to: one that does differs."""
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def _outcome(step: Callable[..., Any], node: Node, arguments: Sequence[Any]) -> Any:
    try:
        return step(node, *arguments)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is a refusal
        return error


def _as(mutant: type[Node], node: Node) -> Node:
    """The node as one of the mutant."""
    other = object.__new__(mutant)
    vars(other).update(_state(node))
    return other


def _state(node: Node) -> dict[str, Any]:
    """The attributes of a node, with its cache empty."""
    return {name: {} if name == "known" else value for name, value in vars(node).items()}


def _same(one: Any, other: Any) -> bool:
    """Whether two results are equal to the bit."""
    if one is other:
        return True
    if isinstance(one, Exception) or type(one) is not type(other):
        return isinstance(one, Exception) and isinstance(other, Exception)
    if isinstance(one, np.ndarray | np.generic):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
