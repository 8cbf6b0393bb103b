"""LSTM, GRU and RNN as loops over steps and sequences in NumPy, from the formulas of the ONNX operator specification."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradient_checks import Array

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "affine": lambda x, a, b: a * x + b,
    "elu": lambda x, a, _: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "leakyrelu": lambda x, a, _: np.where(x > 0, x, a * x),
    "relu": lambda x, *_: np.maximum(x, 0),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "sigmoid": lambda x, *_: 1 / (1 + np.exp(-x)),
    "softplus": lambda x, *_: np.log1p(np.exp(x)),
    "softsign": lambda x, *_: x / (1 + np.abs(x)),
    "tanh": lambda x, *_: np.tanh(x),
    "thresholdedrelu": lambda x, a, _: np.where(x > a, x, 0),
}

Function = tuple[str, float, float]
"""The name of an activation in lower case, its alpha and its beta."""


def layer(
    operator: str,
    inputs: Mapping[str, Array],
    functions: Sequence[Sequence[Function]],
    *,
    direction: str = "forward",
    clip: float | None = None,
    input_forget: int = 0,
    linear_before_reset: int = 0,
    layout: int = 0,
) -> dict[str, Array]:
    """The outputs Y, Y_h and, of an LSTM, Y_c.

    Args:
        operator: LSTM, GRU or RNN.
        inputs: by the specification's names: X, W, R, and any of B, sequence_lens, initial_h, initial_c and P.
        functions: of each direction.
        direction, clip, input_forget, linear_before_reset, layout: as in the specification.
    """
    inputs = {name: value.swapaxes(0, 1) if layout and name[0] in "Xi" else value for name, value in inputs.items()}
    x, r = inputs["X"], inputs["R"]
    (steps, sequences, _), (directions, _, size) = x.shape, r.shape
    lengths = inputs.get("sequence_lens", np.full(sequences, steps))
    y = np.zeros((steps, directions, sequences, size))
    ends = np.zeros((2, directions, sequences, size))
    nothing = np.zeros((directions, sequences, size))
    for d in range(directions):
        weights = {name: value[d] for name, value in inputs.items() if name in "WRBP"}
        for n in range(sequences):
            h, c = (inputs.get(name, nothing)[d, n] for name in ("initial_h", "initial_c"))
            places: Any = range(int(lengths[n]))
            for t in reversed(places) if direction == "reverse" or d == 1 else places:
                h, c = _STEPS[operator](x[t, n], h, c, weights, functions[d], clip, input_forget, linear_before_reset)
                y[t, d, n], ends[:, d, n] = h, (h, c)
    if layout:
        y, ends = y.transpose(2, 0, 1, 3), ends.swapaxes(1, 2)
    return {"Y": y, "Y_h": ends[0]} | ({"Y_c": ends[1]} if operator == "LSTM" else {})


def _called(function: Function, x: Array, clip: float | None) -> Array:
    name, *parameters = function
    result: Array = _FUNCTIONS[name](x if clip is None else np.clip(x, -clip, clip), *parameters)
    return result


def _bias(weights: Mapping[str, Array], gates: int) -> Array:
    size = weights["R"].shape[1]
    return weights.get("B", np.zeros(2 * gates * size))


def _lstm(
    x: Array, h: Array, c: Array, weights: Any, functions: Any, clip: Any, input_forget: int, _: int
) -> tuple[Array, Array]:
    peepholes = np.split(weights.get("P", np.zeros(3 * len(h))), 3)
    i, o, f, g = np.split(weights["W"] @ x + weights["R"] @ h + sum(np.split(_bias(weights, 4), 2)), 4)
    i = _called(functions[0], i + peepholes[0] * c, clip)
    f = 1 - i if input_forget else _called(functions[0], f + peepholes[2] * c, clip)
    c = f * c + i * _called(functions[1], g, clip)
    o = _called(functions[0], o + peepholes[1] * c, clip)
    return o * _called(functions[2], c, None), c


def _gru(
    x: Array, h: Array, c: Array, weights: Any, functions: Any, clip: Any, _: int, linear_before_reset: int
) -> tuple[Array, Array]:
    of_x, of_h = np.split(_bias(weights, 3), 2)
    (zx, rx, nx), (zr, rr, nr) = np.split(weights["W"] @ x + of_x, 3), np.split(weights["R"], 3)
    bz, br, bn = np.split(of_h, 3)
    z, r = _called(functions[0], zx + zr @ h + bz, clip), _called(functions[0], rx + rr @ h + br, clip)
    n = _called(functions[1], nx + (r * (nr @ h + bn) if linear_before_reset else nr @ (r * h) + bn), clip)
    return (1 - z) * n + z * h, c


def _rnn(x: Array, h: Array, c: Array, weights: Any, functions: Any, clip: Any, *_: int) -> tuple[Array, Array]:
    gates = weights["W"] @ x + weights["R"] @ h + sum(np.split(_bias(weights, 1), 2))
    return _called(functions[0], gates, clip), c


_STEPS = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}
