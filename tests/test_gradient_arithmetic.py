"""Gradient rules of arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from gradient_checks import check, of_sum
from pairs import pairwise


@pairwise(
    {
        "operator": ["Add", "Sub", "Mul", "Div"],
        "a, b": [
            ((2, 3), (2, 3)),
            ((2, 3), (3,)),
            ((3,), (2, 3)),
            ((2, 1, 4), (3, 1)),
            ((), (2, 2)),
            ((1, 1), (2, 0)),
        ],
        "declared": ["lengths", "names", "ranks"],
    }
)
def test_binary(operator: str, a: tuple[int, ...], b: tuple[int, ...], declared: str) -> None:
    def shape(lengths: tuple[int, ...], tensor: str) -> str:
        words = {"lengths": "{n}", "names": "{t}{i}", "ranks": "unknown_{t}{i}"}[declared]
        inside = ",".join(words.format(n=n, t=tensor, i=i) for i, n in enumerate(lengths))
        return f"[{inside}]" if lengths else ""  # brackets around nothing stand for any rank

    rng = np.random.default_rng(1)
    check(
        f"""<ir_version: 10, opset_import: ["" : 18]>
        g (double{shape(a, "a")} a, double{shape(b, "b")} b) => (double y) {{ y = {operator}(a, b) }}""",
        {"a": rng.uniform(1, 2, a), "b": rng.uniform(1, 2, b)},
        ["a", "b"],
    )


@pytest.mark.parametrize("operator", ["Max", "Min"])
def test_both_of_a_pair_with_nan_have_the_gradient_of_the_larger_and_the_smaller(operator: str) -> None:
    feeds = {"a": np.array([np.nan, 1.0, 1.0]), "b": np.array([1.0, np.nan, 1.0])}
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
        g (double[N] a, double[N] b) => (double y) {{ y = {operator}(a, b) }}"""
    found = of_sum(text, feeds, ["a", "b"])
    np.testing.assert_array_equal(found["a"], [1, 1, 1])
    np.testing.assert_array_equal(found["b"], [1, 1, 0])
