"""Random cases, from the numbers of a generator.

A share of the cases is exact: coordinates and all intermediate numbers are short binary fractions, so that samples lie
exactly on borders and pixels, and numbers of samples are exactly whole. The other cases have arbitrary numbers.

At most two axes of a case are as long as in practice, since the reference computes every sample in Python. A case that would
take it too long is drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import ortops
from conformance.case import Case, Source
from conformance.families import family_of
from conformance.fuzz.corrupt import corrupt, pick
from conformance.fuzz.random_draw import RandomDraw
from ortops.operators import OPERATORS
from ortops.spec import ELEMENT_DTYPES, Operator

BY_REFERENCE = Source("ortops/reference", f"ortops {ortops.__version__}", "any input")

EXACT, CORRUPT, LEFT_OUT, WILD = 0.35, 0.15, 0.1, 0.3
"""The shares of exact cases, of corrupted cases, of attributes that are left out, and of valid cases that may have
infinities, NaN and numbers at either end of their type's range."""

MAX_WORK = 15_000
"""The most samples that the reference computes for a case, which takes 0.1 to 0.2 s."""


def generate(seed: int, number: int, names: Sequence[str] = ()) -> Case:
    """Generate case `number` with this seed, for one of the named operators; for any if none is named."""
    return draw_case(np.random.default_rng([seed, number]), names, f"{seed}/{number}")


def draw_case(
    rng: np.random.Generator, names: Sequence[str], place: str, reject: Callable[[], object] = lambda: None
) -> Case:
    """Draw a case for one of the named operators, or for any.

    Args:
        rng: the random numbers.
        names: the names of the operators.
        place: the end of the case's id.
        reject: called before a case is drawn again, because the reference would take too long for it.
    """
    operator = pick(rng, [operator for operator in OPERATORS if not names or operator.name in names])
    is_corrupt = bool(rng.random() < CORRUPT)
    case = _case(rng, operator, f"{operator.function}/fuzz/{place}", no_extremes=is_corrupt)
    while family_of(operator).work(case) > MAX_WORK:
        reject()
        case = _case(rng, operator, case.id, no_extremes=is_corrupt)
    return corrupt(case, rng) if is_corrupt else case


def _case(rng: np.random.Generator, operator: Operator, id_: str, *, no_extremes: bool) -> Case:
    types: dict[str, str] = {variable: str(rng.choice(allowed)) for variable, allowed in operator.types.items()}
    is_exact = bool(rng.random() < EXACT)
    draw = RandomDraw(
        rng, is_exact, no_extremes or bool(rng.random() >= WILD), ELEMENT_DTYPES[next(iter(types.values()))]
    )
    attributes, inputs, outputs = family_of(operator).random_case(draw, operator)
    required = {attribute.name for attribute in operator.attributes if attribute.required}
    dtypes = {t.name: ELEMENT_DTYPES[types.get(t.type, t.type)] for t in operator.inputs if t.name in inputs}
    with np.errstate(over="ignore", invalid="ignore"):
        typed = {name: inputs[name].astype(dtype) for name, dtype in dtypes.items()}
    return Case(
        id=id_,
        source=BY_REFERENCE,
        operator=operator.name,
        attributes={n: v for n, v in attributes.items() if n in required or not draw.chance(LEFT_OUT)},
        inputs=typed,
        outputs=outputs,
        note="a random case",
    )
