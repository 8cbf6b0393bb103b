# SPDX-License-Identifier: MIT
"""An operator with a list of axes, an optional input and a type variable.

$ python -m examples.operators.standardize
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray

import ortops

Real = TypeVar("Real", np.float16, np.float32, np.float64)


@ortops.operator(domain="examples", name="Standardize", shapes=lambda x, **_: x)
def standardize(
    x: NDArray[Real],
    scale: NDArray[Real] | None = None,
    axes: list[int] = [-1],  # noqa: B006 - each call gets a list of its own
    epsilon: float = 1e-5,
) -> NDArray[Real]:
    """Values with mean 0 and variance 1 over the axes, computed in double, times the scale if there is one."""
    wide, over = x.astype(np.float64), tuple(axes)
    centered = wide - wide.mean(over, keepdims=True)
    y = centered / np.sqrt((centered**2).mean(over, keepdims=True) + epsilon)
    return np.asarray(y if scale is None else y * scale, x.dtype)


def main() -> None:
    """Standardize a matrix over both axes, then its rows with a scale."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 16, "examples" : 1]>
        network (float16[n, m] x, float16[m] scale) => (float16[n, m] y, float16[n, m] z) {
            y = examples.Standardize <axes = [0, 1]> (x)
            z = examples.Standardize (x, scale)
        }""")
    session = ortops.InferenceSession(model.SerializeToString(), operators=[standardize])
    x = np.array([[1, 2], [3, 6]], np.float16)
    for output in session.run(None, {"x": x, "scale": np.array([1, 10], np.float16)}):
        print(output.round(2).tolist())


if __name__ == "__main__":
    main()
