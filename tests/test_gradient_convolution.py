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
from gradient_nodes import IS_OLD, NEWEST_OPSET, node_model, uniform
from onnx_models.gradient import gradient
from pairs import pairwise

STEP, TOLERANCE = 1.0, 1e-5


def tensors(**shapes: Sequence[int]) -> dict[str, Array]:
    return uniform(shapes, np.float32)


CONVOLUTIONS: list[tuple[Sequence[int], Sequence[int], dict[str, Any]]] = [
    # X, W and attributes
    ((2, 3, 8), (4, 3, 3), {}),
    ((2, 3, 8), (4, 3, 3), {"strides": [2], "pads": [1, 0]}),
    ((2, 3, 9), (4, 3, 2), {"strides": [3], "dilations": [2], "pads": [2, 1]}),
    ((2, 3, 6, 7), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 3, 6, 7), (4, 3, 1, 1), {"strides": [2, 2]}),
    ((2, 3, 6, 7), (4, 3, 1, 1), {"strides": [3, 2], "pads": [1, 2, 1, 0]}),
    ((2, 3, 7, 10), (4, 3, 3, 2), {"strides": [2, 3], "dilations": [1, 2], "pads": [1, 2, 0, 3]}),
    ((2, 3, 8, 9), (4, 3, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((2, 3, 9, 8), (4, 3, 7, 7), {"strides": [2, 2], "pads": [3, 3, 3, 3]}),
    ((2, 4, 6, 7), (6, 2, 3, 2), {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    ((3, 4, 6, 7), (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    ((2, 3, 6, 7), (6, 1, 3, 3), {"group": 3, "dilations": [2, 1], "strides": [1, 2]}),
    ((2, 6, 5, 5), (2, 3, 3, 3), {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((2, 3, 6, 7), (4, 3, 3, 2), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    ((2, 3, 6, 7), (4, 3, 4, 2), {"auto_pad": "SAME_LOWER", "strides": [1, 2]}),
    ((2, 3, 6, 7), (4, 3, 2, 2), {"auto_pad": "SAME_LOWER", "strides": [3, 4]}),
    ((2, 3, 6, 7), (4, 3, 3, 3), {"auto_pad": "SAME_LOWER"}),
    ((2, 3, 6, 7), (4, 3, 3, 3), {"auto_pad": "VALID", "strides": [2, 2]}),
    ((2, 2, 5, 6, 4), (4, 2, 3, 2, 2), {"strides": [2, 1, 2], "pads": [1, 0, 1, 1, 1, 0]}),
    ((2, 4, 5, 6, 4), (4, 2, 3, 2, 2), {"group": 2, "auto_pad": "SAME_UPPER"}),
    ((1, 1, 3, 3), (1, 1, 3, 3), {}),
    # a matrix product for each pixel of the kernel
    ((2, 5, 9), (4, 5, 3), {"strides": [2], "dilations": [2], "pads": [1, 3]}),
    ((2, 5, 7, 10), (3, 5, 3, 2), {"strides": [2, 3], "dilations": [1, 2], "pads": [1, 2, 0, 3]}),
    ((1, 5, 6, 7), (4, 5, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 5, 6, 7), (4, 5, 1, 1), {}),
    ((2, 8, 6, 7), (6, 4, 3, 2), {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    ((1, 8, 6, 7), (2, 4, 2, 2), {"group": 2, "auto_pad": "SAME_LOWER"}),
    ((2, 5, 8, 5), (2, 5, 3, 2), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    ((2, 4, 5, 6, 4), (3, 4, 3, 2, 2), {"strides": [2, 1, 2], "pads": [1, 0, 1, 1, 1, 0]}),
    ((2, 3, 6, 7), (6, 1, 2, 3), {"group": 3, "dilations": [2, 1], "pads": [0, 1, 2, 3]}),
    # a product of rows for each row of the kernel
    ((2, 3, 9), (3, 1, 11), {"group": 3, "pads": [5, 6]}),
    ((2, 3, 6, 9), (3, 1, 3, 4), {"group": 3, "pads": [1, 1, 1, 2]}),
    ((1, 3, 9, 8), (3, 1, 3, 3), {"group": 3, "strides": [3, 2], "dilations": [2, 1], "pads": [2, 1, 2, 1]}),
    ((2, 2, 9, 8), (2, 1, 3, 2), {"group": 2, "strides": [2, 3], "auto_pad": "SAME_LOWER"}),
    ((2, 2, 4, 5, 6), (2, 1, 2, 3, 3), {"group": 2, "pads": [1, 0, 1, 1, 1, 0]}),
]


KERNELS = ["open", "known", "constant"]
"""How much is known of a kernel: its rank, its shape, or all of it. The gradient by it depends on its shape, that by X on
whether a session can turn it round beforehand."""


def _check(
    operator: str, feeds: dict[str, Array], attributes: dict[str, Any], opened: bool, kernel: str, opset: int
) -> None:
    """Check all gradients, that by the kernel unless it is constant."""
    fed = {name: value for name, value in feeds.items() if name != "w" or kernel != "constant"}
    constants = {name: value for name, value in feeds.items() if name not in fed}
    made = node_model(
        operator, fed, attributes, opened=opened, opset=opset, constants=constants, inputs=list(feeds)
    )  # fmt: skip
    if kernel == "known":
        (value,) = (value for value in made.graph.input if value.name == "w")
        value.CopyFrom(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, feeds["w"].shape))
    check(made, fed, list(fed), step=STEP, tolerance=TOLERANCE)


@pairwise(
    {
        "x, w, attributes": CONVOLUTIONS,
        "opened": [False, True],
        "kernel": KERNELS,
        "with_bias": [False, True],
    }
)
def test_conv(
    x: Sequence[int], w: Sequence[int], attributes: dict[str, Any], opened: bool, kernel: str, with_bias: bool
) -> None:
    feeds = tensors(x=x, w=w, b=w[:1]) if with_bias else tensors(x=x, w=w)
    _check("Conv", feeds, attributes, opened, kernel, NEWEST_OPSET if with_bias else 18)


TRANSPOSED: list[tuple[Sequence[int], Sequence[int], dict[str, Any]]] = [
    ((2, 3, 5), (3, 4, 3), {}),
    ((2, 3, 5), (3, 4, 3), {"strides": [2], "pads": [1, 0], "output_padding": [1]}),
    ((2, 3, 4, 5), (3, 4, 2, 2), {"strides": [2, 2]}),
    ((2, 3, 4, 5), (3, 4, 3, 3), {"strides": [2, 3], "pads": [1, 1, 1, 0], "output_padding": [1, 2]}),
    ((2, 3, 4, 5), (3, 4, 3, 2), {"strides": [1, 2], "dilations": [2, 3], "pads": [0, 2, 1, 0]}),
    ((2, 4, 4, 5), (4, 3, 3, 2), {"group": 2, "strides": [2, 1], "pads": [1, 0, 0, 1]}),
    ((2, 4, 4, 5), (4, 1, 2, 3), {"group": 4, "strides": [2, 2]}),
    ((2, 3, 4, 5), (3, 4, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 1]}),
    ((2, 3, 4, 5), (3, 4, 3, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 1]}),
    ((2, 3, 4, 5), (3, 4, 1, 2), {"auto_pad": "SAME_UPPER", "strides": [3, 4]}),
    ((2, 3, 4, 5), (3, 4, 3, 4), {"auto_pad": "VALID", "strides": [2, 1]}),
    ((2, 3, 4, 5), (3, 4, 3, 3), {"output_shape": [8, 8], "strides": [2, 2]}),
    ((2, 3, 4, 5), (3, 4, 4, 3), {"output_shape": [7, 9], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((2, 3, 4, 5), (3, 4, 3, 3), {"output_shape": [10, 12], "strides": [2, 2]}),
    ((2, 4, 4, 5), (4, 3, 4, 3), {"output_shape": [7, 9], "strides": [2, 2], "group": 2}),
    ((2, 2, 3, 4, 3), (2, 3, 2, 3, 2), {"strides": [1, 2, 2], "pads": [0, 1, 0, 1, 0, 1]}),
    # a matrix product for each pixel of the kernel
    ((2, 3, 4, 5), (3, 5, 3, 3), {"strides": [2, 3], "pads": [1, 1, 1, 0], "output_padding": [1, 2]}),
    ((2, 3, 4, 5), (3, 5, 1, 1), {}),
    ((2, 3, 4, 5), (3, 5, 1, 1), {"output_shape": [4, 5]}),
    ((1, 4, 4, 5), (4, 4, 3, 2), {"group": 2, "output_shape": [7, 9], "strides": [2, 2]}),
    ((2, 3, 4, 5), (3, 5, 1, 2), {"auto_pad": "SAME_UPPER", "strides": [3, 4]}),
    # a product of rows for each row of the kernel
    ((2, 3, 4, 5), (3, 1, 3, 4), {"group": 3, "strides": [2, 1], "output_padding": [1, 0]}),
    ((2, 3, 4, 5), (3, 1, 3, 2), {"group": 3, "output_shape": [9, 11], "strides": [2, 2]}),
]


@pairwise(
    {
        "x, w, attributes": TRANSPOSED,
        "opened": [False, True],
        "kernel": KERNELS,
        "with_bias": [False, True],
    }
)
def test_conv_transpose(
    x: Sequence[int], w: Sequence[int], attributes: dict[str, Any], opened: bool, kernel: str, with_bias: bool
) -> None:
    channels = w[1] * attributes.get("group", 1)
    feeds = tensors(x=x, w=w, b=[channels]) if with_bias else tensors(x=x, w=w)
    _check("ConvTranspose", feeds, attributes, opened, kernel, NEWEST_OPSET if with_bias else 18)


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize(
    ("lengths", "kernel", "attributes"),
    [
        ([7], [3], {}),
        ([5, 6], [1, 1], {}),
        ([5, 6], [3, 3], {"strides": [2, 2], "pads": [1, 0, 0, 1]}),
        ([6, 7], [4, 3], {"dilations": [1, 2]}),
        ([3, 4, 5], [2, 1, 2], {}),
    ],
    ids=["1d", "1x1", "strides", "dilations", "3d"],
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
