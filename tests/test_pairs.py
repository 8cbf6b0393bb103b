"""The tests' own choice of pairs."""

from __future__ import annotations

import itertools

import pytest

from pairs import cover


@pytest.mark.parametrize("lengths", [(2, 3), (3, 5, 2), (3, 2, 2, 2), (15, 3, 3), (2, 2, 2, 2, 2, 2)])
def test_every_two_values_of_different_factors_meet(lengths: tuple[int, ...]) -> None:
    rows = cover([[f"{factor}{i}" for i in range(length)] for factor, length in enumerate(lengths)])
    for (i, one), (j, other) in itertools.combinations(enumerate(lengths), 2):
        assert len({(row[i], row[j]) for row in rows}) == one * other
    first, second, *_ = sorted(lengths, reverse=True)
    assert first * second <= len(rows) <= 1.5 * first * second + 1
