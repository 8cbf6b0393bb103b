# SPDX-License-Identifier: MIT
"""The derivatives of `ortops.torch`: in both modes, of both orders, and under the transforms of ``torch.func``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import functional, gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.testing import assert_close

from ortops.torch import ms_deform_attn, ps_roi_align, roi_align, roi_align_rotated, roi_pool

# Of PyTorch's own rules for the forward mode, when it is first used.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

X = torch.sin(torch.arange(2 * 2 * 5 * 4) * 2.4 + 0.3).reshape(2, 2, 5, 4).double()
IMAGES = torch.tensor([[0.0], [1.0]]).double()
BOXES = torch.tensor([[0.7, 1.1, 2.3, 3.9], [-1.3137, 1.2, 4.7, 3.1413]]).double()
TURNED = torch.tensor([[1.7, 2.1, 3.3, 2.9, 0.3], [2.3, 2.2, 4.7, 3.1, -1.2]]).double()


def of_numbers(function: Callable[..., Any], *options: Any) -> Callable[[Any, Any], Any]:
    """A function of maps and of RoIs without the index of an image, which has no derivative."""
    return lambda x, rois: function(x, torch.cat([IMAGES, rois], 1), (2, 1), 0.9, *options)


AVERAGES = {
    "roi_align": (of_numbers(roi_align, 2, True), BOXES),
    "roi_align of adaptive samples": (of_numbers(roi_align, -1, False), BOXES),
    "roi_align_rotated": (of_numbers(roi_align_rotated, 2, True, False), TURNED),
    "roi_align_rotated of adaptive samples": (of_numbers(roi_align_rotated, 0, False, True), TURNED),
    "ps_roi_align": (of_numbers(ps_roi_align, 2), BOXES),
    "ps_roi_align of adaptive samples": (of_numbers(ps_roi_align, -1), BOXES),
}
FUNCTIONS = {**AVERAGES, "roi_pool": (of_numbers(roi_pool), BOXES)}
each_average = pytest.mark.parametrize(("function", "rois"), AVERAGES.values(), ids=AVERAGES)
each_function = pytest.mark.parametrize(("function", "rois"), FUNCTIONS.values(), ids=FUNCTIONS)


@each_function
def test_derivatives_by_maps_are_those_of_finite_differences(function: Any, rois: Any) -> None:
    def square(x: Any) -> Any:
        return function(x, rois) ** 2

    x = X.clone().requires_grad_()
    assert gradcheck(square, x, fast_mode=True, check_forward_ad=True, check_batched_forward_grad=True)
    assert gradgradcheck(square, x, fast_mode=True, check_fwd_over_rev=True)


@each_average
def test_derivatives_by_rois_are_those_of_finite_differences(function: Any, rois: Any) -> None:
    def dx(rois: Any) -> Any:
        return torch.autograd.grad(function(x, rois).square().sum(), x, create_graph=True)[0]

    x, rois = X.clone().requires_grad_(), rois.clone().requires_grad_()
    assert gradcheck(function, (x, rois), fast_mode=True)
    assert gradcheck(dx, rois, fast_mode=True)


@each_function
def test_torch_func_gives_the_derivatives_of_autograd(function: Any, rois: Any) -> None:
    def loss(x: Any, rois: Any) -> Any:
        return function(x, rois).pow(3).sum()

    by_x, by_rois = functional.jacobian(function, (X, rois))
    assert_close(jacrev(function, (0, 1))(X, rois), (by_x, by_rois))
    assert_close(jacfwd(function)(X, rois), by_x)
    x = X[:, :, :2]
    wanted = functional.hessian(lambda x: loss(x, rois), x)
    for transform in (hessian(loss), jacfwd(jacfwd(loss)), jacrev(jacfwd(loss)), jacrev(jacrev(loss))):
        assert_close(transform(x, rois), wanted)


@each_average
def test_derivatives_by_rois_that_do_not_exist_are_refused(function: Any, rois: Any) -> None:
    def gradient(rois: Any) -> Any:
        return torch.autograd.grad(function(X, rois).square().sum(), rois, create_graph=True)[0]

    with pytest.raises(NotImplementedError, match=r"has no derivatives with respect to (boxes|rois) in forward mode"):
        jvp(lambda rois: function(X, rois), (rois,), (rois,))
    with pytest.raises(NotImplementedError, match=r"has no second derivatives with respect to (boxes|rois)"):
        gradient(rois.clone().requires_grad_()).sum().backward()


@each_function
def test_batches_of_maps_and_rois_are_those_one_by_one(function: Any, rois: Any) -> None:
    def loss(x: Any, rois: Any) -> Any:
        return function(x, rois).square().sum()

    maps, moved = torch.stack([X, X.cos()], 3), torch.stack([rois, rois + 0.125])
    wanted = [function(X, rois), function(X.cos(), rois + 0.125)]
    assert_close(vmap(function, (3, 0))(maps, moved), torch.stack(wanted))
    gradients = vmap(grad(loss), (3, None))(maps, rois)
    assert_close(gradients, torch.stack([grad(loss)(X, rois), grad(loss)(X.cos(), rois)]))


@each_function
def test_transforms_compile_as_one_graph(function: Any, rois: Any) -> None:
    def derivatives(x: Any, rois: Any) -> Any:
        by_x = grad(lambda x: function(x, rois).square().sum())(x)
        return by_x, jvp(lambda x: function(x, rois), (x,), (x.cos(),))[1]

    compiled = torch.compile(derivatives, fullgraph=True, backend="aot_eager")
    assert all(map(torch.equal, compiled(X, rois), derivatives(X, rois)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_maximum_takes_the_tangent_of_the_first_of_equal_pixels_and_of_nan(dtype: Any) -> None:
    x = torch.zeros(1, 2, 3, 4, dtype=dtype)
    x[0, 1, 1, 2] = torch.nan
    tangent = torch.arange(1.0, 25, dtype=dtype).reshape(x.shape)
    rois = torch.tensor([[0.0, 1, 1, 3, 2], [0, -9, -9, -5, -5]], dtype=dtype)
    pooled = jvp(lambda x: roi_pool(x, rois, 1), (x,), (tangent,))[1]
    assert pooled.dtype == dtype
    assert pooled.flatten().tolist() == [6, 19, 0, 0]
    dx = grad(lambda x: roi_pool(x, rois, 1).nan_to_num().sum())(x)
    assert dx.flatten().nonzero().flatten().tolist() == [5]


SIZES, STARTS = torch.tensor([[3, 4], [2, 1]]), torch.tensor([2, 0])
POINTS = (torch.sin(torch.arange(30.0)) * 0.7 + 0.4).reshape(1, 5, 1, 2, 3, 1)
PARTS = (X.reshape(1, 20, 1, 4), torch.cat([POINTS, POINTS.flip(1)], -1).double(), POINTS[..., 0].cos().double())


def attention(value: Any, locations: Any, weights: Any) -> Any:
    return ms_deform_attn(value, SIZES, STARTS, locations, weights)


def test_attention_has_first_derivatives_in_both_modes_and_no_second_ones() -> None:
    parts = [part.clone().requires_grad_() for part in PARTS]
    assert gradcheck(attention, parts, fast_mode=True, check_forward_ad=True, check_batched_forward_grad=True)
    # On pixels, off the map, and where a location is none.
    places = torch.tensor([0.375, 0.875, -0.125, 1.125, 0.0, -0.25, torch.nan, torch.inf]).double()
    locations = torch.stack([places, torch.full((8,), 0.5)], -1).reshape(1, 2, 1, 2, 2, 2)
    by_all = jacrev(attention, (0, 1, 2))(PARTS[0], locations, PARTS[2][:, :2, :, :, :2])
    assert_close(jacfwd(attention, (0, 1, 2))(PARTS[0], locations, PARTS[2][:, :2, :, :, :2]), by_all)
    assert (by_all[1] != 0).any()
    (by_value,) = torch.autograd.grad(attention(*parts).sum(), parts[0], create_graph=True)
    with pytest.raises(NotImplementedError, match="ms_deform_attn has no second derivatives"):
        by_value.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tangents_of_attention_are_rounded_once(dtype: Any) -> None:
    value, locations, weights = (part.to(dtype) for part in PARTS)
    along = jvp(lambda locations: attention(value, locations, weights), (locations,), (locations.cos(),))[1]
    tangent = locations.cos().double()
    value, locations, weights = value.double(), locations.double(), weights.double()
    wanted = jvp(lambda locations: attention(value, locations, weights), (locations,), (tangent,))[1]
    assert_close(along, wanted.to(dtype))
