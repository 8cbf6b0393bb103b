"""Threads call all operators in all ways at once; every answer is right to the bit, and calls keep no memory."""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

import ortops
from conformance.backends.session import CPU, QUIET, from_ort, options, to_ort
from conformance.case import Array, Case
from conformance.fuzz.check import Failure, check
from conformance.fuzz.corrupt import corrupt
from conformance.fuzz.generate import generate
from conformance.model import build, with_named_axes
from conformance.run import Answer, CaseRunner, ask
from ortops.operators import OPERATORS

Outputs = dict[str, Array]
THREADS, CALLS_OF_A_THREAD = 4, 400


@dataclass(frozen=True)
class Problem:
    """A case and what has to come of it: the outputs, or None and the words of the rule that it breaks."""

    case: Case
    expected: Outputs | None
    rule: str

    @functools.cached_property
    def models(self) -> tuple[bytes, ...]:
        """The model without shapes, which sends all that is wrong with the data to the operator, and that with shapes."""
        cases = (with_named_axes(self.case), self.case) if self.expected is not None else (with_named_axes(self.case),)
        return tuple(build(case, "ortops").SerializeToString() for case in cases)


def by_function(case: Case) -> Outputs:
    """The outputs of a case by the public function that computes it."""
    operator = case.definition
    arguments = dict(operator.check_attributes(case.attributes))
    given = [case.inputs[tensor.name] for tensor in operator.inputs if not tensor.optional]
    function: Callable[..., Any] = getattr(ortops, operator.function)
    if len(operator.outputs) == 1:
        return {operator.outputs[0].name: function(*given, **arguments)}
    x = next((case.inputs.get(tensor.name) for tensor in operator.inputs if tensor.optional), None)
    named = dict(zip((tensor.name for tensor in operator.outputs), ("dx", "drois"), strict=True))
    answers = function(*given, x=x, outputs=[named[name] for name in case.outputs], **arguments)
    return {name: array for name, array in zip(named, answers, strict=True) if array is not None}


class Functions:
    """The functions as a backend."""

    expected_failures = ()

    def prepare(self, case: Case) -> Callable[[Any], Outputs]:
        return lambda inputs: by_function(replace(case, inputs=inputs))


def problem_of(case: Case) -> Problem:
    """The problem of a case; the reference approves the functions' answer."""
    asked: list[tuple[Case, Answer]] = []

    def answer_of(settled: Case) -> Answer:
        asked.append((settled, ask(Functions(), settled)))
        return asked[-1][1]

    verdict = check(replace(case, twin=None), CaseRunner(answer_of))
    assert not isinstance(verdict, Failure), verdict
    ((settled, answer),) = asked
    if settled.expects_error:
        return Problem(settled, None, answer.text.split(": ", 1)[1])
    return Problem(settled, {name: np.array(y) for name, y in (answer.outputs or {}).items()}, "")


def cases() -> Iterator[Case]:
    """Random cases, the operators in turn, and the same with one thing changed, which most often is wrong."""
    for number in range(4 * len(OPERATORS)):
        case = generate(1, number, (OPERATORS[number % len(OPERATORS)].name,))
        yield case
        yield corrupt(case, np.random.default_rng([1, number]))


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return [problem_of(case) for case in cases()]


def quietly() -> Any:
    chosen = onnxruntime.RunOptions()
    chosen.log_severity_level = QUIET
    return chosen


def run(session: Any, case: Case) -> Outputs:
    return dict(zip(case.outputs, session.run(case.outputs, dict(case.inputs), quietly()), strict=True))


def run_with_ort_values(session: Any, case: Case) -> Outputs:
    feeds = {name: to_ort(array) for name, array in case.inputs.items()}
    answers = session.run_with_ort_values(case.outputs, feeds, quietly())
    return {name: from_ort(value) for name, value in zip(case.outputs, answers, strict=True)}


def run_with_iobinding(session: Any, case: Case) -> Outputs:
    binding = session.io_binding()
    for name, array in case.inputs.items():
        binding.bind_ortvalue_input(name, to_ort(array))
    for name in case.outputs:
        binding.bind_output(name)
    session.run_with_iobinding(binding, quietly())
    return {name: from_ort(value) for name, value in zip(case.outputs, binding.get_outputs(), strict=True)}


def make_session(problem: Problem, rng: np.random.Generator) -> Any:
    """A session of either class, whose kernels use 1, 2 or 4 threads."""
    chosen = options()
    chosen.intra_op_num_threads = int(rng.choice([1, 2, 4]))
    kind = ortops.InferenceSession if rng.random() < 0.5 else onnxruntime.InferenceSession
    if kind is onnxruntime.InferenceSession:
        ortops.register(chosen)
    return kind(problem.models[rng.integers(len(problem.models))], chosen, providers=[CPU])


def wrong_with(problem: Problem, call: Callable[[], Outputs]) -> str:
    """What is wrong with what comes of a call, or ""."""
    try:
        got = call()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is judged
        is_right = problem.expected is None and problem.rule in str(error)
        return "" if is_right else f"{problem.case.id}: {type(error).__name__}: {error}; not {problem.rule!r}"
    if problem.expected is None:
        return f"{problem.case.id}: not refused: {problem.rule}"
    bits = [{name: (y.dtype, y.shape, y.tobytes()) for name, y in one.items()} for one in (got, problem.expected)]
    return "" if bits[0] == bits[1] else f"{problem.case.id}: other bits"


def by_session(problem: Problem, number: int, sessions: dict[int, Any], rng: np.random.Generator) -> Outputs:
    """The outputs by a session, which other threads may call at the same time, and which is replaced now and then."""
    # NumPy has no bfloat16 that ONNX Runtime knows.
    ways = [run_with_ort_values, run_with_iobinding, *([] if problem.case.dtype == ml_dtypes.bfloat16 else [run])]
    if number not in sessions or rng.random() < 0.05:
        sessions[number] = make_session(problem, rng)
    return ways[rng.integers(len(ways))](sessions[number], problem.case)


def faults(problems: list[Problem], seed: int, sessions: dict[int, Any]) -> list[str]:
    """What is wrong with random calls of functions and of sessions."""
    rng = np.random.default_rng(seed)
    found = []
    for number in rng.integers(len(problems), size=CALLS_OF_A_THREAD).tolist():
        problem = problems[number]
        call = (
            partial(by_session, problem, number, sessions, rng)
            if rng.random() < 0.75
            else partial(by_function, problem.case)
        )
        found.append(wrong_with(problem, call))
    return [words for words in found if words]


def test_the_problems_are_of_every_operator_and_some_are_refused(problems: list[Problem]) -> None:
    assert {problem.case.operator for problem in problems} == {operator.name for operator in OPERATORS}
    assert 0 < sum(problem.expected is None for problem in problems) < len(problems) / 2


def test_threads_that_share_sessions_get_the_right_bits_and_refusals(problems: list[Problem]) -> None:
    sessions: dict[int, Any] = {}
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(lambda seed: faults(problems, seed, sessions), range(THREADS))
    assert list(itertools.chain(*found)) == []


def test_a_wrong_bit_and_other_words_are_noticed(problems: list[Problem]) -> None:
    right = next(one for one in problems if one.expected and next(iter(one.expected.values())).size)
    wrong = {name: array.copy() for name, array in (right.expected or {}).items()}
    next(iter(wrong.values())).view(np.uint8).flat[0] ^= 1
    refused = next(one for one in problems if one.expected is None)
    for problem in (replace(right, expected=wrong), replace(right, expected=None), replace(refused, rule="otherwise")):
        assert wrong_with(problem, partial(by_function, problem.case))
    assert not wrong_with(right, partial(by_function, right.case))


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
    # No session can be made with a wrong attribute.
    loaded = [(one, make_session(one, rng)) for one in problems if one.case.expects_error != "attribute"]
    held = []
    for _ in range(3):
        for _ in range(10):
            for problem, session in loaded:
                assert not wrong_with(problem, partial(run_with_iobinding, session, problem.case))
                assert not wrong_with(problem, partial(by_function, problem.case))
        gc.collect()
        held.append(held_bytes() or 0)
    kept = (held[-1] - held[-2]) / (20 * len(loaded))
    assert kept < 48, f"{kept} bytes a call"  # an object of Python takes more
