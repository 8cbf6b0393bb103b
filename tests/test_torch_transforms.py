"""`ortops.torch` in forward mode and under the transforms of ``torch.func``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.testing import assert_close

from ortops.torch import ps_roi_align, roi_align, roi_align_rotated, roi_pool

# Of PyTorch's own rules for the forward mode, when it is first used.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

X = torch.sin(torch.arange(2 * 2 * 5 * 4) * 2.4 + 0.3).reshape(2, 2, 5, 4).double()
IMAGES = torch.tensor([[0.0], [1.0]]).double()
BOXES = torch.tensor([[0.7, 1.1, 2.3, 3.9], [-1.3137, 1.2, 4.7, 3.1413]]).double()
TURNED = torch.tensor([[1.7, 2.1, 3.3, 2.9, 0.3], [2.3, 2.2, 4.7, 3.1, -1.2]]).double()


def align(x: Any, boxes: Any) -> Any:
    return roi_align(x, torch.cat([IMAGES, boxes], 1), 2, 0.9, 2, True)


def rotated(x: Any, boxes: Any) -> Any:
    return roi_align_rotated(x, torch.cat([IMAGES, boxes], 1), 2, 0.9, 0, True)


def positional(x: Any, boxes: Any) -> Any:
    return ps_roi_align(x, torch.cat([IMAGES, boxes], 1), (2, 1), 0.9, 2)


def pool(x: Any, boxes: Any) -> Any:
    return roi_pool(x, torch.cat([IMAGES, boxes], 1), (2, 1), 0.9)


FUNCTIONS: dict[Callable[..., Any], tuple[Callable[..., Any], Any, Any]] = {
    align: (roi_align, 2, BOXES),
    rotated: (roi_align_rotated, 2, TURNED),
    positional: (ps_roi_align, (2, 1), BOXES),
    pool: (roi_pool, 2, BOXES),
}
each_function = pytest.mark.parametrize(
    ("function", "boxes"),
    [(function, boxes) for function, (_, _, boxes) in FUNCTIONS.items()],
    ids=lambda value: getattr(value, "__name__", ""),
)


def jacobians(function: Callable[..., Any], boxes: Any) -> Any:
    """By reverse mode, without ``torch.func``."""
    return torch.autograd.functional.jacobian(function, (X, boxes))


@each_function
def test_jacobians_of_both_modes_are_the_same(function: Any, boxes: Any) -> None:
    for wanted, *actual in zip(
        jacobians(function, boxes),
        jacfwd(function, (0, 1))(X, boxes),
        jacrev(function, (0, 1))(X, boxes),
        strict=True,
    ):
        for jacobian in actual:
            assert_close(jacobian, wanted)


@each_function
def test_second_derivatives_of_mixed_modes_are_the_same(function: Any, boxes: Any) -> None:
    def loss(x: Any, boxes: Any) -> Any:
        return function(x, boxes).pow(3).sum()

    at, tangents = (X, boxes), (X.cos(), boxes.cos())
    wanted = torch.autograd.functional.vhp(loss, at, tangents)[1]
    forward_over_reverse = jvp(grad(loss, (0, 1)), at, tangents)[1]
    reverse_over_forward = grad(lambda *at: jvp(loss, at, tangents)[1], (0, 1))(*at)
    assert_close(forward_over_reverse, wanted)
    assert_close(reverse_over_forward, wanted)
    x = X[:, : 2 if function is positional else 1, :2]
    assert_close(hessian(loss)(x, boxes), jacrev(jacrev(loss))(x, boxes))
    assert_close(jacfwd(jacfwd(loss))(x, boxes), jacrev(jacrev(loss))(x, boxes))


def test_forward_mode_over_forward_mode_by_boxes_is_refused() -> None:
    def tangent(boxes: Any) -> Any:
        return jvp(lambda b: align(X, b), (boxes,), (boxes,))[1]

    with pytest.raises(
        NotImplementedError, match=r"roi_align has .* no second derivatives that use forward mode twice"
    ):
        jvp(tangent, (BOXES,), (BOXES,))


@each_function
def test_batches_of_maps_and_boxes_are_those_one_by_one(function: Any, boxes: Any) -> None:
    def loss(x: Any, boxes: Any) -> Any:
        return function(x, boxes).square().sum()

    maps, moved = torch.stack([X, X.cos()], 3), torch.stack([boxes, boxes + 0.125])
    wanted = [function(X, boxes), function(X.cos(), boxes + 0.125)]
    assert_close(vmap(function, (3, 0))(maps, moved), torch.stack(wanted))
    found = vmap(grad(loss), (3, None))(maps, boxes)
    assert_close(found, torch.stack([grad(loss)(X, boxes), grad(loss)(X.cos(), boxes)]))


@each_function
def test_transforms_compile_as_one_graph(function: Any, boxes: Any) -> None:
    def derivatives(x: Any, boxes: Any) -> Any:
        by_x = grad(lambda x: function(x, boxes).square().sum())(x)
        return by_x, jvp(function, (x, boxes), (x.cos(), boxes.cos()))[1]

    compiled = torch.compile(derivatives, fullgraph=True, backend="aot_eager")
    assert all(map(torch.equal, compiled(X, boxes), derivatives(X, boxes)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@each_function
def test_tangents_have_the_type_of_the_maps(function: Any, boxes: Any, dtype: Any) -> None:
    x, boxes = X.to(dtype), boxes.to(dtype)

    def tangent(x: Any, boxes: Any) -> Any:
        rois = torch.cat([IMAGES.to(x.dtype), boxes], 1)
        call, size, _ = FUNCTIONS[function]
        return jvp(lambda x, rois: call(x, rois, size, 1.0), (x, rois), (x, rois))[1]

    found, wanted = tangent(x, boxes), tangent(x.double(), boxes.double())
    eps = torch.finfo(dtype).eps
    assert found.dtype == dtype
    assert wanted.abs().max() > 0.25
    assert_close(found.double(), wanted, rtol=0, atol=8 * eps * float(wanted.abs().max()))


def test_a_maximum_takes_the_tangent_of_the_first_of_equal_pixels_and_of_nan() -> None:
    x = torch.zeros(1, 2, 3, 4)
    x[0, 1, 1, 2] = torch.nan
    tangent = torch.arange(1.0, 25).reshape(x.shape)
    rois = torch.tensor([[0.0, 1, 1, 3, 2], [0, -9, -9, -5, -5]])
    found = jvp(lambda x: roi_pool(x, rois, 1), (x,), (tangent,))[1]
    assert found.flatten().tolist() == [6, 19, 0, 0]
    dx = grad(lambda x: roi_pool(x, rois, 1).nan_to_num().sum())(x)
    assert dx.flatten().nonzero().flatten().tolist() == [5]
