"""Derivatives by finite differences, which detect kinks, ties and steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_models.gradient_check.retype import Array, Kind

_STEPS: dict[Kind, tuple[tuple[float, float, float], ...]] = {
    "double": ((1e-4, 1e-5, 1e-3), (1e-2, 2e-3, 1e-2)),
    "float": ((3e-2, 1e-2, 5e-2), (1e-1, 3e-2, 5e-2)),
}
"""Rows of two step sizes, the larger one first, and the relative difference of one-sided differences up to which the
function counts as smooth. The second row is for models that compute a part in a narrower type than that of their outputs."""

_ROUNDING: dict[Kind, float] = {"double": 2e-15, "float": 1e-6}
"""The relative error of a model's output, about ten roundings."""


@dataclass(frozen=True)
class Derivative:
    """A directional derivative of a weighted sum.

    value: the central difference. magnitude: the sum of the absolute values of its terms.
    error: a bound of the error of the value. size: the sum of the absolute values of the terms of the weighted sum.
    smooth: whether the derivative exists.
    """

    value: float
    magnitude: float
    error: float
    size: float
    smooth: bool


def typical(values: Array) -> float:
    """The median of the absolute values of an array's finite nonzero numbers; 1 if there are none."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    sizes = sizes[sizes < np.finfo(np.float32).max / 1e6]  # larger ones stand for infinity
    return float(np.median(sizes)) if sizes.size else 1.0


def direction(values: Array, rng: np.random.Generator) -> Array:
    """A random direction of the magnitude of the values; 0 where they are not finite."""
    return np.asarray(np.where(np.isfinite(values), rng.uniform(-1, 1, values.shape) * typical(values), 0.0))


def perturbed(values: Array, rng: np.random.Generator) -> Array:
    """Values near the given ones, with their signs, within their range, without ties, and exact in float32."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return values
    low, high = finite.min(), finite.max()
    sign = 1.0 if low >= 0 else -1.0 if high <= 0 else np.where(rng.uniform(size=values.shape) < 0.5, -1.0, 1.0)
    away = sign * rng.uniform(0.02, 0.1, values.shape) * typical(values)
    with np.errstate(all="ignore"):
        made = np.where(values == 0, away, values * (1 + rng.uniform(-0.1, 0.1, values.shape)))
        if low < high:  # reflect at the ends of the range
            made = np.where(made > high, 2 * high - made, np.where(made < low, 2 * low - made, made))
        return np.where(np.isfinite(values), made.astype(np.float32).astype(np.float64), values)


def directional_derivative(
    function: Callable[[Array], Array], at: Array, along: Array, weights: Array, kind: Kind
) -> Derivative:
    """The derivative of the weighted sum of a function's values along a direction.

    Args:
        function: from a point to values of the length of `weights`; its exceptions propagate.
        at: the point.
        along: the direction.
        weights: 0 for values to ignore, which may be infinite or NaN.
        kind: the type that the function computes in.
    """
    counts = weights != 0

    def values(step: float) -> Array:
        return np.where(counts, function(np.asarray(at + step * along)), 0.0)

    middle = values(0.0)
    size = float(np.sum(np.abs(weights * middle)))
    found = Derivative(0.0, 0.0, np.inf, size, smooth=False)
    for wide, narrow, disagreement in _STEPS[kind]:
        ahead = {step: (values(step) - middle) / step for step in (wide, narrow)}
        behind = {step: (middle - values(-step)) / step for step in (wide, narrow)}
        central = {step: float(weights @ (ahead[step] + behind[step])) / 2 for step in (wide, narrow)}
        magnitude = float(np.abs(weights) @ (np.abs(ahead[narrow]) + np.abs(behind[narrow]))) / 2
        noise = _ROUNDING[kind] * size / narrow
        sides = abs(float(weights @ (ahead[narrow] - behind[narrow])))
        error = sides + abs(central[wide] - central[narrow]) + noise
        if np.isfinite(error) and error <= disagreement * magnitude + 2 * noise:
            return Derivative(central[narrow], magnitude, error, size, smooth=True)
        if np.isfinite(error) and error < found.error:
            found = Derivative(central[narrow], magnitude, error, size, smooth=False)
    return found


def as_double(value: Any) -> Array:
    """A tensor's values as float64."""
    return np.asarray(value).astype(np.float64)
