"""The operators of PyTorch, ``torch.ops.ortops.*``: their kernels, fake kernels and gradients.

For RoIAlign, and with one more option for rotated RoIs, there are

    roi_align(input, rois, scale, output_height, output_width, sampling_ratio, aligned) -> output
    roi_align_dx(grad, rois, input_shape, scale, sampling_ratio, aligned) -> gradient with respect to input
    roi_align_drois(grad, rois, input, scale, sampling_ratio, aligned) -> gradient with respect to rois
    roi_align_drois_grad(by_drois, grad, rois, input, scale, ...) -> gradients of roi_align_drois by grad, rois and input

The first three call the kernels. roi_align is linear in the input, so the gradients of roi_align_dx are roi_align and
roi_align_drois. A maximum is not linear: roi_pool_dx(grad, rois, input, scale) has no gradient of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch

from ortops.compute import compute, runner_on
from ortops.operators.max_roi_pool import MAX_ROI_POOL_22, MAX_ROI_POOL_GRAD
from ortops.operators.roi_align import ROI_ALIGN_22, ROI_ALIGN_GRAD
from ortops.operators.roi_align_rotated import ROI_ALIGN_ROTATED, ROI_ALIGN_ROTATED_GRAD
from ortops.shapes import Shape
from ortops.spec import Operator
from ortops.torch.second_derivatives import gradients_of_drois

TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Family:
    """An operator and its gradient.

    name: of the operator in PyTorch.
    rois: the name of its RoIs in errors.
    columns: the length of a RoI, the index of the image included.
    options: the arguments after scale and sizes, in the language of PyTorch's schemas.
    attributes: takes the scale and the options; returns the attributes of the ONNX operators.
    """

    name: str
    rois: str
    columns: int
    forward: Operator
    gradient: Operator
    options: str
    attributes: Callable[..., dict[str, Any]]


def attributes_of_roi_align(scale: float, sampling_ratio: int, aligned: bool) -> dict[str, Any]:
    """The attributes of ONNX's RoiAlign, but the size, for torchvision's arguments."""
    mode = "half_pixel" if aligned else "output_half_pixel"
    return {"spatial_scale": scale, "sampling_ratio": max(sampling_ratio, 0), "coordinate_transformation_mode": mode}


def attributes_of_rotated(scale: float, sampling_ratio: int, aligned: bool, clockwise: bool) -> dict[str, Any]:
    """The attributes of RoIAlignRotated, but the size, for mmcv's arguments."""
    flags = {"aligned": int(aligned), "clockwise": int(clockwise)}
    return {"spatial_scale": scale, "sampling_ratio": max(sampling_ratio, 0), **flags}


ROI_ALIGN = Family(
    *("roi_align", "boxes", 5, ROI_ALIGN_22, ROI_ALIGN_GRAD),
    ", int sampling_ratio, bool aligned",
    attributes_of_roi_align,
)
ROTATED = Family(
    *("roi_align_rotated", "rois", 6, ROI_ALIGN_ROTATED, ROI_ALIGN_ROTATED_GRAD),
    ", int sampling_ratio, bool aligned, bool clockwise",
    attributes_of_rotated,
)
ROI_POOL = Family(
    *("roi_pool", "boxes", 5, MAX_ROI_POOL_22, MAX_ROI_POOL_GRAD), "", lambda scale: {"spatial_scale": scale}
)


def _check(family: Family, x: Any, rois: Any, x_shape: Sequence[Any]) -> None:
    """Check what is known of tensors without their values; x is the input, or the gradient with respect to the output.

    Raises:
        TypeError: a type is not allowed, or the types differ.
        ValueError: a tensor is on another device than the CPU, or has a wrong shape.
    """
    for name, tensor in (("input", x), (family.rois, rois)):
        if tensor.device.type not in ("cpu", "meta"):
            raise ValueError(f"{name}.device = {tensor.device}: must be cpu")
    if x.dtype not in TYPES:
        raise TypeError(f"input.dtype = {x.dtype}: must be one of {', '.join(map(str, TYPES))}")
    if rois.dtype != x.dtype:
        raise TypeError(f"{family.rois}.dtype = {rois.dtype}: must be {x.dtype}, the type of input")
    if len(x_shape) != 4:
        raise ValueError(f"input.shape = {list(x_shape)}: must be [N, C, H, W]")
    if rois.dim() != 2 or rois.shape[1] != family.columns:
        raise ValueError(f"{family.rois}.shape = {list(rois.shape)}: must be [K, {family.columns}]")


def array(tensor: Any) -> Any:
    """The elements of a tensor as a C-contiguous array, which shares the tensor's memory if that is contiguous."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _split(family: Family, rois: Any, x_shape: Sequence[int]) -> tuple[Any, Any]:
    """The coordinates [K, columns - 1] and the indices of images [K] of RoIs.

    Raises:
        ValueError: a number is not finite, an index is none of an image, or there are RoIs, but no pixels.
    """
    images, _, height, width = x_shape
    if len(rois) and not (height and width):
        raise ValueError(f"input.shape = {list(x_shape)}: must have pixels where there are {family.rois}")
    rows = array(rois)
    with np.errstate(invalid="ignore"):
        index = rows[:, 0].astype(np.int64)
    valid = (index == rows[:, 0]) & (index >= 0) & (index < images)
    if not (valid.all() and np.isfinite(rows).all()):
        i = int((valid & np.isfinite(rows).all(1)).argmin())
        rule = f"must be finite, and begin with the index of an image, a whole number >= 0 and < {images}"
        raise ValueError(f"{family.rois}[{i}] = {rows[i].tolist()}: {rule}")
    return np.ascontiguousarray(rows[:, 1:]), index


# Measured: their checks would take a quarter of a call with one RoI.
@functools.lru_cache(maxsize=256)
def _attributes(
    family: Family, operator: Operator, dtype: Any, options: tuple[Any, ...], **sizes: Any
) -> Mapping[str, Any]:
    """The attributes of one of the operators; tensors of float64 have a spatial scale that is not rounded to float32."""
    given = family.attributes(*options)
    checked = operator.check_attributes({**given, **sizes})
    return {**checked, "spatial_scale": float(given["spatial_scale"])} if dtype == torch.float64 else checked


def _call(
    operator: Operator, dtype: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], wanted: int = 0
) -> tuple[Any, Any]:
    """The one wanted output of an operator, and the array that shares its memory."""
    made: list[tuple[Any, Any]] = []

    def allocate(i: int, shape: Shape) -> Any:
        if i != wanted:
            return None
        tensor = torch.empty(shape, dtype=dtype, device="cpu")
        made.append((tensor, array(tensor)))
        return made[0][1]

    compute(operator, inputs, attributes, allocate, runner_on(torch.get_num_threads()))
    return made[0]


def _forward(family: Family) -> Callable[..., Any]:
    def kernel(x: Any, rois: Any, scale: float, height: int, width: int, *options: Any) -> Any:
        _check(family, x, rois, x.shape)
        boxes, images = _split(family, rois, x.shape)
        sizes: dict[str, Any]
        if family is ROI_POOL:
            inputs, sizes = [array(x), array(rois)], {"pooled_shape": (height, width)}
        else:
            inputs, sizes = [array(x), boxes, images], {"output_height": height, "output_width": width}
        attributes = _attributes(family, family.forward, x.dtype, (scale, *options), **sizes)
        return _call(family.forward, x.dtype, inputs, attributes)[0]

    return kernel


def _fake_forward(family: Family) -> Callable[..., Any]:
    def kernel(x: Any, rois: Any, scale: float, height: Any, width: Any, *options: Any) -> Any:  # noqa: ARG001
        _check(family, x, rois, x.shape)
        return x.new_empty((rois.shape[0], x.shape[1], height, width))

    return kernel


def _dx(family: Family) -> Callable[..., Any]:
    def kernel(dy: Any, rois: Any, x_shape: Sequence[int], *options: Any) -> Any:
        _check(family, dy, rois, x_shape)
        inputs = [array(dy), *_split(family, rois, x_shape), np.array(x_shape, np.int64), None]
        return _call(family.gradient, dy.dtype, inputs, _attributes(family, family.gradient, dy.dtype, options))[0]

    return kernel


def _drois(family: Family) -> Callable[..., Any]:
    def kernel(dy: Any, rois: Any, x: Any, *options: Any) -> Any:
        _check(family, x, rois, x.shape)
        inputs = [array(dy), *_split(family, rois, x.shape), np.array(x.shape, np.int64), array(x)]
        attributes = _attributes(family, family.gradient, dy.dtype, options)
        found, _ = _call(family.gradient, dy.dtype, inputs, attributes, wanted=1)
        return torch.nn.functional.pad(found, (1, 0))  # the index of the image

    return kernel


def _drois_grad(family: Family) -> Callable[..., Any]:
    def kernel(by_drois: Any, dy: Any, rois: Any, x: Any, *options: Any) -> Any:
        _check(family, x, rois, x.shape)
        _, images = _split(family, rois, x.shape)
        scale = _attributes(family, family.gradient, dy.dtype, options)["spatial_scale"]
        by_dy, by_rois, by_x = gradients_of_drois(by_drois, dy, rois, images, x, scale, *options[1:])
        return by_dy.to(dy.dtype), by_rois.to(rois.dtype), by_x.to(x.dtype)

    return kernel


def _pool_dx(dy: Any, rois: Any, x: Any, *options: Any) -> Any:
    _check(ROI_POOL, x, rois, x.shape)
    _split(ROI_POOL, rois, x.shape)
    attributes = _attributes(ROI_POOL, ROI_POOL.gradient, dy.dtype, options)
    return _call(ROI_POOL.gradient, dy.dtype, [array(dy), array(x), array(rois)], attributes)[0]


_library = torch.library.Library("ortops", "FRAGMENT")
"""Kept alive, since PyTorch removes the operators of a library that is garbage-collected."""


def _define(name: str, schema: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> Callable[..., Any]:
    """Define an operator; returns it for calls."""
    _library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    # For all devices, so that the kernel, and not PyTorch, refuses others than the CPU.
    _library.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"ortops::{name}", fake, lib=_library)
    operator: Callable[..., Any] = getattr(torch.ops.ortops, name)
    return operator


def _differentiate(name: str, setup: Callable[..., None], backward: Callable[..., Any]) -> None:
    torch.library.register_autograd(f"ortops::{name}", backward, setup_context=setup, lib=_library)


def _define_forward(family: Family, gradients: Callable[..., tuple[Any, Any]]) -> Callable[..., Any]:
    """Define a forward operator.

    Args:
        family: its name, RoIs and options.
        gradients: takes the context and the gradient of the output; returns those of input and rois.
    """
    sizes = "SymInt output_height, SymInt output_width"
    schema = f"(Tensor input, Tensor rois, float scale, {sizes}{family.options}) -> Tensor"
    operator = _define(family.name, schema, _forward(family), _fake_forward(family))
    # As torchvision does: autocast computes in float32. The functions give the result the type of the input.
    torch.library.register_autocast(f"ortops::{family.name}", "cpu", torch.float32, lib=_library)

    def keep(ctx: Any, inputs: Sequence[Any], output: Any) -> None:  # noqa: ARG001
        x, rois, scale, _, _, *options = inputs
        ctx.shape, ctx.options = x.shape, (scale, *options)
        ctx.save_for_backward(rois, x if family is ROI_POOL or ctx.needs_input_grad[1] else None)

    def backward(ctx: Any, dy: Any) -> tuple[Any, ...]:
        return *gradients(ctx, dy), None, None, *[None] * len(ctx.options)

    _differentiate(family.name, keep, backward)
    return operator


def _define_average(family: Family) -> Callable[..., Any]:
    """Define an operator that is linear in its input, and its first and second derivatives."""
    name, options = family.name, f"float scale{family.options}"
    dx_of = _define(
        f"{name}_dx",
        f"(Tensor grad, Tensor rois, SymInt[] input_shape, {options}) -> Tensor",
        _dx(family),
        lambda dy, rois, shape, *_: dy.new_empty(shape),  # noqa: ARG005
    )
    drois_of = _define(
        f"{name}_drois",
        f"(Tensor grad, Tensor rois, Tensor input, {options}) -> Tensor",
        _drois(family),
        lambda dy, rois, x, *_: rois.new_empty(rois.shape),  # noqa: ARG005
    )
    gradients_of = _define(
        f"{name}_drois_grad",
        f"(Tensor by_drois, Tensor grad, Tensor rois, Tensor input, {options}) -> (Tensor, Tensor, Tensor)",
        _drois_grad(family),
        lambda by_drois, *tensors: tuple(x.new_empty(x.shape) for x in tensors[:3]),  # noqa: ARG005
    )

    def gradients(ctx: Any, dy: Any) -> tuple[Any, Any]:
        rois, x = ctx.saved_tensors
        dx = dx_of(dy, rois, ctx.shape, *ctx.options) if ctx.needs_input_grad[0] else None
        return dx, drois_of(dy, rois, x, *ctx.options) if ctx.needs_input_grad[1] else None

    forward = _define_forward(family, gradients)

    def keep(ctx: Any, inputs: Sequence[Any], output: Any) -> None:  # noqa: ARG001
        ctx.options = tuple(inputs[3:])
        ctx.save_for_backward(*(x for x in inputs[:3] if isinstance(x, torch.Tensor)))

    def of_dx(ctx: Any, by_dx: Any) -> tuple[Any, ...]:
        dy, rois = ctx.saved_tensors
        scale, *options = ctx.options
        by_dy = forward(by_dx, rois, scale, *dy.shape[2:], *options) if ctx.needs_input_grad[0] else None
        by_rois = drois_of(dy, rois, by_dx, *ctx.options) if ctx.needs_input_grad[1] else None
        return by_dy, by_rois, None, *[None] * len(ctx.options)

    def of_drois(ctx: Any, by_drois: Any) -> tuple[Any, ...]:
        return *gradients_of(by_drois, *ctx.saved_tensors, *ctx.options), *[None] * len(ctx.options)

    _differentiate(f"{name}_dx", keep, of_dx)
    _differentiate(f"{name}_drois", keep, of_drois)
    _refuse_gradient(f"{name}_drois_grad", f"{name} has no third derivatives in which one by {family.rois} occurs")
    return forward


def _refuse_gradient(name: str, message: str) -> None:
    def refuse(ctx: Any, *grads: Any) -> None:
        raise NotImplementedError(message)

    _differentiate(name, lambda ctx, inputs, output: None, refuse)  # noqa: ARG005


def _define_maximum() -> Callable[..., Any]:
    dx_of = _define(
        "roi_pool_dx",
        "(Tensor grad, Tensor rois, Tensor input, float scale) -> Tensor",
        _pool_dx,
        lambda dy, rois, x, scale: x.new_empty(x.shape),  # noqa: ARG005
    )
    _refuse_gradient("roi_pool_dx", "roi_pool has no second derivatives")

    def gradients(ctx: Any, dy: Any) -> tuple[Any, Any]:
        rois, x = ctx.saved_tensors
        return dx_of(dy, rois, x, *ctx.options) if ctx.needs_input_grad[0] else None, None

    return _define_forward(ROI_POOL, gradients)


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "roi_align": _define_average(ROI_ALIGN),
    "roi_align_rotated": _define_average(ROTATED),
    "roi_pool": _define_maximum(),
}
"""The forward operators by name."""
