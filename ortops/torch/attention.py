# SPDX-License-Identifier: MIT
"""Multi-scale deformable attention as PyTorch operators: ``torch.ops.ortops.ms_deform_attn`` and its gradient."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from ortops.compute import Bound, runner_on
from ortops.operators.ms_deform_attn import MS_DEFORM_ATTN, MS_DEFORM_ATTN_GRAD
from ortops.shapes import Shape
from ortops.torch.autograd import differentiate
from ortops.torch.operators import TYPES, array, define, library

_FORWARD, _GRADIENT = Bound(MS_DEFORM_ATTN, {}), Bound(MS_DEFORM_ATTN_GRAD, {})

_RANKS = {"value": 4, "sampling_locations": 6, "attention_weights": 5, "spatial_shapes": 2}


def _check(*tensors: Any, start: Any, grad: Any = None) -> None:
    """Check tensors' types, devices and ranks; the kernel checks the rest."""
    named = dict(zip(_RANKS, tensors, strict=True))
    value = named["value"]
    if value.dtype not in TYPES:
        raise TypeError(f"value.dtype = {value.dtype}: must be one of {', '.join(map(str, TYPES))}")
    others = {"level_start_index": start, "grad": grad}
    for name, tensor in (named | {key: other for key, other in others.items() if other is not None}).items():
        expected = torch.int64 if name in ("spatial_shapes", "level_start_index") else value.dtype
        if tensor.device.type not in ("cpu", "meta"):
            raise ValueError(f"{name}.device = {tensor.device}: must be cpu")
        if tensor.device.type != value.device.type:
            raise ValueError(f"{name}.device = {tensor.device}: must be {value.device}, the device of value")
        if tensor.dtype != expected:
            of_value = "" if expected is torch.int64 else ", the type of value"
            raise TypeError(f"{name}.dtype = {tensor.dtype}: must be {expected}{of_value}")
        if name in _RANKS and tensor.dim() != _RANKS[name]:
            raise ValueError(f"{name}.shape = {list(tensor.shape)}: must have {_RANKS[name]} axes")


def _call(bound: Bound, like: Any, inputs: Sequence[Any], count: int) -> list[Any]:
    """All outputs of an operator."""
    outputs: list[Any] = []

    def allocate(_: int, shape: Shape) -> Any:
        outputs.append(torch.empty(shape, dtype=like.dtype, device="cpu"))
        return array(outputs[-1])

    bound(
        [None if tensor is None else array(tensor) for tensor in inputs], allocate, runner_on(torch.get_num_threads())
    )
    return outputs[:count]


def _shape(value: Any, locations: Any, weights: Any, shapes: Any, start: Any) -> Any:
    _check(value, locations, weights, shapes, start=start)
    return locations.shape[0], locations.shape[1], value.shape[2] * value.shape[3]


def _compute(value: Any, locations: Any, weights: Any, shapes: Any, start: Any) -> Any:
    return _call(_FORWARD, value, [value, shapes, start, locations, weights], 1)[0]


def _gradient_shapes(grad: Any, value: Any, locations: Any, weights: Any, shapes: Any, start: Any) -> Any:
    _check(value, locations, weights, shapes, start=start, grad=grad)
    return value.shape, locations.shape, weights.shape


def _compute_gradients(grad: Any, value: Any, locations: Any, weights: Any, shapes: Any, start: Any) -> Any:
    return tuple(_call(_GRADIENT, grad, [grad, value, shapes, start, locations, weights], 3))


_MAPS = "Tensor spatial_shapes, Tensor? level_start_index"
_TENSORS = f"Tensor value, Tensor sampling_locations, Tensor attention_weights, {_MAPS}"

ms_deform_attn = define("ms_deform_attn", f"({_TENSORS}) -> Tensor", (_shape, _compute))
"""The forward operator."""

_gradients = define(
    "ms_deform_attn_grad",
    f"(Tensor grad, {_TENSORS}) -> (Tensor, Tensor, Tensor)",
    (_gradient_shapes, _compute_gradients),
)
torch.library.register_autocast("ortops::ms_deform_attn", "cpu", torch.float32, lib=library)


def _backward(ctx: Any, dy: Any) -> tuple[Any, ...]:
    gradients = _gradients(dy, *ctx.saved_tensors, *ctx.options)
    needed = (gradient if needs else None for gradient, needs in zip(gradients, ctx.needs_input_grad, strict=False))
    return *needed, None


def _jvp(tensors: Sequence[Any], options: Sequence[Any], tangents: Sequence[Any]) -> Any:
    (value, locations, weights, shapes), (by_value, by_locations, by_weights, _) = tensors, tangents
    terms = [] if by_value is None else [ms_deform_attn(by_value, locations, weights, shapes, *options)]
    terms += [] if by_locations is None else [_along(by_locations, value, locations, weights, shapes, *options)]
    terms += [] if by_weights is None else [ms_deform_attn(value, locations, by_weights, shapes, *options)]
    return sum(terms[1:], terms[0])


def _along(tangent: Any, value: Any, locations: Any, weights: Any, shapes: Any, start: Any) -> Any:
    """The derivative along a change of the locations.

    The slope of a sample along an axis is the difference of the samples on the pixels before and after it. Their locations
    are computed in float64, since no shorter type has the centres of all pixels.
    """
    locations, sizes = locations.double(), shapes.flip(1).double()[:, None]
    first = (locations * sizes - 0.5).floor()
    points, factors = [], []
    for (axis, is_axis), end in itertools.product(enumerate(torch.eye(2, dtype=torch.bool)), (0, 1)):
        points.append(torch.where(is_axis, (first + end + 0.5) / sizes, locations))
        factors.append((2 * end - 1) * weights * (tangent * sizes)[..., axis])
    y = ms_deform_attn(value.double(), torch.cat(points, 4), torch.cat(factors, 4), shapes, start)
    return y.to(value.dtype)


def _no_second_derivatives(*_: Any) -> Any:
    raise NotImplementedError("ms_deform_attn has no second derivatives")


differentiate(library, "ms_deform_attn", _backward, _jvp, lambda *_: True)
differentiate(library, "ms_deform_attn_grad", _no_second_derivatives, _no_second_derivatives, lambda *_: False)
