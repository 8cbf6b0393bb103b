"""Gradient rules of losses over classes."""

from __future__ import annotations

import numpy as np
import pytest

from gradient_checks import of_sum


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
