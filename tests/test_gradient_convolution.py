"""Gradient rules of convolutions.

ONNX Runtime computes convolutions on the CPU in float alone. They are linear in each of their inputs, so that central
differences have no error of their own: a large step leaves the rounding of float alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import ortops
from gradient_checks import Array, check
from gradient_nodes import IS_OLD, node_model, uniform
from onnx_models.gradient import gradient

STEP, TOLERANCE = 1.0, 1e-5


def tensors(**shapes: Sequence[int]) -> dict[str, Array]:
    return uniform(shapes, np.float32)


@pytest.mark.parametrize(
    ("operator", "x", "w", "attributes"),
    [
        ("Conv", (2, 3, 7, 10), (4, 3, 3, 2), {"strides": [2, 3], "dilations": [1, 2], "pads": [1, 2, 0, 3]}),
        ("Conv", (2, 6, 5, 5), (2, 3, 3, 3), {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ("Conv", (2, 3, 9), (3, 1, 11), {"group": 3, "pads": [5, 6]}),
        ("ConvTranspose", (2, 3, 4, 5), (3, 4, 4, 3), {"output_shape": [7, 9], "strides": [2, 2]}),
    ],
)
def test_a_kernel_that_is_constant(
    operator: str, x: Sequence[int], w: Sequence[int], attributes: dict[str, Any]
) -> None:
    """A session can turn it round beforehand."""
    feeds = tensors(x=x)
    for opened in (False, True):
        made = node_model(operator, feeds, attributes, opened=opened, constants=tensors(w=w))
        check(made, feeds, ["x"], step=STEP, tolerance=TOLERANCE)


@pytest.mark.parametrize(
    ("lengths", "kernel", "attributes", "group"),
    [
        ([7], [3], {}, 1),
        ([5, 6], [1, 1], {}, 1),
        ([5, 6], [3, 3], {"strides": [2, 2], "pads": [1, 0, 0, 1]}, 2),
        ([6, 7], [4, 3], {"dilations": [1, 2]}, 4),
        ([3, 4, 5], [2, 1, 2], {}, 4),
    ],
)
@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
def test_without_samples_the_gradient_by_the_kernel_is_zero(
    operator: str, lengths: Sequence[int], kernel: Sequence[int], attributes: dict[str, Any], group: int
) -> None:
    feeds = tensors(x=(0, 4, *lengths), w=(4, 4 // group, *kernel), b=(4,))
    made = node_model(operator, feeds, {"group": group, **attributes}, opened=True)
    if not IS_OLD:  # which sums the products of the cotangent wrong, of which there are none
        check(made, feeds, list(feeds), step=STEP, tolerance=TOLERANCE)
    made.graph.node.append(onnx.helper.make_node("ReduceSum", ["y"], ["loss"], keepdims=0))
    session = ortops.InferenceSession(gradient(made, "loss", ["w", "b"]).SerializeToString())
    for _ in range(3):
        # What a run leaves in memory must not be taken for a gradient.
        session.run(["w_grad", "b_grad"], {**feeds, "x": np.full((3, 4, *lengths), np.nan, np.float32)})
        for found in session.run(["w_grad", "b_grad"], feeds):
            assert not np.asarray(found).any()


def test_negative_pads_are_refused() -> None:
    feeds = tensors(x=(1, 1, 5), w=(1, 1, 2))
    made = node_model("Conv", feeds, {"pads": [-1, 0]}, opened=True)
    with pytest.raises(ValueError, match=r"\(Conv\): pads = \[-1, 0\]: must be >= 0"):
        check(made, feeds, list(feeds))


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
def test_a_convolution_of_no_axes_is_refused(operator: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 18]> g (float[2,3] x, float[3,3] w) => (float loss) {{
        y = {operator} (x, w) loss = ReduceSum <keepdims = 0> (y) }}"""
    with pytest.raises(ValueError, match=rf"node of 'y' \({operator}\): '.*' has no spatial axes"):
        gradient(onnx.parser.parse_model(text), "loss", ["x"])
