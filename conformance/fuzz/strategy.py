"""Random cases as a strategy of hypothesis, which draws and shrinks them.

A share of the cases is exact: coordinates and all intermediate numbers are short binary fractions, so that samples lie
exactly on borders and pixels, and numbers of samples are exactly whole. The other cases have arbitrary numbers.

At most two axes of a case are as long as in practice, because the reference computes every sample in Python. A case that
would take too long is drawn again.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import Phase, Verbosity, find, reject, settings
from hypothesis.errors import Flaky, NoSuchExample

from conformance.case import Case
from conformance.families import family_of
from conformance.families.random_draw import RandomDraw
from conformance.fuzz.corrupt import corrupt
from conformance.fuzz.file import BY_REFERENCE
from ortops.operators import OPERATORS
from ortops.spec import ELEMENT_DTYPES, Operator

EXACT, CORRUPT, LEFT_OUT, WILD = 0.35, 0.15, 0.1, 0.3
"""The shares of exact cases, of corrupted cases, of attributes that are left out, and of valid cases that may have
infinities, NaN and numbers at either end of their type's range."""

ROUND = 32
"""The number of cases in a search: in a longer search hypothesis varies earlier draws, which finds less."""

MAX_WORK = 15_000
"""The most samples that the reference computes for a case, which takes 0.1 to 0.2 s."""


@st.composite
def cases(draw: Callable[[Any], Any], names: Sequence[str], place: str) -> Case:
    """Cases of the named operators, or of all; `place` is the end of their ids."""
    choices = RandomDraw(draw)
    operator = choices.choice([operator for operator in OPERATORS if not names or operator.name in names])
    is_corrupt = choices.chance(CORRUPT)
    case = _case(draw, operator, f"{operator.function}/fuzz/{place}", no_extremes=is_corrupt)
    if family_of(operator).work(case) > MAX_WORK:
        reject()
    return corrupt(case, choices) if is_corrupt else case


def _case(draw: Callable[[Any], Any], operator: Operator, id_: str, *, no_extremes: bool) -> Case:
    before = RandomDraw(draw)
    types = {variable: before.choice(allowed) for variable, allowed in operator.types.items()}
    dtype = ELEMENT_DTYPES[next(iter(types.values()))]
    choices = RandomDraw(draw, before.chance(EXACT), no_extremes or not before.chance(WILD), dtype)
    attributes, inputs, outputs = family_of(operator).random_case(choices, operator)
    required = {attribute.name for attribute in operator.attributes if attribute.required}
    dtypes = {t.name: ELEMENT_DTYPES[types.get(t.type, t.type)] for t in operator.inputs if t.name in inputs}
    with np.errstate(over="ignore", invalid="ignore"):
        typed = {name: inputs[name].astype(dtype) for name, dtype in dtypes.items()}
    return Case(
        id=id_,
        source=BY_REFERENCE,
        operator=operator.name,
        attributes={n: v for n, v in attributes.items() if n in required or not choices.chance(LEFT_OUT)},
        inputs=typed,
        outputs=outputs,
        note="a random case",
    )


def search(names: Sequence[str], place: str, seed: str, count: int, is_meant: Callable[[Case], bool]) -> None:
    """Draw at most `count` cases until `is_meant` is true for one, and shrink it. The same seed draws the same cases."""
    chosen = settings(
        max_examples=count,
        phases=[Phase.generate, Phase.shrink],
        deadline=None,
        database=None,
        derandomize=False,
        verbosity=Verbosity.quiet,
    )
    # A case that does not repeat, or not in time, is flaky to hypothesis.
    with contextlib.suppress(NoSuchExample, Flaky):
        find(cases(names, place), is_meant, settings=chosen, random=random.Random(seed))  # noqa: S311  # not for secrets


def some_cases(seed: int, count: int, names: Sequence[str] = ()) -> list[Case]:
    """Random cases of the named operators, or of all, at most `count`. The same seed draws the same cases."""
    drawn: list[Case] = []

    def is_meant(case: Case) -> bool:
        drawn.append(case)
        return False

    for first in range(0, count, ROUND):
        search(names, f"{seed}/{first // ROUND}", f"{seed}/{first // ROUND}/0", min(ROUND, count - first), is_meant)
    return drawn
