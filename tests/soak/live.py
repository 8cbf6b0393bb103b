"""The sessions that there are at a time: a bounded number, of every kind, which come and go while threads call them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime

import ortops
from conformance.backends.session import CPU, options

from .pool import Problem
from .tally import Tally

THREADS = (1, 2, 4)
"""Of a session, which its kernels use."""

OWN_OPTIONS = 0.1
"""The part of the sessions that have options of their own; all others share theirs."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session and the problems that its model has."""

    session: Any
    problems: Sequence[Problem]


class Live:
    """So many sessions at most; others take their places. Used by many threads at once.

    pool: the problems whose models the sessions have.
    size: how many there may be.
    tally: counts them, and their options.
    wrong: those whose models are refused.
    """

    def __init__(self, pool: Sequence[Problem], size: int, tally: Tally) -> None:
        by_model = defaultdict[bytes, list[Problem]](list)
        for problem in pool:
            by_model[problem.model].append(problem)
        models = list(by_model.values())
        self.wrong = [problems[0] for problems in models if problems[0].refused_when_made]
        self._right = [problems for problems in models if not problems[0].refused_when_made]
        self._size, self._tally = size, tally
        self._shared = {count: self._options(count) for count in THREADS}
        self._sessions: list[Session] = []
        self._lock = threading.Lock()

    def a_session(self, rng: np.random.Generator) -> Session | None:
        """One of those that are there, or None where there is none yet."""
        with self._lock:
            return self._sessions[rng.integers(len(self._sessions))] if self._sessions else None

    def renew(self, rng: np.random.Generator) -> None:
        """Make a session; once all places are taken, one that had a place is dropped.

        Raises:
            Exception: as ONNX Runtime does where it refuses the model.
        """
        problems = self._right[rng.integers(len(self._right))]
        made = Session(self.make(rng, problems[0].model), problems)
        with self._lock:
            self._sessions.append(made)
            # It ends where nobody holds the lock, nor calls it any more.
            dropped = self._sessions.pop(rng.integers(self._size)) if len(self._sessions) > self._size else None
        del dropped

    def make(self, rng: np.random.Generator, model: bytes) -> Any:
        """A session of any kind, which no place is given.

        Raises:
            Exception: as ONNX Runtime does where it refuses the model.
        """
        threads = int(rng.choice(THREADS))
        chosen = self._options(threads) if rng.random() < OWN_OPTIONS else self._shared[threads]
        self._tally.make(sessions=1)
        if rng.random() < 0.5:
            return ortops.InferenceSession(model, chosen, providers=[CPU])
        ortops.register(chosen)
        return onnxruntime.InferenceSession(model, chosen, providers=[CPU])

    def _options(self, threads: int) -> Any:
        made = options()
        made.intra_op_num_threads = threads
        self._tally.make(options=1)
        return made
