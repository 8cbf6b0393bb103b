"""Gradient rules of losses over classes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from gradient_checks import check, of_sum
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
    check(text, feeds | ({"w": rng.uniform(0.5, 2, 4)} if weighted else {}), ["x", "w"] if weighted else ["x"])


@pytest.mark.parametrize("outputs", [["y", "p"], ["p"], ["y"]])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_the_logarithms_of_cross_entropy_have_a_gradient_too(outputs: list[str], reduction: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
        g (double[n, 4, m] x, int64[n, m] t, double[4] w) => (double y, double p) {{
          y, p = SoftmaxCrossEntropyLoss <reduction = "{reduction}", ignore_index = 7> (x, t, w) }}"""
    rng = np.random.default_rng(1)
    feeds = {"x": rng.uniform(-1, 1, (3, 4, 2)), "t": np.array([[0, 3], [7, 1], [1, 1]]), "w": rng.uniform(1, 2, 4)}
    check(text, feeds, ["x", "w"] if "y" in outputs else ["x"], outputs=outputs)


@pytest.mark.parametrize("operator", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_what_is_ignored_has_no_gradient_even_if_it_is_all_and_infinite(operator: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
        g (double[n, 2] x, int64[n] t, double[2] w) => (double y) {{
          y = {operator} <reduction = "REDUCTION", ignore_index = -1> (x, t, w) }}"""
    feeds = {"x": np.array([[-np.inf, 0.0], [1.0, 1.0]]), "t": np.array([-1, 1]), "w": np.array([2.0, 3.0])}
    for reduction in ("none", "sum", "mean"):
        found = of_sum(text.replace("REDUCTION", reduction), feeds, ["x", "w"])
        assert all(np.isfinite(value).all() for value in found.values())
        np.testing.assert_array_equal(found["x"][0], 0)
    none = of_sum(text.replace("REDUCTION", "mean"), {**feeds, "t": np.array([-1, -1])}, ["x"])
    np.testing.assert_array_equal(none["x"], 0)
