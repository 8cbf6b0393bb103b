"""Gradient rules of arithmetic."""

from __future__ import annotations

import numpy as np

from gradient_checks import check
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
