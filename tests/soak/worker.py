"""A thread that calls functions and sessions, and makes sessions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

from .live import Live
from .pool import Outputs, Problem, by_function
from .tally import Fault, Tally, fault_of
from .ways import ways

T = TypeVar("T")

FUNCTION, SESSION, WRONG_MODEL = 0.25, 0.03, 0.01
"""The part of the calls that are of a function, that make a session, that try to with a model that is refused."""

OF_FUNCTIONS = (TypeError, ValueError)
OF_MODELS = (Fail, InvalidArgument, RuntimeException)
"""Classes of refusals. ONNX Runtime has several for an operator that does not take its attributes."""


class Worker(threading.Thread):
    """Calls until it is told to stop, or all calls are made.

    begun: the monotonic time at which its last call began.
    is_done: whether it has come to its end, and not to an error of its own.
    """

    def __init__(
        self, seed: Sequence[int], pool: Sequence[Problem], live: Live, tally: Tally, stop: threading.Event
    ) -> None:
        super().__init__(daemon=True)
        self.begun = time.monotonic()
        self.is_done = False
        self._rng = np.random.default_rng(seed)
        self._pool, self._live, self._tally, self._told_to_stop = pool, live, tally, stop

    def run(self) -> None:
        """See `threading.Thread`."""
        while not self._told_to_stop.is_set() and self._tally.begin():
            self.begun = time.monotonic()
            self._call()
        self.is_done = True

    def _call(self) -> None:
        chance = self._rng.random()
        session = self._live.a_session(self._rng)
        if chance < FUNCTION:
            problem = self._one(self._pool)
            self._ask(problem, lambda: by_function(problem.case), OF_FUNCTIONS)
        elif chance < FUNCTION + WRONG_MODEL and self._live.wrong:
            problem = self._one(self._live.wrong)
            self._ask(problem, lambda: self._live.make(self._rng, problem.model) and {}, OF_MODELS)
        elif session is None or chance < FUNCTION + WRONG_MODEL + SESSION:
            self._renew()
        else:
            problem = self._one(session.problems)
            way = self._one(ways(problem.case))
            self._ask(problem, lambda: way.call(session.session, problem.case), way.errors)

    def _ask(self, problem: Problem, call: Callable[[], Outputs], errors: tuple[type[Exception], ...]) -> None:
        got: Outputs | Exception
        try:
            got = call()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is judged
            got = error
        fault = fault_of(problem, got, errors)
        self._tally.end(fault, refused=problem.expected is None and fault is None)

    def _renew(self) -> None:
        try:
            self._live.renew(self._rng)
        except Exception as error:  # noqa: BLE001 - likewise
            self._tally.end(Fault("unexpected error", "a session that is made", f"{type(error).__name__}: {error}"))
        else:
            self._tally.end(None)

    def _one(self, choices: Sequence[T]) -> T:
        return choices[int(self._rng.integers(len(choices)))]
