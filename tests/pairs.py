# SPDX-License-Identifier: MIT
"""Parametrizing a test over pairs of values in place of their full product."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest


def pairwise(factors: Mapping[str, Sequence[Any]]) -> pytest.MarkDecorator:
    """Rows in which every value of a factor meets every value of each other one.

    What fails for three values together and for no two of them is not looked for.

    Args:
        factors: values by the name of an argument, or tuples of values by several names, "x, w". A value may be a
            `pytest.param`, whose marks its rows have.
    """
    rows = [
        pytest.param(*(value for one in row for value in one.values), marks=[mark for one in row for mark in one.marks])
        for row in cover([[_param(name, value) for value in values] for name, values in factors.items()])
    ]
    return pytest.mark.parametrize(", ".join(factors), rows)


def cover(factors: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Few rows of a value of each factor: every two values of different factors are in one. There are two factors or more.

    Greedy: each row is the first of the product that has the most pairs that no row before it has.
    """
    product = list(itertools.product(*(range(len(values)) for values in factors)))
    pairs = {row: set(itertools.combinations(enumerate(row), 2)) for row in product}
    missing, found = set().union(*pairs.values()), []
    while missing:
        best = max(product, key=lambda row: len(pairs[row] & missing))
        missing -= pairs[best]
        found.append(tuple(values[i] for values, i in zip(factors, best, strict=True)))
    return found


def _param(names: str, value: Any) -> Any:
    """A value as what `pytest.param` makes of it."""
    if hasattr(value, "marks"):
        return value
    return pytest.param(*value) if "," in names else pytest.param(value)
