"""Gradient rules of losses over classes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from gradient_checks import check
from pairs import pairwise


@pairwise(
    {
        # What the mean divides by depends on the weights and on what is ignored: these three in full.
        "reduction, weighted, ignored": list(product(["none", "sum", "mean"], [False, True], [None, 1, -100])),
        "operator": ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"],
        "places": [(), (3,), (2, 3)],
    }
)
def test_losses(operator: str, reduction: str, weighted: bool, ignored: int | None, places: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    shape = (5, 4, *places)
    target = rng.integers(0, 4, (5, *places))
    if ignored is not None:
        target.ravel()[::3] = ignored
    axes = ",".join(["n", "4", *(f"d{i}" for i in range(len(places)))])
    weights = ", double[4] w" if weighted else ""
    attribute = f", ignore_index = {ignored}" if ignored is not None else ""
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
        g (double[{axes}] x, int64[{axes.replace(",4", "")}] t{weights}) => (double y) {{
          y = {operator} <reduction = "{reduction}"{attribute}> (x, t{", w" * weighted})
        }}"""
    feeds = {"x": rng.uniform(-2, 2, shape), "t": target}
    check(text, feeds | ({"w": rng.uniform(0.5, 2, 4)} if weighted else {}), ["x"])


def test_the_logarithms_of_cross_entropy_have_no_gradient_of_their_own() -> None:
    text = """<ir_version: 10, opset_import: ["" : 18]>
        g (double[n, 4] x, int64[n] t) => (double y, double p) { y, p = SoftmaxCrossEntropyLoss (x, t) }"""
    feeds = {"x": np.ones((2, 4)), "t": np.array([0, 3])}
    check(text, feeds, ["x"], outputs=["y"])
    with pytest.raises(ValueError, match="has no gradient rule for its output 'p'"):
        check(text, feeds, ["x"], outputs=["p"])
