# SPDX-License-Identifier: MIT
"""Threads call all operators in all ways at once; every answer is right to the bit, and calls keep no memory."""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

import ortops
from conformance.backends.session import CPU, QUIET, options
from ortops import from_ort, to_ort
from ortops.operators import OPERATORS
from problems import Array
from samples import Refusal, Sample, edges, open_ranks, refusals, right, samples

THREADS, CALLS_OF_A_THREAD = 4, 200


@dataclass(frozen=True)
class Problem:
    """A call, and what has to come of it: the bits of the outputs, or part of the error."""

    sample: Sample
    expected: list[bytes] | str

    @functools.cached_property
    def model(self) -> bytes:
        """The model without shapes, which sends all that is wrong with the data to the operator."""
        sample = right(self.sample) if isinstance(self.sample, Refusal) else self.sample
        return bytes(open_ranks(sample.model()).SerializeToString())


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    kept = []
    for operator in OPERATORS:
        for kind in operator.types[operator.inputs[0].type]:
            calls = (*samples(operator, kind)[:2], *edges(operator, kind))
            kept += [Problem(sample, [y.tobytes() for y in sample.function()]) for sample in calls]
        wrong = [call for call in refusals(operator) if call.by == "data" and len(call.inputs) == len(operator.inputs)]
        kept += [Problem(call, call.says) for call in wrong[::4]]
    return kept


def quietly() -> Any:
    chosen = onnxruntime.RunOptions()
    chosen.log_severity_level = QUIET
    return chosen


def run(session: Any, sample: Sample) -> list[Array]:
    return list(session.run(None, dict(sample.inputs), quietly()))


def run_with_ort_values(session: Any, sample: Sample) -> list[Array]:
    feeds = {name: to_ort(array) for name, array in sample.inputs.items()}
    return list(map(from_ort, session.run_with_ort_values(None, feeds, quietly())))


def run_with_iobinding(session: Any, sample: Sample) -> list[Array]:
    binding = session.io_binding()
    for name, array in sample.inputs.items():
        binding.bind_ortvalue_input(name, to_ort(array))
    for value in session.get_outputs():
        binding.bind_output(value.name)
    session.run_with_iobinding(binding, quietly())
    return list(map(from_ort, binding.get_outputs()))


def make_session(problem: Problem, rng: np.random.Generator) -> Any:
    """A session of either class, whose kernels use 1, 2 or 4 threads."""
    chosen = options()
    chosen.intra_op_num_threads = int(rng.choice([1, 2, 4]))
    kind = ortops.InferenceSession if rng.random() < 0.5 else onnxruntime.InferenceSession
    if kind is onnxruntime.InferenceSession:
        ortops.register(chosen)
    return kind(problem.model, chosen, providers=[CPU])


def wrong_with(problem: Problem, call: Callable[[], list[Array]]) -> str:
    """What is wrong with what comes of a call, or ""."""
    try:
        got: list[bytes] | str = [y.tobytes() for y in call()]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is judged
        got = str(error)
        if isinstance(problem.expected, str) and problem.expected in got:
            return ""
    return "" if got == problem.expected else f"{problem.sample}: {got!r:.300}"


def by_session(problem: Problem, number: int, sessions: dict[int, Any], rng: np.random.Generator) -> list[Array]:
    """The outputs by a session, which other threads may call at the same time, and which is replaced now and then."""
    # NumPy has no bfloat16 that ONNX Runtime knows.
    is_known = all(array.dtype != ml_dtypes.bfloat16 for array in problem.sample.inputs.values())
    ways = [run_with_ort_values, run_with_iobinding, *([run] if is_known else [])]
    if number not in sessions or rng.random() < 0.05:
        sessions[number] = make_session(problem, rng)
    return ways[rng.integers(len(ways))](sessions[number], problem.sample)


def faults(problems: list[Problem], seed: int, sessions: dict[int, Any]) -> list[str]:
    """What is wrong with random calls of functions and of sessions."""
    rng = np.random.default_rng(seed)
    results = []
    for number in rng.integers(len(problems), size=CALLS_OF_A_THREAD).tolist():
        problem = problems[number]
        of_session = partial(by_session, problem, number, sessions, rng)
        results.append(wrong_with(problem, of_session if rng.random() < 0.75 else problem.sample.function))
    return [words for words in results if words]


def test_threads_that_share_sessions_get_the_right_bits_and_refusals(problems: list[Problem]) -> None:
    sessions: dict[int, Any] = {}
    with ThreadPoolExecutor(THREADS) as pool:
        results = pool.map(lambda seed: faults(problems, seed, sessions), range(THREADS))
    assert list(itertools.chain(*results)) == []


def held_bytes() -> int | None:
    """What the allocators have handed out and not got back, or None where the C library does not tell."""
    tell = _mallinfo2()
    if tell is None:
        return None
    told = tell()
    return int(told.uordblks + told.hblkhd) + 64 * sys.getallocatedblocks()


@functools.cache
def _mallinfo2() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    names = ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]
    kind = type("Mallinfo2", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_size_t) for name in names]})
    tell = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if tell is not None:
        tell.restype = kind
    return tell


@pytest.mark.skipif(held_bytes() is None, reason="the C library does not tell")
def test_calls_keep_no_memory(problems: list[Problem]) -> None:
    rng = np.random.default_rng(0)
    # What ONNX Runtime keeps of a failed run of any model, it frees in bulk after hundreds of runs.
    some = [problem for problem in problems if not isinstance(problem.expected, str)][::7]
    loaded = [(problem, make_session(problem, rng)) for problem in some]
    held = []
    for _ in range(3):
        for _ in range(5):
            for problem, session in loaded:
                assert not wrong_with(problem, partial(run_with_iobinding, session, problem.sample))
                assert not wrong_with(problem, problem.sample.function)
        gc.collect()
        held.append(held_bytes() or 0)
    kept = (held[-1] - held[-2]) / (10 * len(loaded))
    assert kept < 48, f"{kept} bytes a call"  # an object of Python takes more
